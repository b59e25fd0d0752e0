"""Code of other roles that a relation brings along, and that PostgreSQL would run with the rights of whoever reads it.

Planning a query evaluates expressions of indexes, their predicates, statistics, partition keys and CHECKs; reading
evaluates policies and views. So the catalogs are asked before a relation of another role is read, and once more after.
What its owner adds in between runs, and all is rolled back if it is still there then. An owner who adds and removes
code within a reading runs it as the reader, and what it changes stays: a reader trusts the owner that far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

from easeml_plpy.packing.foreign_code_sql import CODE, OWNERS
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Command, Session, Statement, only_column

FRESH = "read committed", "read uncommitted"
"""Levels of isolation at which each statement sees the catalogs as they are, as the planner does."""


class Reader(NamedTuple):
    """How a session reads a relation: with the rights of which roles (its present one, and those that it can go back
    to), at which isolation level, and with what settings; whether the relation is one table of its own, and the name of
    a relation that is to be locked."""

    roles: Sequence[str]
    isolation: str
    jit: str
    work_mem: str
    is_own: bool
    locked: str | None


# Within a SECURITY DEFINER function nobody can go back; after SET ROLE or SET SESSION AUTHORIZATION code can.
READER = Statement(
    """
SELECT s.roles, current_setting('transaction_isolation') AS isolation, current_setting('jit') AS jit,
    current_setting('work_mem') AS work_mem,
    coalesce(a.rolname = ALL (s.roles) AND c.relkind = 'r' AND NOT c.relhassubclass AND NOT c.relrowsecurity
        AND NOT a.rolsuper, false) AS is_own,
    CASE WHEN a.rolname <> current_user AND c.relkind IN ('r', 'p', 'v') AND has_table_privilege(c.oid, 'SELECT')
        THEN format('%I.%I', n.nspname, c.relname) END AS locked
FROM (SELECT CASE WHEN current_user <> session_user AND current_setting('role') = 'none' THEN ARRAY[current_user::text]
    ELSE ARRAY[current_user, session_user, (SELECT pg_get_userbyid(b.usesysid)
        FROM pg_stat_get_activity(pg_backend_pid()) b)]::text[] END AS roles) s
LEFT JOIN pg_class c ON c.oid = $1 LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_roles a ON a.oid = c.relowner
""",
    ("oid",),
    Reader,
)
# The planner expects so many rows of these small tables that it would compile the query and fill memory with zeros.
SETTINGS = Command("SELECT set_config('jit', $1, true), set_config('work_mem', $2, true)", ("text", "text"))


class Owner(NamedTuple):
    """An owner of relations that are read: the first of these, whether the readers trust the owner, and in how many
    places of all relations code may stand."""

    relation: str
    owner: str
    is_trusted: bool
    n_places: int


class Code(NamedTuple):
    """Code that would run: what it is, where it stands, whose it is, whose the relation is, its version, and whether a
    reader distrusts it."""

    code: str
    place: str
    owner: str
    relation_owner: str
    version: str
    is_foreign: bool


PARAMETERS = ("oid", "text[]", "bool")
OWNERS_OF = Statement(OWNERS, PARAMETERS, Owner)
CODE_OF = Statement(CODE, PARAMETERS, Code)
IS_SUPER: Statement[bool] = Statement(
    "SELECT bool_or(rolsuper) AS is_super FROM pg_roles WHERE rolname = ANY ($1)", ("text[]",), only_column
)


@contextmanager
def reading(session: Session, relation: int, argument: str = "source", *, is_written: bool = False) -> Iterator[None]:
    """Refuse a relation with code of others, before it is read and after, and one whose code has changed meanwhile.
    Raises NotAllowed.
    """
    before = refuse_foreign_code(session, relation, argument, is_written=is_written)
    yield
    if refuse_foreign_code(session, relation, argument, is_written=is_written) != before:
        raise NotAllowed(
            f"{argument}: its indexes, partitions or functions were changed while it was used", hint="Call it again."
        )


def refuse_foreign_code(
    session: Session, relation: int, argument: str = "source", *, is_written: bool = False
) -> str | None:
    """Refuse a relation that runs code of others when this session reads it, or writes it; return a digest of the code
    that is there, None for a relation of one's own. Raises NotAllowed.
    """
    reader = session.row(READER, relation)
    if reader.is_own and not is_written:
        return None
    if reader.locked is not None:  # with its children and what views read: no policy, CHECK or view changes from here
        session.execute(f"LOCK TABLE {reader.locked} IN ACCESS SHARE MODE")
    owners, code = _found(session, relation, reader, is_written=is_written)
    if owners and not owners[0].is_trusted and reader.isolation not in FRESH:
        raise NotAllowed(
            f"{argument}: expected isolation level read committed, got {reader.isolation}: what {owners[0].owner}"
            f" changes in {owners[0].relation} would not be seen",
            hint="Call it in a transaction of its own.",
        )
    return _digest(owners, code, reader.roles[0], argument)


def _found(
    session: Session, relation: int, reader: Reader, *, is_written: bool = False
) -> tuple[list[Owner], list[Code]]:
    """Return what the catalogs say: the owners of relations that are not the reader's own, and their code."""
    session.run(SETTINGS, "off", "64kB")
    owners = session.rows(OWNERS_OF, relation, reader.roles, is_written)
    has_places = bool(owners and owners[0].n_places)
    code = session.rows(CODE_OF, relation, reader.roles, is_written) if has_places else []
    session.run(SETTINGS, reader.jit, reader.work_mem)
    return owners, code


def _digest(owners: Sequence[Owner], code: Sequence[Code], reader: str, argument: str) -> str | None:
    """Return a digest, None if all relations are the reader's own. Raises NotAllowed for code that is distrusted."""
    foreign = [found for found in code if found.is_foreign]
    if not foreign:
        return sha256(repr((owners, sorted(code))).encode()).hexdigest() if owners else None
    first, n_more = foreign[0], len(foreign) - 1
    raise NotAllowed(
        f"{argument}: expected a relation without code of other roles, got {first.code} of {first.owner} in"
        f" {first.place}",
        detail=f"It would run with the rights of {reader}." + (f" There are {n_more} others." if n_more else ""),
        hint=f"Let {first.relation_owner} drop it there, or copy the rows to a plain table; or log in as"
        f" {first.relation_owner}.",
    )


@entry_point(returns_failure=True)
def check_source(session: Session, relation: int, readers: Sequence[str] | None) -> str | None:
    """Check a relation for this session, or for roles that are to read it unattended, where a superuser reads only what
    superusers own; return a digest of its code. Raises NotAllowed.
    """
    if readers is None:
        return refuse_foreign_code(session, relation)
    reader = session.row(READER, relation)._replace(roles=readers)
    owners, code = _found(session, relation, reader)
    if owners and not owners[0].is_trusted and session.row(IS_SUPER, readers):
        raise NotAllowed(
            f"source: expected a relation of superusers alone, because a superuser would read it unattended, got"
            f" {owners[0].relation} of {owners[0].owner}",
            hint="Make the dataset as a role that is no superuser.",
        )
    return _digest(owners, code, readers[0], "source")
