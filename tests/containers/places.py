"""The entrypoint of the image without an image: in a folder, as the user of the server, on ports of its own."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from easeml_db.local.cluster import SUPERUSER
from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.processes import server_identity, server_ids
from easeml_db.local.server import DATABASE
from tests.fixtures.sessions import PATIENCE_SECONDS, Session

ENTRYPOINT = Path(__file__).resolve().parents[2] / "docker" / "entrypoint.py"


@dataclass
class Place:
    """Folders as the volumes of a container, and what runs in it."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=lambda: free_port())
    log_number: int = 0

    def __post_init__(self) -> None:
        # The user of the server cannot read a clone in somebody's home.
        shutil.copy(ENTRYPOINT, self.folder / "entrypoint.py")
        for name in ("data", "sockets", "secrets"):
            (self.folder / name).mkdir(exist_ok=True)
            os.chown(self.folder / name, *server_ids())

    def environment(self, user: str = SUPERUSER) -> dict[str, str]:
        """What the compose files say, for this place; the connection is that of a health check in the container."""
        folder = self.folder
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LANG": "C.UTF-8",
            "EASEML_DATA": f"{folder}/data", "EASEML_SECRETS": f"{folder}/secrets",
            "EASEML_SOCKETS": f"{folder}/sockets", "EASEML_LISTEN": "127.0.0.1", "EASEML_PORT": str(self.port),
            "EASEML_DSN": make_conninfo(host=f"{folder}/sockets", port=self.port, dbname=DATABASE, user=user),
            **{name: os.environ[name] for name in ("EASEML_BINDIR",) if name in os.environ}, **self.settings,
        }  # fmt: skip

    def start(self, *arguments: str, told: str = "", **more: str) -> subprocess.Popen[bytes]:
        """Start the entrypoint with what it is told on standard input; its output goes to the next log."""
        self.log_number += 1
        with self.log.open("wb") as log, TemporaryFile() as told_in:
            told_in.write(told.encode())
            told_in.seek(0)
            return subprocess.Popen(
                [sys.executable, str(self.folder / "entrypoint.py"), *arguments], cwd="/", stdin=told_in,
                stdout=log, stderr=log, env=self.environment() | more, **server_identity(),
            )  # fmt: skip

    def run(self, *arguments: str, told: str = "", **more: str) -> int:
        """Run the entrypoint to its end; return its exit status."""
        return self.start(*arguments, told=told, **more).wait()

    @property
    def log(self) -> Path:
        """The log of the entrypoint that was started last."""
        return self.folder / f"{self.log_number}.log"

    @property
    def said(self) -> str:
        """What the entrypoint that was started last has said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def secret(self, name: str) -> str:
        """A password."""
        return (self.folder / "secrets" / name).read_text(encoding="utf-8")

    def dsn(self, user: str = SUPERUSER, password: str | None = None) -> str:
        """Connect as programs on the host do: by TCP, with a password."""
        if password is None:
            password = self.secret("superuser" if user == SUPERUSER else "service")
        return make_conninfo(host="127.0.0.1", port=self.port, dbname=DATABASE, user=user, password=password)

    def up(self, kind: str = "server", **more: str) -> subprocess.Popen[bytes]:
        """Start a server or node and wait until it listens."""
        process = self.start(kind, **more)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                pytest.fail(f"{kind} did not come up ({process.returncode}): {self.said}")
            try:
                psycopg.connect(self.dsn(SERVICE_ROLE), connect_timeout=2).close()
                return process
            except psycopg.OperationalError:
                time.sleep(0.1)

    def session(self) -> Session:
        """A session of the superuser."""
        return Session.open(self.dsn())


def down(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> int:
    """Stop a container as Docker does, by its stop signal; return the exit status."""
    process.send_signal(number)
    return process.wait(PATIENCE_SECONDS)


def free_port() -> int:
    """A port that no other test is given: outside the range of which the system gives."""
    while True:
        port = random.SystemRandom().randrange(15000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
