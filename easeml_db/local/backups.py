"""A whole database as one file: schema easeml, the tables of tasks, and everything else that pg_dump includes."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from easeml_db.errors import InvalidArgument, NotAllowed, NotReady
from easeml_db.local.dump_files import Dump, read_dump, run_program, without_password
from easeml_db.postgres.connection import connect_now
from easeml_db.postgres.versions import EXTENSION


def back_up(dsn: str, programs: Path, path: Path, *, may_replace: bool = False) -> Dump:
    """Write a database, as of one instant, into a file that only its owner can read; return the file's facts. Runs
    continue meanwhile. The file appears only when it is complete. programs: the folder of pg_dump and pg_restore.
    Raises NotAllowed if the file exists, InvalidArgument for what is no file, EasemlError with the message of pg_dump.
    """
    path = _target(path)
    if path.exists() and not may_replace:
        raise NotAllowed(f"{path} is there already", hint="Give another name, or --overwrite.")
    if not path.parent.is_dir():
        raise InvalidArgument(f"there is no folder {path.parent}", hint="Make it, or give another FILE.")
    target, environment = without_password(dsn, os.environ)
    encoding = _encoding(dsn)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        os.close(_private(part))
        # Packed rows and states hardly shrink: the first level takes what there is to gain.
        command: list[str | Path] = [programs / "pg_dump", "--format=custom", "--compress=1", f"--file={part}"]
        if encoding != "SQL_ASCII":  # whose text is in no encoding that is known
            command += ["--encoding=UTF8"]
        run_program([*command, f"--dbname={target}"], environment)
        dump = read_dump(programs, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return Dump(path, dump.version, dump.n_rows, dump.roles)


def _target(path: Path) -> Path:
    """Return the place of the file, behind symbolic links. Raises InvalidArgument for a device, a pipe or a folder."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:
        raise InvalidArgument(f"{path} is a symbolic link that leads nowhere") from error
    if target.exists() and not target.is_file():
        hint = "A backup is written beside its place and moved there, so it needs a name in a folder."
        raise InvalidArgument(f"expected the name of a file, and {path} is a device, a pipe or a folder", hint=hint)
    return target


def _private(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise NotAllowed(f"cannot write into {path.parent}: {error.strerror}") from error


def _encoding(dsn: str) -> str:
    """Return the encoding of a database. Raises NotReady for one without easeml."""
    with connect_now(dsn) as connection:
        if not connection.execute(EXTENSION).fetchall():
            raise NotReady(
                "this database has no extension easeml", hint="Name another with --dsn, or use pg_dump for this one."
            )
        (row,) = connection.execute("SHOW server_encoding").fetchall()
    return str(row["server_encoding"])
