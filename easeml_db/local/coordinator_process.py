"""The coordinator as a background process: started, found again by its pid file, and ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from easeml_db.local.private_files import open_to_append, write_private
from easeml_db.local.processes import coordinator_environment, end_process, server_identity

# Coordinators that this process started. They outlive it, so it never waits for them, about which Python would warn.
_children: list[subprocess.Popen[bytes]] = []


def find_coordinator(folder: Path) -> int | None:
    """Return the process number of the running coordinator, None when there is none."""
    try:
        pid = int(_pid_file(folder).read_text(encoding="utf-8"))
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if b"coordinator" in words else None  # the number may be another process's by now


def launch_coordinator(folder: Path, dsn: str) -> int:
    """Start a coordinator in the background, which logs into the folder; return its process number."""
    command = [sys.executable, "-m", "easeml_db", "coordinator", "--dsn", dsn, "--logs-of", str(folder)]
    with open(open_to_append(folder / "coordinator.log"), "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
            env=coordinator_environment(), **server_identity(),
        )  # fmt: skip
    _children.append(process)
    write_private(_pid_file(folder), str(process.pid))
    return process.pid


def end_coordinator(folder: Path, timeout_seconds: float) -> None:
    """End the coordinator in good order, by force after the timeout; its run resumes at the next start."""
    pid = find_coordinator(folder)
    if pid is not None:
        end_process(pid, timeout_seconds)
    _children[:] = [child for child in _children if child.poll() is None]
    _pid_file(folder).unlink(missing_ok=True)


def _pid_file(folder: Path) -> Path:
    return folder / "coordinator.pid"
