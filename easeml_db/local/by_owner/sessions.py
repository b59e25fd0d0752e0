"""Sessions with the rights of an owner, and no way back to a superuser's.

SET SESSION AUTHORIZATION in a superuser's session is no such thing: any function that runs there can reset it. So each
owner gets a login role for the moment, which is a member of the owner alone, and connects as that.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.errors import NotAllowed, ServerUnavailable
from easeml_db.postgres.connection import connect_now

Connection = psycopg.Connection[dict[str, Any]]
PREFIX = "easeml_for_owner_"
MARK = "a session of easeml restore or easeml install for one owner; the next one drops it"
LEFT = """SELECT rolname FROM pg_catalog.pg_roles a
    WHERE pg_catalog.shobj_description(a.oid, 'pg_authid') = %s
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity s WHERE s.usesysid = a.oid)"""
WHO = "SELECT session_user::text AS name, current_setting('is_superuser') AS is_superuser"


class OwnerSessions:
    """Connection strings by owner, for one database."""

    def __init__(self, connection: Connection, dsn: str) -> None:
        """connection: a superuser's, to the database that dsn names."""
        self.connection = connection
        self._places = [dsn, *_loopback(dsn, connection)]
        self._dsns: dict[str, str] = {}
        self._logins: list[str] = []

    def dsn_for(self, owner: str) -> str:
        """Return a connection string with an owner's rights alone. Raises NotAllowed if the server takes no password
        of a role that was made for it.
        """
        if owner not in self._dsns:
            self._dsns[owner] = self._login(owner)
        return self._dsns[owner]

    def _login(self, owner: str) -> str:
        role, password = PREFIX + secrets.token_hex(8), secrets.token_urlsafe(24)
        hashed = self.connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
        name = sql.Identifier(role)
        self._logins.append(role)
        for statement in (
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(hashed)),
            sql.SQL("COMMENT ON ROLE {} IS {}").format(name, sql.Literal(MARK)),
            sql.SQL("GRANT {} TO {}").format(sql.Identifier(owner), name),
            sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(self.connection.info.dbname), name),
        ):
            self.connection.execute(statement)
        return self._reached(role, password)

    def _reached(self, role: str, password: str) -> str:
        complaint = ""
        for place in self._places:
            dsn = make_conninfo(place, user=role, password=password)
            try:
                with connect_now(dsn) as session:
                    (who,) = session.execute(WHO).fetchall()
            except ServerUnavailable as error:
                complaint = complaint or str(error)
                continue
            if who == {"name": role, "is_superuser": "off"}:
                self._places = [place]
                return dsn
        raise NotAllowed(
            "the server takes no password of a role that was made for an owner's objects",
            detail=complaint,
            hint="What owners have written runs with their rights alone, in sessions of their own. Let such roles in:"
            " a line 'host all all 127.0.0.1/32 scram-sha-256' in pg_hba.conf and listen_addresses = 'localhost',"
            " or a --dsn whose host takes passwords.",
        )

    def end(self) -> None:
        """Drop the login roles."""
        for role in self._logins:
            drop_login(self.connection, role)


@contextmanager
def owner_sessions(dsn: str) -> Iterator[OwnerSessions]:
    """Open sessions for owners in a database during a block. dsn: a superuser's connection string."""
    with connect_now(dsn) as connection:
        for row in connection.execute(LEFT, [MARK]).fetchall():
            drop_login(connection, row["rolname"])
        sessions = OwnerSessions(connection, dsn)
        try:
            yield sessions
        finally:
            sessions.end()


def drop_login(connection: Connection, role: str) -> None:
    """Drop a login role with all that code of its owner made in its name. One that owns something in another database
    can only be locked out.
    """
    name = sql.Identifier(role)
    try:
        connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
        connection.execute(sql.SQL("DROP ROLE {}").format(name))
    except psycopg.errors.DependentObjectsStillExist:
        connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(name))


def _loopback(dsn: str, connection: Connection) -> list[str]:
    """Return the server of a socket by its loopback address, since sockets often ask for no password but the user's
    name.
    """
    host = str(conninfo_to_dict(dsn).get("host") or connection.info.host)
    if host and not host.startswith(("/", "@")):
        return []
    return [make_conninfo(dsn, host="127.0.0.1", port=connection.info.port)]
