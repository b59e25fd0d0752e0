"""A method's processes: their start, what they take, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easeml_db.errors import TrialFailed
from easeml_db.local.processes import server_environment
from easeml_experiments.peers import record
from easeml_experiments.peers.record import Record
from easeml_experiments.peers.usage import Usage, with_descendants

ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_worker_niceness": "0",  # 15 by default: on a shared machine its workers would get next to nothing
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
}
LOG_LINES = 15


@dataclass(frozen=True)
class Measured:
    """A method's record with what was seen from outside: seconds from the launch to the last result, all processes'
    memory together at its largest, and their processor time.

    Of model hopping also the training units that the run recorded; `n_hops` of them began on another slot than the one
    before, which handed over `hopped_bytes`.
    """

    record: Record
    launched: float
    memory_bytes: int
    processor_seconds: float
    units: Sequence[Mapping[str, Any]] = ()
    n_hops: int = 0
    hopped_bytes: int = 0

    @property
    def seconds(self) -> float:
        """Start-up included."""
        return self.record.finished - self.launched

    def processor_use(self, n_cores: int) -> float:
        """Return the share of `n_cores` that was used, start-up included."""
        return self.processor_seconds / (self.seconds * n_cores)

    @property
    def training_seconds(self) -> float:
        """From the first trial's start to the last trial's end."""
        return self.record.finished - self.record.started


def launch(method: str, folder: Path) -> Measured:
    """Run a method over the rows and the workload in a folder. Raises TrialFailed with the end of what it printed."""
    launched = time.time()
    with _started([sys.executable, "-m", "easeml_experiments.peers", method, str(folder)]) as (process, log):
        with Usage(lambda: [process.pid]) as usage:
            status = process.wait()
        if status != 0:
            log.seek(0)
            tail = log.read().decode(errors="replace").splitlines()[-LOG_LINES:]
            raise TrialFailed(f"{method} ended with status {status}", detail="\n".join(tail))
    return Measured(record.load(folder / "record.json"), launched, usage.peak_memory_bytes, usage.processor_seconds)


def in_own_session() -> None:
    """Make this process a session of its own, as PostgreSQL does with each of its processes: where the kernel shares
    processors out by session (sched_autogroup_enabled), workers of one session would together get what one gets."""
    process = os.getpid()
    if os.getsid(process) == process:
        return
    if os.getpgid(process) == process:  # the leader of a group has to leave it first; Ray's workers are leaders
        os.setpgid(process, os.getpgid(os.getppid()))
    os.setsid()


@contextmanager
def _started(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], tempfile._TemporaryFileWrapper[bytes]]]:
    """Start a process away from the terminal; it and all that it has started are gone at the end of the block."""
    environment = {**os.environ, **server_environment(), **ENVIRONMENT}
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=environment, start_new_session=True
        )
        try:
            yield process, log
        finally:
            for pid in with_descendants([process.pid]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
