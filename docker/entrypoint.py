#!/usr/bin/env python3
"""What a container of the image does: server, node, coordinator, console, passwords, health, or any other command; and
of the image with Citus: worker, a node that is one of a Citus cluster, and citus, the cluster's coordinator.

A server or a node is prepared on a socket that only its own user enters, with whatever is missing; only then does it
begin to listen, as process 1. So nobody meets a half prepared one, and a further start finds its work done.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from easeml_db.errors import EasemlError, InvalidArgument, NotAllowed, NotReady, VersionMismatch
from easeml_db.local.binaries import find_binaries, program_version
from easeml_db.local.cluster import SUPERUSER, configure, initialise, is_initialised
from easeml_db.local.facts_file import remember
from easeml_db.local.nodes import prepare_node, prepare_roles
from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.private_files import write_private
from easeml_db.local.server import Embedded
from easeml_db.postgres.connection import connect_now
from easeml_db.postgres.nodes.node_installation import LOCAL_DDL

SECRETS = {"superuser": 0o400, "service": 0o440}
"""Passwords by the name of their file: of the superuser for its owner alone, of the coordinator for its group, too."""
ACCESS = """\
# The server's own user is the superuser, without a password; everybody else says one, wherever it comes from.
local all {superuser} peer map=container
local all all scram-sha-256
host all all all scram-sha-256
"""
CITUS = "citus"
OF_CITUS = ("worker", CITUS)
HEALTH = {
    "server": "SELECT easeml.version() IS NOT NULL AS is_healthy",
    "node": "SELECT easeml_segment.version() IS NOT NULL AS is_healthy",
    "worker": "SELECT easeml_segment.version() IS NOT NULL AND citus_version() IS NOT NULL AS is_healthy",
    "citus": "SELECT count(*) > 0 AND bool_and(isactive) AS is_healthy FROM pg_dist_node WHERE groupid > 0",
    "coordinator": "SELECT easeml.has_live_coordinator() AS is_healthy",
}


@dataclass(frozen=True)
class Settings:
    """What the environment asks of a server: its folders, where it listens, slots at the first start, other servers and
    of what engine they are; and of a Citus cluster its hosts, the coordinator first."""

    data: Path
    secrets: Path
    sockets: Path
    listen: str
    port: int
    n_slots: int | None
    segments: Mapping[str, int]
    engine: str
    cluster: Sequence[str]


def settings_of(environment: Mapping[str, str]) -> Settings:
    """Read the settings. Raises InvalidArgument."""
    slots = environment.get("EASEML_SLOTS", "")
    return Settings(
        data=Path(environment.get("EASEML_DATA") or "/var/lib/easeml/data"),
        secrets=Path(environment.get("EASEML_SECRETS") or "/var/lib/easeml/secrets"),
        sockets=Path(environment.get("EASEML_SOCKETS") or "/run/postgresql"),
        listen=environment.get("EASEML_LISTEN") or "*",
        port=_number("EASEML_PORT", environment.get("EASEML_PORT") or "5432", 1024, 65535),
        n_slots=_number("EASEML_SLOTS", slots, 1, 1000) if slots else None,
        segments=segments_of(environment.get("EASEML_SEGMENTS", "")),
        engine=_engine(environment.get("EASEML_ENGINE") or "postgres"),
        cluster=tuple(environment.get("EASEML_CLUSTER", "").split()),
    )


def segments_of(text: str) -> dict[str, int]:
    """Return the slots of each segment that is another server: 'east:2 west:1'. Raises InvalidArgument."""
    n_slots: dict[str, int] = {}
    for word in text.split():
        name, _, count = word.partition(":")
        if not name or name in n_slots:
            raise InvalidArgument(f"EASEML_SEGMENTS: expected each segment once as NAME:SLOTS, got {word!r}")
        n_slots[name] = _number("EASEML_SEGMENTS", count, 1, 1000)
    return n_slots


def _engine(text: str) -> str:
    if text not in ("postgres", CITUS):
        raise InvalidArgument(f"EASEML_ENGINE: expected postgres or {CITUS}, got {text!r}")
    return text


def _number(name: str, text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidArgument(f"{name}: expected a number from {least} to {most}, got {text!r}")
    return int(text)


# Server and node


@dataclass(frozen=True)
class Container(Embedded):
    """The server of a container. One of a Citus cluster has a file of passwords, by which it reaches the others."""

    passwords: Path | None = None

    def environment(self) -> dict[str, str]:
        return super().environment() | ({"PGPASSFILE": str(self.passwords)} if self.passwords else {})


def serve(kind: str, settings: Settings) -> NoReturn:
    """Prepare the server or node, then become it."""
    if os.geteuid() == 0:
        raise NotAllowed(
            "PostgreSQL refuses to run as root", hint="Leave the user of the container as the image has it."
        )
    if kind == CITUS and len(settings.cluster) < 2:
        raise InvalidArgument(
            f"EASEML_CLUSTER: expected the hosts of coordinator and workers, got {' '.join(settings.cluster)!r}"
        )
    _end_on_signals()
    server = Container(settings.data, passfile() if kind in OF_CITUS else None)
    server.prepare_folders()
    claim(settings.data)
    passwords = {name: read_secret(settings.secrets, name) for name in SECRETS}
    make_cluster(server, settings)
    more = {"shared_preload_libraries": "'citus'"} if kind in OF_CITUS else {}
    if kind in OF_CITUS:
        keep_passwords({SUPERUSER: passwords["superuser"], SERVICE_ROLE: passwords["service"]})
    configure(server.cluster, port=settings.port, socket_folder=server.socket_folder, listen="", more=more)
    log = server.folder / "server.log"
    log.unlink(missing_ok=True)
    try:
        server.start_cluster()
        _prepare(kind, server, settings, passwords)
    finally:
        if server.is_running():
            server.stop_cluster()
        if log.exists():  # such as recovery after a crash, into the log of the container
            sys.stderr.write(log.read_text(encoding="utf-8", errors="replace"))
    configure(
        server.cluster, port=settings.port, socket_folder=settings.sockets, listen=settings.listen, socket_mode="0777",
        more=more,
    )  # fmt: skip
    postgres = Path(server.facts["binaries"]) / "postgres"
    os.execve(postgres, [str(postgres), "-D", str(server.cluster)], server.environment())


def claim(folder: Path) -> None:
    """Keep other containers away from this folder until this process and the server that it becomes have ended: the
    process number in PostgreSQL's pid file means nothing in another container. Raises NotAllowed."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise NotAllowed(
            f"another container works on {folder}", hint="Give each server a volume of its own."
        ) from error
    os.set_inheritable(descriptor, True)


def make_cluster(server: Embedded, settings: Settings) -> None:
    """Make the data directory where there is none; one of another PostgreSQL is refused. Raises VersionMismatch."""
    binaries = find_binaries()
    remember(server.folder, binaries=str(binaries), port=settings.port)
    if not is_initialised(server.cluster):
        initialise(server.cluster, binaries)
    if "access" not in server.facts:  # later, the rules are those that administrators wrote
        user = pwd.getpwuid(os.geteuid()).pw_name
        write_private(server.cluster / "pg_hba.conf", ACCESS.format(superuser=SUPERUSER))
        write_private(server.cluster / "pg_ident.conf", f"container {user} {SUPERUSER}\n")
        (server.folder / "password").unlink(missing_ok=True)  # that of initdb: the secret takes its place
        remember(server.folder, access="scram")
    made = (server.cluster / "PG_VERSION").read_text(encoding="ascii").strip()
    if made != (available := str(program_version(binaries / "postgres"))):
        raise VersionMismatch(
            f"the volume was made by PostgreSQL {made}, this image has {available}",
            hint="Write a backup with the former image (easeml backup) and restore it into a new volume.",
        )


def _prepare(kind: str, server: Embedded, settings: Settings, passwords: Mapping[str, str]) -> None:
    """Create what is missing and bring the extension to the version of the image."""
    try:
        if kind in ("node", "worker"):
            server.check_build()
            prepare_node(server)
            server.remember_build()
        elif kind == CITUS:
            prepare_roles(server)
        else:
            is_first = "extension_version" not in server.facts  # later, the slots are those that administrators set
            server.prepare(n_slots=settings.n_slots if is_first else None)
    except VersionMismatch as error:
        raise VersionMismatch(
            str(error), detail=error.detail, hint="Take the image that the volume was made with, or an empty volume."
        ) from error
    with connect_now(server.dsn()) as connection:
        connection.execute(LOCAL_DDL)
        set_password(connection, SUPERUSER, passwords["superuser"])
        set_password(connection, SERVICE_ROLE, passwords["service"])
        if kind == "server":
            add_segments(connection, settings)
        if kind in OF_CITUS:
            connection.execute("CREATE EXTENSION IF NOT EXISTS citus")
        if kind == CITUS:
            add_workers(connection, settings.cluster, settings.port)


def add_segments(connection: psycopg.Connection[Any], settings: Settings) -> None:
    """Add other servers as segments with slots, each by the service pg_NAME, where they are missing."""
    there = {row["segment_name"] for row in connection.execute("SELECT segment_name FROM easeml.segments")}
    add = "SELECT easeml.add_segment(%s, service => %s, engine => %s)"
    for name, n_slots in settings.segments.items():
        if name not in there:
            with connection.transaction():
                connection.execute(add, [name, f"pg_{name}", settings.engine])
                connection.execute("SELECT easeml.add_slots(%s, %s)", [n_slots, name])


def add_workers(connection: psycopg.Connection[Any], hosts: Sequence[str], port: int) -> None:
    """Make a Citus cluster of this server and of workers that run, where they are missing in it."""
    there = {row["nodename"] for row in connection.execute("SELECT nodename FROM pg_dist_node")}
    coordinator, *workers = hosts
    if coordinator not in there:
        connection.execute("SELECT citus_set_coordinator_host(%s, %s)", [coordinator, port])
    for worker in workers:
        if worker not in there:
            connection.execute("SELECT citus_add_node(%s, %s)", [worker, port])


def set_password(connection: psycopg.Connection[Any], role: str, password: str) -> None:
    """Set a role's password; the server and its log see the SCRAM verifier alone."""
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(verifier)))


def _end_on_signals() -> None:
    """Make SIGTERM and SIGINT end this process in good order, which process 1 ignores by default."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


# Passwords


def make_passwords(folder: Path) -> None:
    """Draw the passwords that are missing, each into a file of its own."""
    for name, mode in SECRETS.items():
        if not (folder / name).exists():
            _keep(folder / name, secrets.token_urlsafe(24), mode)


def choose_password(folder: Path, name: str, password: str) -> None:
    """Store a password that was chosen; servers take it over at their next start. Raises InvalidArgument."""
    if name not in SECRETS:
        raise InvalidArgument(f"passwords: expected one of {', '.join(SECRETS)}, got {name!r}")
    if not password:
        raise InvalidArgument(f"passwords {name}: expected a password on standard input, got none")
    _keep(folder / name, password, SECRETS[name])


def _keep(path: Path, password: str, mode: int) -> None:
    write_private(path, password)
    path.chmod(mode)


def read_secret(folder: Path, name: str) -> str:
    """Return a password. Raises NotReady where there is none."""
    try:
        password = (folder / name).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise NotReady(
            f"secret {name}: {folder / name} cannot be read: {error.strerror}",
            hint="Run a container with the command passwords on that volume first, or put a secret there.",
        ) from error
    if not password:
        raise InvalidArgument(f"secret {name}: expected a password, and {folder / name} is empty")
    return password


# Coordinator and console


def coordinate(arguments: list[str], settings: Settings) -> NoReturn:
    """Become the coordinator; its passwords go into a file that libpq reads, each for its server alone: that of node
    NAME is in folder nodes/NAME beside the secrets. Lines of a secret pgpass, for tenants whose datasets are refreshed,
    come after them."""
    more = read_secret(settings.secrets, "pgpass") + "\n" if (settings.secrets / "pgpass").exists() else ""
    nodes = settings.secrets.parent / "nodes"
    secrets_by_host = {folder.name: folder for folder in sorted(nodes.iterdir())} if nodes.is_dir() else {}
    own_host = str(conninfo_to_dict(os.environ["EASEML_DSN"]).get("host") or "localhost")
    secrets_by_host[own_host] = settings.secrets
    lines = (line(host, SERVICE_ROLE, read_secret(folder, "service")) for host, folder in secrets_by_host.items())
    write_private(passfile(), "".join(lines) + more)
    os.environ["PGPASSFILE"] = str(passfile())
    os.execvp("easeml", ["easeml", "coordinator", *arguments])


def passfile() -> Path:
    """Return the file from which libpq reads the passwords of this process and of those that it starts."""
    return Path(os.environ.get("PGPASSFILE") or Path(tempfile.gettempdir()) / "easeml-pgpass")


def keep_passwords(passwords: Mapping[str, str]) -> None:
    """Write the passwords of a Citus cluster by role, for its servers, into the file that libpq reads."""
    write_private(passfile(), "".join(line("*", role, password) for role, password in passwords.items()))


def line(host: str, role: str, password: str) -> str:
    """Return a line of that file; libpq takes the name localhost for a socket in the default folder."""
    host = host if host == "*" else _escaped(host)
    return f"{host}:*:*:{role}:{_escaped(password)}\n"


def _escaped(password: str) -> str:
    return password.replace("\\", "\\\\").replace(":", "\\:")


def check_health(kind: str) -> int:
    """Return 0 where the server, the node, or a coordinator answers as it should, and 1 where not."""
    if kind not in HEALTH:
        raise InvalidArgument(f"health: expected one of {', '.join(HEALTH)}, got {kind!r}")
    with connect_now(os.environ["EASEML_DSN"], "easeml health") as connection:
        (row,) = connection.execute(HEALTH[kind]).fetchall()
    return 0 if row["is_healthy"] else 1


def main(arguments: list[str]) -> int:
    """Run the command in the arguments; return its exit status if it ends at all."""
    try:
        match arguments:
            case ["server" | "node" | "worker" | "citus" as kind]:
                serve(kind, settings_of(os.environ))
            case ["coordinator", *more]:
                coordinate(more, settings_of(os.environ))
            case ["console", *more]:
                os.execvp("easeml", ["easeml", "console", *more])
            case ["passwords"]:
                make_passwords(settings_of(os.environ).secrets)
            case ["passwords", name]:
                choose_password(settings_of(os.environ).secrets, name, sys.stdin.readline().rstrip("\n"))
            case ["health", kind]:
                return check_health(kind)
            case [command, *_]:
                os.execvp(command, arguments)
    except (EasemlError, psycopg.Error, OSError) as error:
        print(f"easeml: {error}", file=sys.stderr)
        for name in ("detail", "hint"):
            if remark := getattr(error, name, None):
                print(f"easeml: {remark}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
