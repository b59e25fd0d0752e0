"""A private PostgreSQL for laptops, tests and demos, with its coordinator beside it.

One folder holds everything: the cluster, its socket, the logs. The server listens on that socket (closed to other
users) and on the loopback address with a password. PostgreSQL refuses to run as root, so root's processes are
started as the user that owns Debian's PostgreSQL.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg

from easeml_db import __version__
from easeml_db.errors import InvalidArgument, NotFound, NotReady, ServerUnavailable, VersionMismatch
from easeml_db.postgres import extension_files
from easeml_db.postgres.connection import connect_now

MAX_SOCKET_PATH = 107
DATABASE = "easeml"
SUPERUSER = "postgres"
SERVICE_ROLE = "easeml_service"
MIN_MAJOR = 15
SETTINGS = {
    "shared_buffers": "'256MB'",
    "max_wal_size": "'4GB'",
    "max_connections": "200",
    "client_connection_check_interval": "'1s'",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
}

# Coordinators that this process started: they outlive it, so nobody waits for them, and Python would complain.
_children: list[subprocess.Popen[bytes]] = []


def default_folder() -> Path:
    """Where the private server lives unless told otherwise: the user's data folder, or /var/lib for root."""
    if os.geteuid() == 0:
        return Path("/var/lib/easeml/default")
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "easeml"


def find_binaries() -> Path:
    """Return the bin folder of the newest installed PostgreSQL that has PL/Python, or that of EASEML_BINDIR."""
    if chosen := os.environ.get("EASEML_BINDIR"):
        if not (Path(chosen) / "initdb").exists():
            raise InvalidArgument(f"EASEML_BINDIR: there is no initdb in {chosen}")
        return Path(chosen)
    found = []
    for folder in [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]:
        major = re.search(r"(\d+)", folder.parent.name)
        if major and (folder / "initdb").exists() and int(major[1]) >= MIN_MAJOR:
            control = extension_files.share_folder(folder) / "extension" / "plpython3u.control"
            if control.exists():
                found.append((int(major[1]), folder))
    if not found:
        raise NotFound(
            f"no PostgreSQL {MIN_MAJOR} or newer with PL/Python is installed",
            hint="On Debian or Ubuntu: apt-get install postgresql postgresql-plpython3-15 (or your version's number).",
        )
    return max(found)[1]


@dataclass(frozen=True)
class Embedded:
    """A private server in a folder."""

    folder: Path

    @property
    def cluster(self) -> Path:
        """The data directory of PostgreSQL."""
        return self.folder / "cluster"

    @property
    def socket_folder(self) -> Path:
        """Where the socket is: in the folder, or under a short name where that path would be too long."""
        own = self.folder / "socket"
        if len(str(own / ".s.PGSQL.65535")) <= MAX_SOCKET_PATH:
            return own
        return Path(tempfile.gettempdir()) / f"easeml-{sha256(str(self.folder).encode()).hexdigest()[:12]}"

    @property
    def facts(self) -> dict[str, Any]:
        """What is remembered of the server: its port and binaries. Raises NotReady before the first start."""
        path = self.folder / "easeml.json"
        if not path.exists():
            raise NotReady(f"there is no private server in {self.folder}", hint="Start one: easeml up")
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return facts

    def dsn(self, user: str = SUPERUSER, database: str = DATABASE) -> str:
        """Connection string over the socket."""
        return psycopg.conninfo.make_conninfo(
            host=str(self.socket_folder), port=self.facts["port"], dbname=database, user=user
        )

    # Server

    def is_running(self) -> bool:
        """Say whether the server runs."""
        if not (self.cluster / "PG_VERSION").exists():
            return False
        return self._run([self._binary("pg_ctl"), "status", "-D", self.cluster], check=False).returncode == 0

    def start(self, *, port: int | None = None) -> None:
        """Create the cluster if there is none, start it if it does not run, and wait until it answers."""
        if port is not None and not 1024 <= port <= 65535:
            raise InvalidArgument(f"port: expected 1024 to 65535, got {port}")
        self._make_folder()
        if not (self.cluster / "PG_VERSION").exists():
            self._initialise()
        if self.is_running():
            return
        self._remember(port=self._choose_port(port))
        self.socket_folder.mkdir(mode=0o700, exist_ok=True)
        self._own(self.socket_folder)
        self._configure()
        log = self.folder / "server.log"
        command: list[str | Path] = [self._binary("pg_ctl"), "start", "-w", "-t", "60", "-D", self.cluster, "-l", log]
        started = self._run(command, check=False, env=server_environment())
        if started.returncode != 0:
            tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:] if log.exists() else []
            raise ServerUnavailable("the private server did not start", detail="\n".join(tail), hint=f"Its log: {log}")

    def stop(self) -> None:
        """Stop the coordinator, then the server; sessions are disconnected, nothing recorded is lost."""
        self.stop_coordinator()
        if self.is_running():
            self._run([self._binary("pg_ctl"), "stop", "-w", "-m", "fast", "-D", self.cluster])

    def restart(self) -> None:
        """Restart the server alone; the coordinator reconnects by itself."""
        self._run([self._binary("pg_ctl"), "stop", "-w", "-m", "fast", "-D", self.cluster])
        self.start()

    def remove(self) -> None:
        """Stop and delete everything."""
        self.stop()
        shutil.rmtree(self.socket_folder, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def prepare(self, *, n_slots: int | None = None) -> None:
        """Create database, extension, service role and slots where they are missing."""
        extension_files.install(Path(self.facts["binaries"]))
        with connect_now(self.dsn(database="postgres")) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchall():
                connection.execute(f"CREATE DATABASE {DATABASE}")
        self._check_build()
        with connect_now(self.dsn()) as connection:
            prepare_database(connection, n_slots=n_slots)
        self._remember(extension_version=__version__, extension_build=extension_files.fingerprint())

    # Coordinator

    def coordinator_pid(self) -> int | None:
        """Process number of the running coordinator, None when there is none."""
        path = self.folder / "coordinator.pid"
        if not path.exists():
            return None
        pid = int(path.read_text(encoding="utf-8") or 0)
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return None
        return pid if b"coordinator" in words else None

    def start_coordinator(self) -> int:
        """Start the coordinator in the background unless it runs; return its process number."""
        build = package_build()
        running = self.coordinator_pid()
        if running is not None and self.facts.get("coordinator_build") == build:
            return running
        self.stop_coordinator()  # sessions keep the code that they imported: a new build needs new ones
        self._remember(coordinator_build=build)
        log = self.folder / "coordinator.log"
        command = [sys.executable, "-m", "easeml_db", "coordinator", "--dsn", self.dsn(user=SERVICE_ROLE)]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
                env=server_environment(), **self._identity(),
            )  # fmt: skip
        _children.append(process)
        (self.folder / "coordinator.pid").write_text(str(process.pid), encoding="utf-8")
        return process.pid

    def stop_coordinator(self, timeout_seconds: float = 10.0) -> None:
        """End the coordinator in good order, by force after the timeout (its run resumes at the next start)."""
        pid = self.coordinator_pid()
        if pid is not None:
            _end(pid, timeout_seconds)
        (self.folder / "coordinator.pid").unlink(missing_ok=True)

    # Details

    def _check_build(self) -> None:
        """Refuse a cluster whose extension has this version's number and other contents: nothing could update it."""
        known = self.facts.get("extension_version"), self.facts.get("extension_build")
        if known[0] == __version__ and known[1] != extension_files.fingerprint():
            raise VersionMismatch(
                f"the private server in {self.folder} was made by another build of easeml {__version__}",
                hint=f"Keep what you need of it (pg_dump), then: easeml down, rm -r {self.folder}, easeml up.",
            )

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._own(self.folder)
        identity = self._identity()
        if identity:
            blocked = subprocess.run(["test", "-x", self.folder], check=False, **identity).returncode
            if blocked:
                raise InvalidArgument(
                    f"--data {self.folder}: user {server_user().pw_name}, as whom the server must run, cannot enter it",
                    hint="Choose a folder outside root's home, for example under /var/lib.",
                )

    def _initialise(self) -> None:
        binaries = find_binaries()
        password = secrets.token_urlsafe(18)
        secret = self.folder / "password"
        secret.write_text(password, encoding="utf-8")
        secret.chmod(0o600)
        self._own(secret)
        self._remember(binaries=str(binaries))
        if self.cluster.exists():  # left by an initialisation that was interrupted
            shutil.rmtree(self.cluster)
        command: list[str | Path] = [
            binaries / "initdb", "-D", self.cluster, "-U", SUPERUSER, "--encoding=UTF8", "--locale=C.UTF-8",
            "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}",
        ]  # fmt: skip
        made = self._run(command, check=False)
        if made.returncode != 0:
            raise ServerUnavailable("the private server could not be created", detail=made.stderr.strip())

    def _configure(self) -> None:
        facts = self.facts
        lines = {**SETTINGS, "listen_addresses": "'127.0.0.1'", "port": str(facts["port"])}
        lines["unix_socket_directories"] = f"'{self.socket_folder}'"
        lines["unix_socket_permissions"] = "0700"
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        path = self.cluster / "easeml.conf"
        path.write_text(text, encoding="utf-8")
        self._own(path)
        main = self.cluster / "postgresql.conf"
        include = "include 'easeml.conf'\n"
        if include not in main.read_text(encoding="utf-8"):
            with main.open("a", encoding="utf-8") as file:
                file.write(include)

    def _choose_port(self, wanted: int | None) -> int:
        """The port asked for, else that of the last start, else a free one."""
        with contextlib.suppress(NotReady, KeyError):
            wanted = wanted or (self.facts["port"] if _is_free(self.facts["port"]) else None)
        if wanted is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                return int(probe.getsockname()[1])
        if not _is_free(wanted):
            raise InvalidArgument(f"port: {wanted} is taken on the loopback address", hint="Choose another --port.")
        return wanted

    def _remember(self, **facts: Any) -> None:
        known: dict[str, Any] = {}
        with contextlib.suppress(NotReady):
            known = self.facts
        path = self.folder / "easeml.json"
        path.write_text(json.dumps(known | facts), encoding="utf-8")

    def _binary(self, name: str) -> Path:
        return Path(self.facts["binaries"]) / name

    def _own(self, path: Path) -> None:
        if os.geteuid() == 0:
            user = server_user()
            os.chown(path, user.pw_uid, user.pw_gid)

    def _identity(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        user = server_user()
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _run(
        self, command: Sequence[str | Path], *, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        # Output goes to files: the server would keep a pipe open for as long as it lives.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=env,
                **self._identity(),
            )
            output.seek(0)
            text = output.read()
        if check and done.returncode != 0:
            raise ServerUnavailable(f"{Path(command[0]).name} failed", detail=text.strip())
        return subprocess.CompletedProcess(command, done.returncode, text, text)


def server_user() -> pwd.struct_passwd:
    """The unprivileged user as whom root starts the server."""
    try:
        return pwd.getpwnam("postgres")
    except KeyError as error:
        raise NotFound(
            "there is no user postgres to run the server as",
            hint="Install PostgreSQL, or run as a plain user.",
        ) from error


def package_build() -> float:
    """When the installed code changed last, in seconds since 1970."""
    import easeml_plpy

    folders = [Path(__file__).parent.parent, Path(easeml_plpy.__file__).parent]
    return max(path.stat().st_mtime for folder in folders for path in folder.rglob("*.py"))


def server_environment() -> dict[str, str]:
    """Environment of the server: this package's libraries first, threads that do not spin while they wait."""
    import easeml_plpy

    kept = {name: os.environ[name] for name in ("LANG", "TZ", "PATH") if name in os.environ}
    libraries = str(Path(easeml_plpy.__file__).resolve().parent.parent)
    return {
        **kept,
        "PYTHONPATH": libraries,
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def prepare_database(connection: psycopg.Connection[Any], *, n_slots: int | None = None) -> None:
    """Create the extension, the coordinator's login role and the slots, where they are missing."""
    connection.execute("CREATE EXTENSION IF NOT EXISTS easeml CASCADE")
    connection.execute("ALTER EXTENSION easeml UPDATE")
    if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [SERVICE_ROLE]).fetchall():
        connection.execute(f"CREATE ROLE {SERVICE_ROLE} LOGIN IN ROLE easeml_coordinator")
    has_slots = bool(connection.execute("SELECT FROM easeml.slots LIMIT 1").fetchall())
    if n_slots is not None or not has_slots:
        n_cores = len(os.sched_getaffinity(0))
        n_slots = n_slots or max(1, n_cores)
        connection.execute("SELECT easeml.set_slots(%s, %s)", [n_slots, max(1, n_cores // n_slots)])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _end(pid: int, timeout_seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
