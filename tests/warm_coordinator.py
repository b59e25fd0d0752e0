"""Processes that import nothing: they fork from one that has imported all, which takes a coordinator 0.6 seconds, and a
method of the experiments two.

Each runs the same code as a user's, with the environment, arguments and files that it is told.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easeml_db.local.processes import coordinator_environment
from tests.warm_server import HASH_SEED

SOURCE = Path(__file__).parent / "preloading" / "coordinators.py"


class Parent:
    """The process that forks coordinators, or methods, for as long as this object lives."""

    def __init__(self, kind: str) -> None:
        self._asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Not in the source tree, and not a script: Python would import from its folder.
            command = [sys.executable, "-c", SOURCE.read_text(encoding="utf-8"), str(theirs.fileno()), kind]
            self._process = subprocess.Popen(
                command, cwd="/", env=coordinator_environment() | {"PYTHONHASHSEED": os.environ[HASH_SEED]},
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def ask(self, asked: Mapping[str, Any], *files: int) -> Any:
        """Send a message, with files; return the answer."""
        with self._lock:
            socket.send_fds(self._asks, [json.dumps(asked).encode()], files)
            return json.loads(self._asks.recv(64))

    def close(self) -> None:
        """End it; coordinators that still run go on."""
        self._asks.close()
        self._process.wait()


@dataclass
class Forked:
    """A process that was forked, with what is asked of a Popen."""

    parent: Parent
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        if self.returncode is None:
            self.returncode = self.parent.ask({"ended": self.pid})
        return self.returncode

    def wait(self) -> int:
        """Wait until it has ended; return the exit status."""
        while (status := self.poll()) is None:
            time.sleep(0.01)
        return status

    def send_signal(self, which: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, which)

    def kill(self) -> None:
        """End it at once, whoever else has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


_parents: dict[str, Parent] = {}


def end_parents() -> None:
    """End the processes that others fork from."""
    while _parents:
        _parents.popitem()[1].close()


def forked_coordinator(arguments: Sequence[str], log: int) -> Forked:
    """Start `easeml` with these arguments, which prints into an open file."""
    return _forked("coordinators", arguments, coordinator_environment(), log)


def forked_method(arguments: Sequence[str], environment: Mapping[str, str], log: int) -> Forked:
    """Start `python -m easeml_experiments.peers` with these arguments, in a session of its own."""
    return _forked("methods", arguments, environment, log)


def _forked(kind: str, arguments: Sequence[str], environment: Mapping[str, str], log: int) -> Forked:
    parent = _parents.get(kind)
    if parent is None or not parent.is_alive:
        parent = _parents[kind] = Parent(kind)
    return Forked(parent, parent.ask({"arguments": list(arguments), "environment": dict(environment)}, log))
