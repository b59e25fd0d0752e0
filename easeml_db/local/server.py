"""A private PostgreSQL for laptops, tests and demos, with its coordinator beside it.

One folder holds everything: the cluster, its socket, the logs. The server listens on that socket (closed to other
users) and on the loopback address with a password. PostgreSQL refuses to run as root, so root's processes are
started as the user that owns Debian's PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg

from easeml_db import __version__
from easeml_db.errors import InvalidArgument, NotFound, NotReady, ServerUnavailable, VersionMismatch
from easeml_db.local.binaries import find_binaries
from easeml_db.local.by_owner.updates import Update
from easeml_db.local.cluster import (
    SUPERUSER,
    check_path,
    choose_port,
    configure,
    initialise,
    is_initialised,
    postmaster_pid,
)
from easeml_db.local.coordinator_process import end_coordinator, find_coordinator, launch_coordinator
from easeml_db.local.facts_file import read_facts, remember
from easeml_db.local.folder_contents import check_entries, remove_entries
from easeml_db.local.lock_rights import close_private
from easeml_db.local.log_files import last_lines
from easeml_db.local.preparation import SERVICE_ROLE, prepare_database
from easeml_db.local.private_files import check_folder, make_private_folder, own_target
from easeml_db.local.processes import (
    package_build,
    run_as_server,
    server_environment,
    server_identity,
    server_ids,
    server_user,
)
from easeml_db.postgres import extension_files
from easeml_db.postgres.connection import connect_now

MAX_SOCKET_PATH = 107
DATABASE = "easeml"
# What a server says that finds processes of the one before it, and for how long it is tried again.
FORMER_IN_MEMORY, FORMER_SECONDS = "pre-existing shared memory block", 30.0


def default_folder() -> Path:
    """Return the default folder of the private server: the user's data folder, or /var/lib for root."""
    if os.geteuid() == 0:
        return Path("/var/lib/easeml/default")
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "easeml"


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
        """The folder of the socket: in the server's folder, or under a short name if libpq could not take that path,
        for it is too long or has a comma, where libpq begins the next host.
        """
        sockets = self.folder / "socket"
        if len(os.fsencode(sockets / ".s.PGSQL.65535")) <= MAX_SOCKET_PATH and "," not in str(sockets):
            return sockets
        return Path(tempfile.gettempdir()) / f"easeml-{sha256(str(self.folder).encode()).hexdigest()[:12]}"

    @property
    def _typed(self) -> str:
        """The folder as one types it at a shell."""
        return shlex.quote(str(self.folder))

    @property
    def facts(self) -> dict[str, Any]:
        """The stored facts of the server: its port and binaries. Raises NotReady before the first start."""
        return read_facts(self.folder)

    @property
    def port(self) -> int:
        """The port of the server. Raises NotReady before the first start."""
        port = self.facts.get("port")
        if port is None:
            raise NotReady(
                f"the private server in {self.folder} has never started",
                hint=f"Start it: easeml up --data {self._typed}",
            )
        return int(port)

    def dsn(self, user: str = SUPERUSER, database: str = DATABASE) -> str:
        """Return the connection string over the socket."""
        return psycopg.conninfo.make_conninfo(host=str(self.socket_folder), port=self.port, dbname=database, user=user)

    def tcp_dsn(self, database: str = DATABASE) -> str:
        """Return the connection string over the loopback address, where the server asks every role for its password."""
        return psycopg.conninfo.make_conninfo(host="127.0.0.1", port=self.port, dbname=database)

    # Server

    def environment(self) -> dict[str, str]:
        """Return the environment in which the server and its sessions run."""
        return server_environment()

    def is_running(self) -> bool:
        """Return whether the server runs."""
        if not is_initialised(self.cluster):
            return False
        if not self._binary("pg_ctl").exists():
            return postmaster_pid(self.cluster) is not None
        return run_as_server([self._binary("pg_ctl"), "status", "-D", self.cluster], check=False).returncode == 0

    def start(self, *, port: int | None = None) -> None:
        """Create the cluster if there is none, start it if it does not run, and wait until it answers."""
        if port is not None and not 1024 <= port <= 65535:
            raise InvalidArgument(f"port: expected 1024 to 65535, got {port}")
        self.prepare_folders()
        if not is_initialised(self.cluster):
            binaries = find_binaries()
            remember(self.folder, binaries=str(binaries))
            initialise(self.cluster, binaries)
        self._program("pg_ctl")
        if self.is_running():
            return
        remember(self.folder, port=choose_port(port, self.facts.get("port")))
        configure(self.cluster, port=self.port, socket_folder=self.socket_folder)
        self.start_cluster()

    def stop(self) -> None:
        """Stop the coordinator, then the server; sessions are disconnected, nothing recorded is lost."""
        self.stop_coordinator()
        if self.is_running():
            self.stop_cluster()

    def restart(self) -> None:
        """Restart the server alone; the coordinator reconnects by itself."""
        self.stop_cluster()
        self.start()

    def remove(self) -> None:
        """Stop the server and delete what is its own."""
        self.stop()
        shutil.rmtree(self.socket_folder, ignore_errors=True)
        remove_entries(self.folder)

    def prepare(self, *, n_slots: int | None = None) -> Update:
        """Create database, extension, service role and slots where they are missing; return what an update did."""
        extension_files.install(Path(self.facts["binaries"]))
        with connect_now(self.dsn(database="postgres")) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchall():
                connection.execute(f"CREATE DATABASE {DATABASE}")
        self.check_build()
        with connect_now(self.dsn()) as connection:
            update = prepare_database(connection, n_slots=n_slots)
            close_private(connection)
        self.remember_build()
        return update

    # Coordinator

    def coordinator_pid(self) -> int | None:
        """Return the process number of the running coordinator, None when there is none."""
        return find_coordinator(self.folder)

    def start_coordinator(self) -> int:
        """Start the coordinator in the background unless it runs; return its process number."""
        build = package_build()
        running = self.coordinator_pid()
        if running is not None and self.facts.get("coordinator_build") == build:
            return running
        self.stop_coordinator()  # sessions keep the code that they imported: a new build needs new ones
        remember(self.folder, coordinator_build=build)
        return launch_coordinator(self.folder, self.dsn(user=SERVICE_ROLE))

    def stop_coordinator(self, timeout_seconds: float = 10.0) -> None:
        """End the coordinator in good order, by force after the timeout (its run resumes at the next start)."""
        end_coordinator(self.folder, timeout_seconds)

    # Details

    def check_build(self) -> None:
        """Refuse a cluster whose extension has this version's number but other contents, because nothing could update
        it.
        """
        prepared = self.facts.get("extension_version"), self.facts.get("extension_build")
        if prepared[0] == __version__ and prepared[1] != extension_files.fingerprint():
            raise VersionMismatch(
                f"the private server in {self.folder} was made by another build of easeml {__version__}",
                hint=f"Keep what you need of it (easeml backup), then: easeml destroy --data {self._typed}, easeml up.",
            )

    def remember_build(self) -> None:
        """Note which build of the extensions is in the server."""
        remember(self.folder, extension_version=__version__, extension_build=extension_files.fingerprint())

    def prepare_folders(self) -> None:
        """Make the folders of data and socket, or check that no other user has prepared them, and that the first holds
        nothing else. Raises NotAllowed, and InvalidArgument for a path that PostgreSQL's programs cannot take.
        """
        check_path(self.folder)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        folder = own_target(self.folder)
        check_folder(folder)
        check_entries(folder)
        os.chown(folder, *server_ids(), follow_symlinks=False)
        make_private_folder(self.socket_folder)
        self._check_entry()

    def _check_entry(self) -> None:
        identity = server_identity()
        if identity:
            blocked = subprocess.run(["test", "-x", self.folder], check=False, **identity).returncode
            if blocked:
                raise InvalidArgument(
                    f"--data {self.folder}: user {server_user().pw_name}, as whom the server must run, cannot enter it",
                    hint="Choose a folder outside root's home, for example under /var/lib.",
                )

    def start_cluster(self) -> None:
        """Start the server with the settings that are written, and wait until it answers. Raises ServerUnavailable.

        Processes of a server that was killed take a moment to notice it, and no other starts before they are gone.
        """
        log, began = self.folder / "server.log", time.monotonic()
        while not self.has_started(log):
            lines = last_lines(log)
            if FORMER_IN_MEMORY not in lines or time.monotonic() > began + FORMER_SECONDS:
                raise ServerUnavailable("the private server did not start", detail=lines, hint=f"Its log: {log}")
            time.sleep(0.2)

    def has_started(self, log: Path) -> bool:
        """Start the server once, and wait until it answers; return whether it does."""
        # A server that recovers from a crash may take its time; one that has failed to start is not waited for.
        command: list[str | Path] = [self._program("pg_ctl"), "start", "-w", "-t", "300", "-D", self.cluster, "-l", log]
        return run_as_server(command, check=False, env=self.environment()).returncode == 0

    def stop_cluster(self) -> None:
        """Stop the server alone."""
        run_as_server([self._program("pg_ctl"), "stop", "-w", "-m", "fast", "-D", self.cluster])

    def _program(self, name: str) -> Path:
        """Return the path of a program. Raises NotFound if an update of the machine has taken it away."""
        path = self._binary(name)
        if path.exists():
            return path
        pid = postmaster_pid(self.cluster)
        runs = f"; its server still runs: kill -INT {pid} stops it" if pid else ""
        raise NotFound(
            f"there is no {name} in {path.parent}, the programs with which the private server in {self.folder} was"
            f" made{runs}",
            hint="Install that version of PostgreSQL again, since no other reads the data; or, if you do not need it:"
            f" easeml destroy --data {self._typed}",
        )

    def _binary(self, name: str) -> Path:
        return Path(self.facts["binaries"]) / name
