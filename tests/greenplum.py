"""Greenplum clusters for tests: a real one where EASEML_TEST_GREENPLUM names its coordinator, else a database that
looks like one of two segments.

What looks like a cluster has the tables of one, under the names that Greenplum gives, and a column gp_segment_id. What
is said to it is what a cluster is told, but for what only Greenplum understands: how tables are distributed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from easeml_db.postgres.nodes.greenplum import connections, facts, store
from easeml_db.postgres.nodes.greenplum.dialects import server_of
from tests.fixtures.databases import temporary_database
from tests.fixtures.sessions import Session
from tests.nodes import NODE_ROLE, let_read

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

DSN = "EASEML_TEST_GREENPLUM"
N_SEGMENTS = 2
DISTRIBUTION = re.compile(r"\s*DISTRIBUTED BY \(\w+\)")
SPOTS = "i AS id, nullif(i % 3, 1) + sin(i) / 9 AS x, ARRAY[i, i]::real[] AS unused"
# A table of what looks like a cluster has its segments as a column.
DISTRIBUTION_OF = """
CREATE OR REPLACE FUNCTION easeml_segment.distribution_of(relation oid, OUT is_plain boolean, OUT clause text,
    OUT columns text[]) LANGUAGE sql STABLE AS $$
    SELECT c.relkind = 'r', ''::text, ARRAY['id'] FROM pg_class c WHERE c.oid = $1 $$
"""
SAID = "PostgreSQL 9.4.26 (Greenplum Database 6.24.3 build commit:25d3498a)"
# As that explains a unit.
ONE_SEGMENT = ["Gather Motion 1:1  (slice1; segments: 1)", "  ->  GroupAggregate"]
CATALOG = """
SET allow_system_table_mods TO on;
CREATE TABLE pg_catalog.gp_segment_configuration (content integer, role "char");
INSERT INTO pg_catalog.gp_segment_configuration SELECT k, 'p' FROM generate_series(-1, %s) k;
GRANT SELECT ON pg_catalog.gp_segment_configuration TO PUBLIC;
RESET allow_system_table_mods
"""


# Greenplum's function takes no time to wait for.
BREAK = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %s AND datname = current_database()
"""


def make_role(cluster: Session) -> None:
    """Make the role by which coordinators reach a cluster."""
    if not cluster.values("SELECT 1 FROM pg_roles WHERE rolname = %s", NODE_ROLE):
        cluster.execute(f"CREATE ROLE {NODE_ROLE} LOGIN")
    cluster.execute(f"GRANT easeml_segment TO {NODE_ROLE}")


def make_lookalike(database: Session, n_segments: int = N_SEGMENTS) -> None:
    """Have a database look like a cluster."""
    for statement in (CATALOG % (n_segments - 1)).split(";"):
        database.execute(statement)
    database.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
    database.execute("SET check_function_bodies TO off")  # they name the catalog of Greenplum
    database.execute(DISTRIBUTION.sub("", facts.installation(SAID)))
    database.execute("RESET check_function_bodies")
    database.execute(DISTRIBUTION_OF)
    for table in ("keys", "datasets", "partitions", "version_blocks", "checkpoint_chunks"):
        database.execute(
            f"ALTER TABLE easeml_segment.{table}"
            f" ADD gp_segment_id integer GENERATED ALWAYS AS (segment_key %% {n_segments}) STORED".replace("%%", "%")
        )


def make_spots(cluster: Session, role: str) -> None:
    """Make a distributed table of 9,000 rows, public.spots, which a role may read, and let it make tables beside it."""
    end = "DISTRIBUTED BY (id)" if DSN in os.environ else ""
    place = "" if DSN in os.environ else f", i % {N_SEGMENTS} AS gp_segment_id"
    cluster.execute(f"CREATE TABLE public.spots AS SELECT {SPOTS}{place} FROM generate_series(1, 9000) i {end}")
    if not cluster.values("SELECT 1 FROM pg_roles WHERE rolname = %s", role):
        cluster.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
    cluster.execute(sql.SQL("GRANT SELECT ON public.spots TO {}").format(sql.Identifier(role)))
    let_read(cluster, "public.spots", role)
    for each in (role, NODE_ROLE):
        name = sql.Identifier(each)
        cluster.execute(sql.SQL("GRANT CREATE, USAGE ON SCHEMA public TO {}").format(name))


@contextmanager
def lookalike(server: Embedded) -> Iterator[Session]:
    """A database that looks like a cluster; what only Greenplum understands is not said to it."""

    async def explained(*_: object) -> list[str]:
        return ONE_SEGMENT

    with temporary_database(server) as dsn, Session.open(dsn) as database, pytest.MonkeyPatch.context() as patch:
        make_lookalike(database)
        make_role(database)
        patch.setattr(connections, "OWN_SETTINGS", {})
        patch.setattr(store, "NEW_STATE", DISTRIBUTION.sub("", store.NEW_STATE))
        patch.setattr(store, "explained", explained)
        patch.setattr(facts, "server_of", lambda said: server_of(SAID))
        yield database


@contextmanager
def real(dsn: str) -> Iterator[Session]:
    """A database of its own on a cluster."""
    name = f"easeml_{uuid4().hex[:12]}"
    with Session.open(dsn) as cluster:
        cluster.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        with Session.open(make_conninfo(dsn, dbname=name)) as database:
            database.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
            database.execute(facts.installation(database.value("SELECT version()")))
            make_role(database)
            yield database
    finally:
        with Session.open(dsn) as cluster:  # one that was open all the while may have lost a segment
            cluster.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            cluster.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


@contextmanager
def cluster_of(server: Embedded) -> Iterator[Session]:
    """A cluster with at least two segments, by a superuser's session: the real one if there is one."""
    with real(os.environ[DSN]) if DSN in os.environ else lookalike(server) as cluster:
        yield cluster
