"""A server whose sessions find torch, scikit-learn and LightGBM in memory, so that no test pays for importing them.

A session of such a server runs the same code as a user's: PL/Python lies in a process that has forked from one in
which these libraries had been imported and put aside (`preloading/sitecustomize.py`). It starts with no module of
theirs, and takes a millisecond for an import that takes a user's session two seconds.

The servers of all workers fork from one process, too, which lives as long as one of them is connected to it: importing
takes a server three seconds of a processor, before it answers.

Sessions of one server share the seed of Python's hashes: a string knows its hash, so no fork can have another. So what
hangs on the order of a set is the same in all of them, and comparing them does not show it. Each run of the tests draws
another seed, and says it when something fails; tests/unit/plpy/server/test_hash_seeds.py compares processes of
different ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from easeml_db.errors import ServerUnavailable
from easeml_db.local.log_files import last_lines
from easeml_db.local.processes import server_identity, server_ids
from easeml_db.local.server import Embedded

SOURCES = Path(__file__).parent / "preloading"
HASH_SEED = "EASEML_TEST_HASH_SEED"  # the environment variable that says which one sessions share
# What the server has to be told; it takes effect when it starts.
SETTING = "ALTER SYSTEM SET shared_preload_libraries = 'plpython3'"
PARENT = "EASEML_TEST_PARENT"  # the environment variable with PL/Python's library, as preload.c knows it
ASKED_AT = "EASEML_TEST_SOCKET"  # and the one with the number of a socket, as sitecustomize.py knows it
PATIENCE_SECONDS = 300.0


class WarmServer(Embedded):
    """A private server that has large libraries in memory when it starts. Every copy of its folder is one, too."""

    @property
    def preloading(self) -> Path:
        """What the server loads; in its own folder, since its user need not be able to read the tests."""
        return self.folder / SOURCES.name

    def equip(self, parent: Path, library: str) -> None:
        """Put into its folder what it loads. The server must be told SETTING, and start again.

        parent: a folder for the process that it and all its copies fork from; library: PL/Python's.
        """
        self.preloading.mkdir()
        shutil.copy(SOURCES / "sitecustomize.py", self.preloading)
        program = self.preloading / "preload.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", program, SOURCES / "preload.c"], check=True)
        shutil.copytree(self.preloading, parent)
        told = {"folder": str(parent), "program": str(self._binary("postgres")), "library": library}
        (self.preloading / "parent.json").write_text(json.dumps(told), encoding="utf-8")

    def remove(self) -> None:
        """Delete what it loads, too, which is no private server's own."""
        self.stop()
        shutil.rmtree(self.preloading, ignore_errors=True)
        super().remove()

    def environment(self) -> dict[str, str]:
        """Load preload.so into the server, and have each Python begin with sitecustomize.py."""
        found = super().environment()
        return found | _preloaded(self.preloading, found) if self.preloading.exists() else found

    def has_started(self, log: Path) -> bool:
        """Start the server once, out of the process that has imported all; return whether it answers."""
        if not self.preloading.exists():
            return super().has_started(log)
        told = json.loads((self.preloading / "parent.json").read_text(encoding="utf-8"))
        parent = _parents.setdefault(told["folder"], Parent(**told))
        with log.open("ab") as printed:
            os.chown(log, *server_ids())
            own = self.environment() | {"PGDATA": str(self.cluster)}
            pid = parent.ask(own, printed, parents_own=super().environment())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _is_ready(self.cluster / "postmaster.pid", pid):
            if not _runs(pid) or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def _preloaded(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    paths = f"{folder}:{environment['PYTHONPATH']}"
    return {"PYTHONHASHSEED": os.environ[HASH_SEED], "LD_PRELOAD": str(folder / "preload.so"), "PYTHONPATH": paths}


def _is_ready(file: Path, pid: int) -> bool:
    """Say whether a server has written that it lets others connect; as pg_ctl finds out."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Parent:
    """The process that servers fork from. It ends when nobody is connected to it."""

    def __init__(self, folder: str, program: str, library: str) -> None:
        self._folder, self._program, self._library = Path(folder), program, library
        self._asks: socket.socket | None = None

    def ask(self, environment: Mapping[str, str], printed: BinaryIO, *, parents_own: Mapping[str, str]) -> int:
        """Start a server in an environment, which prints into a file; return its process number.

        parents_own: the environment of the parent, which is started where there is none.
        """
        for _ in range(3):
            asks = self._asks = self._asks or self._connected(parents_own)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(asks, [json.dumps(environment).encode()], [printed.fileno()])
                if answer := asks.recv(64):
                    return int(answer)
            self.leave()  # it has ended meanwhile
        raise ServerUnavailable("there is nothing to start servers", detail=last_lines(self._folder / "log"))

    def leave(self) -> None:
        """End the connection, if there is one."""
        if self._asks:
            self._asks.close()
        self._asks = None

    def _connected(self, environment: Mapping[str, str]) -> socket.socket:
        place = str(self._folder / "socket")
        asks = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with (self._folder / "lock").open("w") as lock:  # of several workers one starts it
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                asks.connect(place)
            except (FileNotFoundError, ConnectionRefusedError):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                    Path(place).unlink(missing_ok=True)
                    listener.bind(place)
                    listener.listen()
                    self._start(listener, environment)
                    asks.connect(place)
        return asks

    def _start(self, listener: socket.socket, environment: Mapping[str, str]) -> None:
        own = _preloaded(self._folder, environment) | {PARENT: self._library, ASKED_AT: str(listener.fileno())}
        # In the background: it outlives this process where another one is connected to it.
        command = ["/bin/sh", "-c", 'LD_PRELOAD="$1" "$0" &', self._program, own.pop("LD_PRELOAD")]
        with (self._folder / "log").open("wb") as log:
            subprocess.run(
                command, env={**environment, **own}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                pass_fds=[listener.fileno()], check=True, **server_identity(),
            )  # fmt: skip


_parents: dict[str, Parent] = {}


def leave_parents() -> None:
    """End the connections of this process."""
    while _parents:
        _parents.popitem()[1].leave()


def can_be_warm() -> bool:
    """Say whether this machine has a C compiler; without one, sessions of tests import all by themselves."""
    return shutil.which("cc") is not None
