"""Databases in which a restore works: beside the one to replace, marked by name and comment.

A database without that comment belongs to somebody else, whatever its name. Only one restore at a time works in a
cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from easeml_db.errors import InvalidArgument, NotAllowed

Connection = psycopg.Connection[dict[str, Any]]
SUFFIX = "_restoring"
MAX_NAME_BYTES = 63
LEAVING_SECONDS = 5.0
"""A session that was closed just now is listed for a while, and has its locks."""
LOCK = "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('easeml restore', 0)) AS is_mine"
UNLOCK = "SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended('easeml restore', 0))"
REMARK = """SELECT pg_catalog.shobj_description(d.oid, 'pg_database') AS remark FROM pg_catalog.pg_database d
    WHERE d.datname = %s"""
# Options of CREATE DATABASE for a database like another, and settings that these options cannot copy.
LIKE = """SELECT format('ENCODING %%L LC_COLLATE %%L LC_CTYPE %%L', pg_catalog.pg_encoding_to_char(d.encoding),
        d.datcollate, d.datctype) AS options,
    array_remove(ARRAY[
        CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_db_role_setting s WHERE s.setdatabase = d.oid)
            THEN 'settings (ALTER DATABASE or ROLE ... SET)' END,
        CASE WHEN d.datconnlimit NOT IN (-1, -2) THEN 'a connection limit' END,
        CASE WHEN d.dattablespace <> t.dattablespace THEN 'a tablespace' END,
        CASE WHEN to_jsonb(d) -> 'datlocprovider' <> to_jsonb(t) -> 'datlocprovider'
            OR concat(to_jsonb(d) ->> 'daticulocale', to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticurules')
            <> concat(to_jsonb(t) ->> 'daticulocale', to_jsonb(t) ->> 'datlocale', to_jsonb(t) ->> 'daticurules')
            THEN 'a locale provider or locale' END
    ], NULL) AS own
    FROM pg_catalog.pg_database d, pg_catalog.pg_database t WHERE d.datname = %s AND t.datname = 'template0'"""
# Whose a database is and what each role may do there, in the order of the grants, as statements for another database.
# The one in which a restore works has rights to copy only once it is closed: see give_rights.
RIGHTS = """WITH d AS (
    SELECT datdba, coalesce(datacl, pg_catalog.acldefault('d', datdba)) AS acl FROM pg_catalog.pg_database
    WHERE datname = %(name)s AND (datname <> %(to)s OR NOT datallowconn)
)
SELECT NULL AS grantor, -1 AS place, format('ALTER DATABASE %%I OWNER TO %%s', %(to)s::text, datdba::regrole)
    AS statement FROM d UNION ALL
SELECT NULL, 0, format('REVOKE ALL ON DATABASE %%I FROM PUBLIC, %%s', %(to)s::text, datdba::regrole) FROM d UNION ALL
SELECT CASE WHEN a.grantor <> d.datdba THEN pg_catalog.pg_get_userbyid(a.grantor) END, a.place,
    format('GRANT %%s ON DATABASE %%I TO %%s%%s', a.privilege_type, %(to)s::text,
        CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
        CASE WHEN a.is_grantable AND a.grantee <> d.datdba THEN ' WITH GRANT OPTION' ELSE '' END)
FROM d, pg_catalog.aclexplode(d.acl) WITH ORDINALITY a(grantor, grantee, privilege_type, is_grantable, place)
ORDER BY place"""
# An interrupted DROP DATABASE leaves a database to which nobody can connect, and which can only be dropped again.
HALF_DROPPED = "SELECT FROM pg_catalog.pg_database d WHERE d.datname = %s AND d.datconnlimit = -2"
SESSIONS = """SELECT count(*) AS n FROM pg_catalog.pg_stat_activity
    WHERE datname = %s AND pid <> pg_catalog.pg_backend_pid() AND backend_type = 'client backend'"""
END_SESSIONS = """SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
    WHERE datname = %s AND backend_type = 'client backend'"""


class Right(NamedTuple):
    """A statement about a database's owner or rights."""

    grantor: str | None
    """Who grants, if that is not the owner: only the grantor can take it back."""
    statement: str


@contextlib.contextmanager
def only_restore(connection: Connection) -> Iterator[None]:
    """Keep other restores out during a block. Raises NotAllowed while another is under way."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while not connection.execute(LOCK).fetchall()[0]["is_mine"]:
        if time.monotonic() > deadline:
            raise NotAllowed("another restore is under way on this server", hint="Wait until it is done.")
        time.sleep(0.1)
    try:
        yield
    finally:
        with contextlib.suppress(psycopg.Error):  # a connection that is gone has no locks
            connection.execute(UNLOCK)


def options_of(connection: Connection, name: str) -> str | None:
    """Return the options of CREATE DATABASE that make a database like an existing one, or None if there is none. Raises
    InvalidArgument for a name that is too long, NotAllowed for a database with settings that its successor would lack.
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidArgument(f"expected a database name of at most {MAX_NAME_BYTES} bytes, got {name!r}")
    row = connection.execute(LIKE, [name]).fetchone()
    if row is not None and row["own"]:
        raise NotAllowed(
            f"database {name!r} has {', '.join(row['own'])} of its own, and a restore would make it anew without",
            hint="Restore into a name that is free: dbname=NEW. Then set them there, and rename it."
            " Or drop this database first, and set them again afterwards.",
        )
    return str(row["options"]) if row is not None else None


def is_half_dropped(connection: Connection, name: str) -> bool:
    """Return whether a DROP DATABASE was interrupted, for example by a restore that was killed."""
    return bool(connection.execute(HALF_DROPPED, [name]).fetchall())


def place_beside(name: str) -> str:
    """Return the name of the database in which a restore into another works; it differs for all names."""
    if len((name + SUFFIX).encode()) <= MAX_NAME_BYTES:
        return name + SUFFIX
    suffix = f"_{hashlib.sha256(name.encode()).hexdigest()[:16]}{SUFFIX}"
    return name.encode()[: MAX_NAME_BYTES - len(suffix)].decode(errors="ignore") + suffix


def make_beside(connection: Connection, name: str, options: str | None) -> tuple[str, Sequence[Right]]:
    """Create the database in which a restore into another works, to which only superusers can connect; drop what a
    killed restore left. Return its name, and the owner and rights that it gets at the end.
    Raises NotAllowed if a database of that name was not made by such a restore, or if one is still at work in it.
    """
    beside = place_beside(name)
    mark = f"easeml restore makes database {name!r} of this; it drops it when it runs again"
    row = connection.execute(REMARK, [beside]).fetchone()
    if row is not None and row["remark"] != mark:
        raise NotAllowed(
            f"there is a database {beside!r}, which no restore into {name!r} made",
            hint="Rename it, or drop it if it is of no use; a restore works in a database of that name.",
        )
    if options is None:  # a restore may have been killed when it had dropped the database that this one was made like
        options = options_of(connection, beside)
    check_unused(connection, beside, "A restore that was killed is still at work there: wait until it is done.")
    public = sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO PUBLIC").format(sql.Identifier(beside))
    rights = rights_of(connection, name, beside) or rights_of(connection, beside, beside)
    drop(connection, beside)
    _make_closed(connection, beside, options or "", mark)
    return beside, rights or [Right(None, public.as_string(connection))]


def _make_closed(connection: Connection, beside: str, options: str, mark: str) -> None:
    """Create a database to which no role can connect that is no superuser, at no moment."""
    name = sql.Identifier(beside)
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ALLOW_CONNECTIONS false {}")
    try:
        connection.execute(statement.format(name, sql.SQL(options)))
        with connection.transaction():
            connection.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(name, mark))
            connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name))
            connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
    except BaseException:
        drop(connection, beside, force=True)
        raise


def rights_of(connection: Connection, name: str, to: str) -> Sequence[Right]:
    """Return what gives a database the owner and the rights of another; nothing if there is none to copy."""
    found = connection.execute(RIGHTS, {"name": name, "to": to}).fetchall()
    return [Right(row["grantor"], row["statement"]) for row in found]


def give_rights(connection: Connection, beside: str, rights: Sequence[Right]) -> None:
    """Give the finished database its owner and rights, closed to everybody, so that nobody is in the way when it gets
    its name. Raises NotAllowed if sessions in it do not end.
    """
    with connection.transaction():
        connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(beside)))
        for right in rights:
            if right.grantor is not None:
                connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(right.grantor)))
            connection.execute(right.statement.encode())
            connection.execute("RESET ROLE")
    connection.execute(END_SESSIONS, [beside])
    check_unused(connection, beside, "End them, and restore again.")


def remark_of(connection: Connection, name: str) -> str | None:
    """Return the comment on a database."""
    row = connection.execute(REMARK, [name]).fetchone()
    return row["remark"] if row is not None else None


def put_in_place(connection: Connection, beside: str, name: str, remark: str | None) -> None:
    """Give a database the name and comment of another, which is dropped by now, and open it."""
    connection.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(sql.Identifier(beside), remark))
    connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(beside), sql.Identifier(name)))
    connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(name)))


def let_in(connection: Connection, name: str, roles: Sequence[str]) -> None:
    """Let roles that a restore has made connect, as they could where the dump comes from."""
    may_connect = "SELECT pg_catalog.has_database_privilege(%s::text, %s::text, 'CONNECT') AS may_connect"
    for role in roles:
        if not connection.execute(may_connect, [role, name]).fetchall()[0]["may_connect"]:
            granted = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}")
            connection.execute(granted.format(sql.Identifier(name), sql.Identifier(role)))


def check_unused(connection: Connection, name: str, hint: str) -> None:
    """Refuse a database that has sessions. Raises NotAllowed."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while n_sessions := connection.execute(SESSIONS, [name]).fetchall()[0]["n"]:
        if time.monotonic() > deadline:
            raise NotAllowed(f"{n_sessions} session(s) use database {name!r}", hint=hint)
        time.sleep(0.1)


def drop(connection: Connection, name: str, *, force: bool = False) -> None:
    """Drop a database if it is there. force: end its sessions."""
    how = sql.SQL("WITH (FORCE)" if force else "")
    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} {}").format(sql.Identifier(name), how))
