"""Restoring a dump so that what owners have written runs with their own rights.

pg_restore runs once for each batch of entries: as the superuser for those of superusers and of the extension, in a
session of the owner for all others. What an owner's session cannot make is left out, and named.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from easeml_db.errors import EasemlError
from easeml_db.local.by_owner.archive import Entry, read_archive
from easeml_db.local.by_owner.order import Batch, batches, owner_of
from easeml_db.local.by_owner.sessions import PREFIX, OwnerSessions, owner_sessions
from easeml_db.local.dump_files import complaint_of, shown, without_password

Connection = psycopg.Connection[dict[str, Any]]
SUPERUSERS = "SELECT rolname FROM pg_catalog.pg_roles WHERE rolsuper"
LACKS = """SELECT n.nspname AS schema, k.privilege FROM (SELECT 'CREATE', unnest(%s::text[]) UNION
        SELECT 'USAGE', unnest(%s::text[])) k(privilege, schema)
    JOIN pg_catalog.pg_namespace n ON n.nspname = k.schema
    WHERE NOT pg_catalog.has_schema_privilege(%s::name, n.oid, k.privilege)"""
# While it works, an owner may create where it could not otherwise, since a superuser has given it a table there. What
# its functions do meanwhile must not use that, nor another session. PG_CONTEXT has one line where a statement comes
# from pg_restore itself.
GUARD = """
CREATE SCHEMA easeml_restoring;
CREATE FUNCTION easeml_restoring.refuse_others() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stack text;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    IF (position(chr(10) in stack) > 0 OR NOT starts_with(session_user::text, '{prefix}'))
        AND NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = session_user) THEN
        RAISE EXCEPTION 'only pg_restore changes objects during a restore';
    END IF;
END
$$;
CREATE EVENT TRIGGER easeml_restoring ON ddl_command_start EXECUTE FUNCTION easeml_restoring.refuse_others();
""".replace("{prefix}", PREFIX)
UNGUARD = """
DROP EVENT TRIGGER easeml_restoring;
DROP SCHEMA easeml_restoring CASCADE"""
ENTRY = re.compile(r"pg_restore: from TOC entry (\d+);")
ERROR = "pg_restore: error: "
WENT_ON = "errors ignored on restore"


class LeftOut(NamedTuple):
    """What was not restored, and why."""

    what: str
    owner: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what} of {self.owner}: {self.reason}"


@dataclass
class _Loading:
    """A restore under way."""

    path: Path
    programs: Path
    dsn: str
    connection: Connection
    sessions: OwnerSessions
    n_jobs: int
    schemas: Mapping[int, str]
    is_live: bool
    given: list[sql.Composed] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)

    def load(self, batch: Batch) -> None:
        """Restore a batch, except what needs an object that was left out. Raises EasemlError if an entry of the
        superuser fails.
        """
        entries = [entry for entry in batch.entries if not self._is_moot(entry)]
        if not entries:
            return
        if batch.owner is None and not self.is_live:
            if complaint := self._run(["--exit-on-error", f"--jobs={self.n_jobs}"], self.dsn, entries):
                raise failed(self.path, complaint)
            return
        # Only a single job that is verbose says which entry an error is about.
        if batch.owner is None:
            self._note(entries, self._run(["--verbose"], self.dsn, entries))
            return
        if not self.is_live:
            self._allow(batch.owner, entries)
        dsn = self.sessions.dsn_for(batch.owner)
        # An owner's materialized view may read tables of which it sees a part.
        options = ["--verbose", "--no-owner", "--enable-row-security", f"--role={batch.owner}"]
        self._note(entries, self._run(options, dsn, entries))

    def end(self) -> None:
        """Take back what was given for the moment."""
        for statement in self.given:
            self.connection.execute(statement)

    def _is_moot(self, entry: Entry) -> bool:
        if not entry.needs & self.missing:
            return False
        self.missing.add(entry.number)
        if entry.kind not in ("ACL", "COMMENT"):
            self.left_out.append(LeftOut(str(entry), entry.owner, "it needs what was left out"))
        return True

    def _run(self, options: Sequence[str], dsn: str, entries: Iterable[Entry]) -> str:
        """Run pg_restore for some entries; return its complaint."""
        target, environment = without_password(dsn, {**os.environ, "LC_ALL": "C"})
        with tempfile.NamedTemporaryFile("w", encoding="ascii", prefix="easeml-restore-") as listed:
            listed.write("".join(f"{entry.number};\n" for entry in entries))
            listed.flush()
            command: list[str | Path] = [self.programs / "pg_restore", *options, f"--use-list={listed.name}"]
            return complaint_of([*command, f"--dbname={target}", self.path], environment)

    def _allow(self, owner: str, entries: Sequence[Entry]) -> None:
        """Let an owner create where its objects lie, and look into the schemas of what they need."""
        places = sorted({entry.schema for entry in entries})
        needed = sorted({self.schemas[number] for entry in entries for number in entry.needs & self.schemas.keys()})
        for row in self.connection.execute(LACKS, [places, places + needed, owner]).fetchall():
            what = sql.SQL("{} ON SCHEMA {} {} {}")
            schema, role = sql.Identifier(row["schema"]), sql.Identifier(owner)
            right = sql.SQL(row["privilege"])
            self.connection.execute(sql.SQL("GRANT ") + what.format(right, schema, sql.SQL("TO"), role))
            self.given.append(sql.SQL("REVOKE ") + what.format(right, schema, sql.SQL("FROM"), role))

    def _note(self, entries: Sequence[Entry], complaint: str) -> None:
        """Record the entries that a program could not restore; all of them if it ended early."""
        errors = errors_by_entry(complaint)
        by_number = {entry.number: entry for entry in entries}
        if complaint and (WENT_ON not in complaint or not errors.keys() <= by_number.keys()):
            errors = dict.fromkeys(by_number, "pg_restore ended early: " + complaint.strip().splitlines()[-1])
        for number, reason in errors.items():
            self.missing.add(number)
            self.left_out.append(LeftOut(str(by_number[number]), by_number[number].owner, reason))


def errors_by_entry(complaint: str) -> dict[int, str]:
    """Return the first error of each entry that pg_restore complains of."""
    errors: dict[int, str] = {}
    number = -1
    for line in complaint.split("\n"):
        if found := ENTRY.match(line):
            number = int(found[1])
        elif line.startswith(ERROR):
            errors.setdefault(number, line.removeprefix(ERROR).removeprefix("could not execute query: "))
    return errors


def failed(path: Path, complaint: str) -> EasemlError:
    """Return the error that a dump could not be restored."""
    hint = "Nothing was changed. Mend what it names, and restore again."
    return EasemlError(f"{path} could not be restored", detail=shown(complaint), hint=hint)


def load_by_owner(dsn: str, programs: Path, path: Path, *, n_jobs: int, leaves: str = "") -> list[LeftOut]:
    """Restore a dump into an empty database, to which nobody else can connect; return what its owners could not make.

    dsn: a superuser's. leaves: the tag of a schema that is there already.
    Raises EasemlError with what failed of the superuser's, NotAllowed if no session of an owner can be opened.
    """
    entries = [entry for entry in read_archive(path) if entry.kind != "SCHEMA" or entry.tag != leaves]
    with owner_sessions(dsn) as sessions:
        sessions.connection.execute(GUARD.encode())
        left_out = _load(sessions, dsn, programs, path, entries, n_jobs=n_jobs, is_live=False)
        sessions.connection.execute(UNGUARD)
    return left_out


def load_live(sessions: OwnerSessions, dsn: str, programs: Path, path: Path) -> list[LeftOut]:
    """Restore a dump into a database that others use; return what could not be made, also of the superuser's. Owners
    get no rights for the moment.
    """
    return _load(sessions, dsn, programs, path, read_archive(path), n_jobs=1, is_live=True)


def open_for_owners(sessions: OwnerSessions, path: Path) -> None:
    """Open a session for each owner in a dump. Raises NotAllowed."""
    superusers = _superusers(sessions.connection)
    for owner in {owner_of(entry, superusers) for entry in read_archive(path)} - {None}:
        sessions.dsn_for(str(owner))


def _load(
    sessions: OwnerSessions, dsn: str, programs: Path, path: Path, entries: Sequence[Entry], *, n_jobs: int,
    is_live: bool,
) -> list[LeftOut]:  # fmt: skip
    schemas = {entry.number: entry.tag if entry.kind == "SCHEMA" else entry.schema for entry in entries}
    loading = _Loading(path, programs, dsn, sessions.connection, sessions, n_jobs, schemas, is_live)
    for batch in batches(entries, _superusers(sessions.connection)):
        loading.load(batch)
    loading.end()
    return loading.left_out


def _superusers(connection: Connection) -> set[str]:
    return {row["rolname"] for row in connection.execute(SUPERUSERS).fetchall()}
