"""Sessions on the coordinator of a Greenplum cluster that are about one of its segments."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from easeml_db.errors import NotReady
from easeml_db.postgres.connection import connect
from easeml_db.postgres.nodes.greenplum.facts import check_key
from easeml_db.postgres.nodes.greenplum.statements import GreenplumSegment
from easeml_db.postgres.nodes.greenplum.store import GreenplumStore

# Of the settings that sessions on nodes have, those that PostgreSQL 9.4 knows; the rest is Greenplum's own.
KNOWN_SETTINGS = ("statement_timeout", "lock_timeout")
# Processes of segments keep Python, its packages and decoded rows for as long as the session lasts. ORCA, the other
# planner, was never tried.
OWN_SETTINGS = {"optimizer": "off", "gp_vmem_idle_resource_timeout": "0"}
KEY = """
SELECT min(segment_key) AS key, (SELECT count(*) FROM gp_segment_configuration c WHERE c.role = 'p' AND c.content >= 0)
    ::integer AS n_segments FROM easeml_segment.keys WHERE gp_segment_id = %s
"""


async def connect_segment(dsn: str, content: int, application_name: str, settings: Mapping[str, str]) -> GreenplumStore:
    """Open an autocommit session about a segment. Raises ServerUnavailable, NotFound, NotReady, psycopg.Error."""
    supported = {name: value for name, value in settings.items() if name in KNOWN_SETTINGS}
    connection = await connect(dsn, application_name, **supported)
    try:
        for name, value in OWN_SETTINGS.items():
            await connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        row = await (await connection.execute(KEY, [content])).fetchone() or {}
        check_key(content, row)
    except psycopg.Error as error:
        await connection.close()
        if error.sqlstate in ("42704", "42703"):  # no such setting, no such column
            raise NotReady("its server is no Greenplum cluster", hint="Name the cluster's coordinator.") from error
        raise
    except BaseException:
        await connection.close()
        raise
    return GreenplumStore(connection, GreenplumSegment(content, row["key"]))
