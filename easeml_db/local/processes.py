"""Processes of the private server: which user they run as, in which environment, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from easeml_db.errors import NotFound, ServerUnavailable
from easeml_plpy.server.memory import machine_bytes

LIBPQ_FILES = ("PGSERVICEFILE", "PGSYSCONFDIR", "PGPASSFILE")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
PREDICTION_MEMORY = "EASEML_PREDICTION_MEMORY_BYTES"
# Threads of torch and LightGBM, and of numpy's BLAS, sleep as soon as they wait.
WAITING_THREADS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "OPENBLAS_THREAD_TIMEOUT": "4"}


def server_user() -> pwd.struct_passwd:
    """Return the unprivileged user as whom root starts the server."""
    try:
        return pwd.getpwnam("postgres")
    except KeyError as error:
        raise NotFound(
            "there is no user postgres to run the server as", hint="Install PostgreSQL, or run as a plain user."
        ) from error


def server_identity() -> dict[str, Any]:
    """Return what subprocess needs to start a process as the server's user; nothing for a plain user."""
    if os.geteuid() != 0:
        return {}
    user = server_user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def server_ids() -> tuple[int, int]:
    """Return the user and group of the server's files: root's are the server's user's; -1 leaves them as they are."""
    if os.geteuid() != 0:
        return -1, -1
    user = server_user()
    return user.pw_uid, user.pw_gid


def owners() -> frozenset[int]:
    """Return the users to whom files of the private server may belong."""
    return frozenset({os.geteuid(), server_ids()[0]} - {-1})


def server_environment() -> dict[str, str]:
    """Return the server's environment: our libraries first, threads that wait without spinning, memory of predictions.

    No role of the database can change it.
    """
    import easeml_plpy

    kept = {name: os.environ[name] for name in ("LANG", "TZ", "PATH") if name in os.environ}
    libraries = str(Path(easeml_plpy.__file__).resolve().parent.parent)
    memory = max(2 << 30, machine_bytes() // 4)  # of a session that predicts: of the machine's, or of the container's
    return {
        **kept,
        "PYTHONPATH": libraries,
        **WAITING_THREADS,
        "PYTHONDONTWRITEBYTECODE": "1",
        PREDICTION_MEMORY: os.environ.get(PREDICTION_MEMORY) or str(memory),
    }


def coordinator_environment() -> dict[str, str]:
    """Return the coordinator's environment: the server's, and where libpq finds services and passwords of nodes."""
    return server_environment() | {name: os.environ[name] for name in LIBPQ_FILES if name in os.environ}


def available_cores(quota: Path = CPU_QUOTA) -> int:
    """Return how many cores this process may use: those that it may run on, or as many as its container's CPU quota
    allows. quota: the file in which the kernel reports microseconds, or max, and the period.
    """
    n_cores = len(os.sched_getaffinity(0))
    limit = quota.read_text(encoding="ascii").split() if quota.exists() else []
    if len(limit) != 2 or limit[0] == "max":
        return n_cores
    return max(1, min(n_cores, int(limit[0]) // int(limit[1])))


def package_build() -> float:
    """Return when the installed code changed last, in seconds since 1970."""
    import easeml_plpy

    folders = [Path(__file__).parent.parent, Path(easeml_plpy.__file__).parent]
    return max(path.stat().st_mtime for folder in folders for path in folder.rglob("*.py"))


def run_to_end(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program without input, as subprocess.run does. Whoever is interrupted takes it along, even if it has only
    just begun.
    """
    # Between the program's start and our knowing of it an interrupt would leave it behind: it waits until we know.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, encoding="utf-8", errors="surrogateescape",
            preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, former), **options,
        ) as program:  # fmt: skip
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, former)
                output, complaint = program.communicate()
            except BaseException:
                program.kill()
                raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    return subprocess.CompletedProcess(command, program.returncode, output, complaint)


def run_as_server(
    command: Sequence[str | Path], *, check: bool = True, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as the server's user. Raises ServerUnavailable if it fails and `check` is set."""
    # Output goes to files: the server would keep a pipe open for as long as it lives.
    with tempfile.TemporaryFile("w+") as output:
        done = run_to_end(command, stdout=output, stderr=output, cwd="/", env=env, **server_identity())
        output.seek(0)
        text = output.read()
    if check and done.returncode != 0:
        raise ServerUnavailable(f"{Path(command[0]).name} failed", detail=text.strip())
    return subprocess.CompletedProcess(command, done.returncode, text, text)


def end_process(pid: int, timeout_seconds: float) -> None:
    """Ask a process to end, and kill it after the timeout."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
