"""The data directory of the private server: made by initdb, with settings and a port of its own."""

from __future__ import annotations

import re
import secrets
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from easeml_db.errors import InvalidArgument, NotAllowed, ServerUnavailable
from easeml_db.local.lock_rights import MAX_LOCKS
from easeml_db.local.private_files import open_to_append, write_private
from easeml_db.local.processes import run_as_server

SUPERUSER = "postgres"
# What pg_ctl does not quote in paths, which it hands to a shell, and what settings and files of services cannot hold.
UNQUOTED = re.compile(r'["$`\\\x00-\x1f\x7f]')
SETTINGS = {
    "shared_buffers": "'256MB'",
    "max_wal_size": "'4GB'",
    "max_connections": "200",
    "max_locks_per_transaction": str(MAX_LOCKS),
    "client_connection_check_interval": "'1s'",
    # The cost on solid-state disks. With the default, a query of a tenant reads all its index entries to spare a few
    # pages.
    "random_page_cost": "1.1",
    "work_mem": "'16MB'",  # the units of a large run are sorted in memory
    "jit": "off",  # what it compiles takes longer than the queries of the views
    # Others may reach this server by TCP: log who connects, and keep sessions from holding locks or filling the disk.
    "password_encryption": "'scram-sha-256'",
    "authentication_timeout": "'20s'",
    "idle_in_transaction_session_timeout": "'10min'",
    "temp_file_limit": "'20GB'",
    "log_connections": "on",
    "log_disconnections": "on",
    "log_lock_waits": "on",
    "log_line_prefix": "'%m [%p] %q%u@%d '",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
}

BEFORE_17 = {"autovacuum_naptime": "'1s'"}
"""Only autovacuum frees pruned states there, of which units may leave some megabytes every tenth of a second."""


def check_path(folder: Path) -> None:
    """Refuse a path that PostgreSQL's programs cannot take. Raises InvalidArgument."""
    if UNQUOTED.search(str(folder)):
        raise InvalidArgument(
            "--data: expected a path without quotation marks, dollar signs, backticks, backslashes and control"
            f" characters, got {str(folder)!r}",
            hint="PostgreSQL's pg_ctl would hand them to a shell. Spaces and apostrophes are fine.",
        )


def is_initialised(cluster: Path) -> bool:
    """Return whether initdb has made this data directory."""
    return (cluster / "PG_VERSION").exists()


def postmaster_pid(cluster: Path) -> int | None:
    """Return the process number of the server that runs on a data directory, None when there is none."""
    try:
        pid = int((cluster / "postmaster.pid").read_text(encoding="utf-8").partition("\n")[0])
        is_its_own = Path(f"/proc/{pid}/cwd").readlink() == cluster.resolve()
    except (OSError, ValueError):
        return None
    return pid if is_its_own else None  # the number may be another process's by now


def initialise(cluster: Path, binaries: Path) -> None:
    """Make the data directory, and the file of its password. Raises ServerUnavailable, NotAllowed."""
    # initdb writes PG_VERSION long before it is done. So it works in a folder beside: an interrupt leaves no half-made
    # cluster. Each attempt has a folder of its own, since an interrupted one may still be at work: it removes what it
    # made.
    if cluster.exists():
        try:
            cluster.rmdir()
        except OSError as error:
            hint = "Look what it is; move it away, or choose another folder with --data."
            raise NotAllowed(f"{cluster} is no data directory of PostgreSQL, and not empty", hint=hint) from error
    for left in cluster.parent.glob(f"{cluster.name}.unfinished-*"):
        shutil.rmtree(left, ignore_errors=True)
    secret = cluster.parent / "password"
    write_private(secret, secrets.token_urlsafe(18))
    unfinished = cluster.with_name(f"{cluster.name}.unfinished-{secrets.token_hex(4)}")
    command: list[str | Path] = [
        binaries / "initdb", "-D", unfinished, "-U", SUPERUSER, "--encoding=UTF8", "--locale=C.UTF-8",
        "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}",
    ]  # fmt: skip
    made = run_as_server(command, check=False)
    if made.returncode != 0:
        raise ServerUnavailable("the private server could not be created", detail=made.stderr.strip())
    unfinished.rename(cluster)


def configure(
    cluster: Path,
    *,
    port: int,
    socket_folder: Path,
    listen: str = "127.0.0.1",
    socket_mode: str = "0700",
    more: Mapping[str, str] | None = None,
) -> None:
    """Write our settings into a file of their own, which postgresql.conf includes.

    listen: addresses in PostgreSQL's syntax, empty for none; socket_mode: who may open the socket; more: further
    settings by name, in the file's syntax.
    """
    by_version = BEFORE_17 if int((cluster / "PG_VERSION").read_text(encoding="utf-8")) < 17 else {}
    lines = {**SETTINGS, **by_version, **(more or {}), "listen_addresses": quoted(listen), "port": str(port)}
    in_list = str(socket_folder).replace('"', '""')
    lines["unix_socket_directories"] = quoted(f'"{in_list}"')
    lines["unix_socket_permissions"] = socket_mode
    write_private(cluster / "easeml.conf", "".join(f"{name} = {value}\n" for name, value in lines.items()))
    main = cluster / "postgresql.conf"
    include = "include 'easeml.conf'\n"
    if include not in main.read_text(encoding="utf-8"):
        with open(open_to_append(main), "a", encoding="utf-8") as file:
            file.write(include)


def quoted(value: object) -> str:
    """Return a value as a string of postgresql.conf, in which backslashes are escapes."""
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def choose_port(port: int | None, last: int | None) -> int:
    """Return the requested port, else that of the last start, else a free one. Raises InvalidArgument if taken."""
    if port is None and last is not None and _is_free(last):
        return last
    if port is None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])
    if not _is_free(port):
        raise InvalidArgument(f"port: {port} is taken on the loopback address", hint="Choose another --port.")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
