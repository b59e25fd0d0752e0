"""Facts that a segment of a Greenplum cluster reports, the token that it serves, and the set-up of its database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from easeml_db import __version__
from easeml_db.errors import NotAllowed, NotFound
from easeml_db.postgres.extension_files import sql_folder
from easeml_db.postgres.nodes.greenplum.dialects import server_of

Facts = dict[str, Any]
Row = Mapping[str, Any]
SERVER: LiteralString = """
SELECT n.identity, (SELECT h.holder FROM easeml_segment.holders h WHERE h.content = {content}) AS holder,
    easeml_segment.version() AS extension, version() AS server, current_database()::text AS database,
    current_setting('port') AS port,
    (SELECT count(*) FROM gp_segment_configuration c WHERE c.role = 'p' AND c.content >= 0)::integer AS n_segments,
    (SELECT min(k.segment_key) FROM easeml_segment.keys k WHERE k.gp_segment_id = {content}) AS key
FROM easeml_segment.node n
"""
# Grouped by the key, as a unit: alone it would run on the coordinator.
ON_SEGMENT: LiteralString = """
SELECT z.facts FROM (SELECT k.segment_key, min(k.segment_key), easeml_segment.facts_of_segment() AS facts
    FROM easeml_segment.keys k WHERE k.gp_segment_id = {content} AND k.segment_key = {key}
    GROUP BY k.segment_key OFFSET 0) z
"""
HOLDER: LiteralString = "SELECT holder FROM easeml_segment.holders WHERE content = {content}"
HOLD: LiteralString = "INSERT INTO easeml_segment.holders (content, holder) VALUES ({content}, {holder})"


def server_query(content: int) -> sql.Composed:
    """Return the query of the facts that the cluster reports."""
    return sql.SQL(SERVER).format(content=sql.Literal(content))


def segment_query(content: int, cluster: Row) -> sql.Composed:
    """Return the query of the facts that a segment's Python reports. Raises NotFound if there is no such segment."""
    check_key(content, cluster)
    return sql.SQL(ON_SEGMENT).format(content=sql.Literal(content), key=sql.Literal(cluster["key"]))


def check_key(content: int, cluster: Row) -> None:
    """Refuse a segment that is not there. Raises NotFound."""
    if cluster["key"] is None:
        n_segments = cluster["n_segments"]
        raise NotFound(
            f"its cluster has no segment {content}, it has {n_segments}", hint=f"content: 0 to {n_segments - 1}."
        )


def facts_of(content: int, cluster: Row, segment: str) -> Facts:
    """Combine the facts of cluster and segment. Raises NotReady."""
    version = server_of(cluster["server"]).version
    names = ("holder", "extension", "database", "port")
    return {
        **{name: cluster[name] for name in names},
        "identity": f"{cluster['identity']}/{content}",
        "server": version,
        "greenplum": {"version": version, "content": content, "n_segments": cluster["n_segments"]},
        **json.loads(segment),
    }


def check_holder(held: str | None, token: str) -> bool:
    """Return whether a segment serves no token yet. Raises NotAllowed if it serves another one."""
    if held is not None and held != token:
        raise NotAllowed(
            "this segment of the cluster serves another segment already",
            hint="If that one is gone: DELETE FROM easeml_segment.holders WHERE content = ... there.",
        )
    return held is None


def hold_query(content: int, token: str) -> sql.Composed:
    """Return the statement that makes a segment serve a token."""
    return sql.SQL(HOLD).format(content=sql.Literal(content), holder=sql.Literal(token))


def holder_query(content: int) -> sql.Composed:
    """Return the query of the token that a segment serves."""
    return sql.SQL(HOLDER).format(content=sql.Literal(content))


async def look(connection: psycopg.AsyncConnection[dict[str, Any]], content: int) -> Facts:
    """Return the facts of a segment, read in the session for units, which then has imported what they need."""
    cluster = await (await connection.execute(server_query(content))).fetchone() or {}
    segment = await (await connection.execute(segment_query(content, cluster))).fetchone() or {}
    return facts_of(content, cluster, segment["facts"])


async def hold(connection: psycopg.AsyncConnection[dict[str, Any]], content: int, token: str) -> None:
    """Make a segment serve a token and no other. Raises NotAllowed."""
    row = await (await connection.execute(holder_query(content))).fetchone()
    if check_holder(None if row is None else row["holder"], token):
        await connection.execute(hold_query(content, token))


def installation(said: str) -> str:
    """Return the statements that make a database of a cluster ready whose server says this as version(). Their user is
    a superuser there. Raises NotReady."""
    folder = sql_folder() / "greenplum"
    is_distributed = folder / server_of(said).dialect.is_distributed
    text = (folder / "easeml_segment.sql").read_text(encoding="utf-8").replace("{version}", __version__)
    return text.replace("{is_distributed}", is_distributed.read_text(encoding="utf-8").strip())
