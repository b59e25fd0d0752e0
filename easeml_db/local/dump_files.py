"""A dump as a file: which version of easeml made it, how many rows it has, and which roles its objects belong to.

The extension writes a row about itself into each dump (sql/security/dump.sql); pg_restore prints it without a server.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.errors import EasemlError, InvalidArgument, InvalidData
from easeml_db.local.processes import run_to_end
from easeml_loaders.passwords import guarded

FIRST_VERSION = "0.1.0"
"""The only release whose dumps do not say what made them."""
READ_ENCODINGS = ("UTF8", "SQL_ASCII")
VARIABLES = {"password": "PGPASSWORD", "require_auth": "PGREQUIREAUTH", "channel_binding": "PGCHANNELBINDING"}
"""Settings of a connection that go to a program by its environment."""
SECRETS = ("sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Of connection strings, for which libpq reads no environment variable."""


class DumpedRole(NamedTuple):
    """A role that objects of the dump belong to."""

    can_log_in: bool
    groups: tuple[str, ...]
    is_superuser: bool


@dataclass(frozen=True)
class Dump:
    """The facts that a dump records about itself."""

    path: Path
    version: str
    n_rows: int | None = None
    """Rows of schema easeml; None where the dump does not say."""
    roles: Mapping[str, DumpedRole] = field(default_factory=dict)


def read_dump(programs: Path, path: Path) -> Dump:
    """Return the facts that a dump records about itself. Raises InvalidData if pg_restore cannot read it, or it has no
    easeml.

    programs: the folder of pg_restore.
    """
    try:
        listed = run_program([programs / "pg_restore", "--list", path])
        printed = run_program(
            [programs / "pg_restore", "--data-only", "--schema=easeml", "--table=dumps", "--file=-", path]
        )
    except EasemlError as error:
        raise InvalidData(
            f"{path} is no backup that pg_restore can read",
            detail=error.detail,
            hint="Give a file of easeml backup or of pg_dump -Fc; plain SQL goes through psql.",
        ) from error
    if " EXTENSION - easeml " not in listed:
        raise InvalidData(f"{path} is the dump of a database without easeml", hint="Restore it with pg_restore itself.")
    if not _is_known_text(printed):
        raise InvalidData(
            f"{path}: its names of roles are not in UTF-8",
            hint="Make it again: easeml backup, or pg_dump -Fc --encoding=UTF8.",
        )
    return described(path, printed)


def _is_known_text(printed: str) -> bool:
    """Return whether bytes that were read as UTF-8 really are UTF-8."""
    try:
        printed.encode()
    except UnicodeEncodeError:
        return False
    return printed.isascii() or any(f"SET client_encoding = '{name}';" in printed for name in READ_ENCODINGS)


def described(path: Path, printed: str) -> Dump:
    """Return a dump as the COPY of its row in easeml.dumps describes it."""
    lines = iter(printed.split("\n"))  # names may have other ends of lines in them
    for line in lines:
        if line.startswith("COPY easeml.dumps ("):
            columns = line[line.index("(") + 1 : line.index(")")].split(", ")
            values = dict(zip(columns, next(lines).replace("\\\\", "\\").split("\t"), strict=False))
            roles = json.loads(values.get("roles", "{}"))
            return Dump(
                path, values["version"], sum(json.loads(values["n_rows"]).values()),
                {
                    name: DumpedRole(role["login"], tuple(role["groups"]), role["superuser"])
                    for name, role in roles.items()
                },
            )  # fmt: skip
    return Dump(path, FIRST_VERSION)


def run_program(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """Run a program of PostgreSQL and return its output, read as UTF-8 if possible, whatever the locale. Raises
    EasemlError with the program's complaint.
    """
    done = run_to_end(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    if done.returncode != 0:
        name = Path(command[0]).name
        raise EasemlError(f"{name} failed", detail=shown(done.stderr) or f"code {done.returncode}")
    return done.stdout


def complaint_of(command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """Run a program of PostgreSQL; return what it complains of if it fails, else nothing."""
    done = run_to_end(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    return (done.stderr or f"code {done.returncode}") if done.returncode != 0 else ""


def shown(text: str) -> str:
    """Return the end of a program's complaint, with what is no UTF-8 replaced."""
    return "\n".join(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").splitlines()[-12:])


def without_password(dsn: str, environment: Mapping[str, str], **changed: str) -> tuple[str, dict[str, str]]:
    """Return a connection string for a program's arguments, which all users of a machine can read, and its environment
    with the password.

    Raises InvalidArgument for another secret, which cannot be handed on so.
    """
    parts = {**conninfo_to_dict(guarded(dsn)), **changed}
    if secret := next((name for name in SECRETS if parts.get(name)), None):
        raise InvalidArgument(
            f"--dsn has {secret}, which all users of this machine could read while pg_dump or pg_restore runs",
            hint="Put it into a service of ~/.pg_service.conf, and give --dsn 'service=NAME ...'.",
        )
    # Programs of an older PostgreSQL refuse a demand in the string, and pass over it in the environment.
    moved = {variable: parts.pop(name) for name, variable in VARIABLES.items() if parts.get(name) is not None}
    return make_conninfo("", **parts), {**environment, **{name: str(value) for name, value in moved.items()}}
