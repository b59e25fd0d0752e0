"""Citus clusters for tests: a real one where EASEML_TEST_CITUS names its coordinator, and two nodes that look like one.

The nodes that look like workers have rows of the catalog as they were recorded on Citus 12.1.12, under the names that
Citus gives to its tables, and shards that are plain tables, as they are there. What Citus does besides is not there.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.postgres.delegated.statements import INSTALLATION
from tests.conftest import Session, temporary_database, temporary_server
from tests.nodes import NODE_ROLE, prepare_node, service_file

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

DSN = "EASEML_TEST_CITUS"
FORMS = ("recorded", "real") if DSN in os.environ else ("recorded",)
DATABASE = "shop"
N_SHARDS, FIRST_SHARD = 4, 102008
MOVED_SHARD = FIRST_SHARD + 2  # the last on the first worker
GROUPS = {"east": 1, "west": 2}
CATALOG = """
SET allow_system_table_mods TO on;
INSERT INTO pg_catalog.pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
VALUES (99999, 'citus', 10, 'pg_catalog'::regnamespace, false, '12.1-1');
CREATE TABLE pg_catalog.pg_dist_local_group (groupid integer);
CREATE TABLE pg_catalog.pg_dist_node (nodeid integer, groupid integer, nodename text, nodeport integer, noderole text);
CREATE TABLE pg_catalog.pg_dist_partition
    (logicalrelid regclass, partmethod "char", repmodel "char", colocationid integer);
CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint);
CREATE TABLE pg_catalog.pg_dist_placement (shardid bigint, shardstate integer, groupid integer);
GRANT SELECT ON pg_catalog.pg_dist_local_group, pg_catalog.pg_dist_node, pg_catalog.pg_dist_partition,
    pg_catalog.pg_dist_shard, pg_catalog.pg_dist_placement TO PUBLIC;
CREATE FUNCTION pg_catalog.shard_name(regclass, bigint) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT quote_ident(c.relname || '_' || $2) FROM pg_class c WHERE c.oid = $1 $$;
INSERT INTO pg_catalog.pg_dist_node VALUES (1, 0, '127.0.0.1', 9700, 'primary'), (2, 1, '127.0.0.1', 9701, 'primary'),
    (3, 2, '127.0.0.1', 9702, 'primary');
RESET allow_system_table_mods
"""

# What a unit is delegated by, as the catalog has it: every other shard is on the first worker.
KEYS = """
SET allow_system_table_mods TO on;
CREATE FUNCTION pg_catalog.get_shard_id_for_distribution_column(regclass, integer) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT 103000 + $2 % 32 $$;
RESET allow_system_table_mods;
CREATE SCHEMA easeml_worker;
CREATE TABLE easeml_worker.keys AS SELECT generate_series(1, 256) AS segment_key;
GRANT USAGE ON SCHEMA easeml_worker TO easeml_segment;
GRANT SELECT ON easeml_worker.keys TO easeml_segment;
INSERT INTO pg_dist_placement SELECT 103000 + k, 1, 1 + k % 2 FROM generate_series(0, 31) k
"""


class Cluster(Protocol):
    """Workers that are nodes of easeml, by their names; each is reached by the service pg_NAME."""

    workers: Mapping[str, Session]

    def distribute(self, table: str, rows: str) -> None:
        """Make a distributed table of the rows of a query, which NODE_ROLE may read."""

    def drop(self, table: str) -> None:
        """Drop a distributed table."""

    def move(self, table: str) -> None:
        """Move a shard from the first worker to the second."""


class Lookalike:
    """Two nodes with a catalog as that of Citus. Every fourth row is in a shard, by its id."""

    def __init__(self, workers: Mapping[str, Session]) -> None:
        self.workers = workers
        for name, worker in workers.items():
            make_lookalike(worker, GROUPS[name])

    def distribute(self, table: str, rows: str) -> None:
        for worker in self.workers.values():
            worker.execute(f"CREATE TABLE {table} AS SELECT * FROM ({rows}) r LIMIT 0")
            worker.execute(f"GRANT SELECT ON {table} TO {NODE_ROLE}")
            worker.execute("INSERT INTO pg_dist_partition VALUES (%s::text::regclass, 'h', 's', 1)", [table])
        for number in range(N_SHARDS):
            home = list(self.workers)[number % len(self.workers)]
            for worker in self.workers.values():
                worker.execute(
                    "INSERT INTO pg_dist_shard VALUES (%s::text::regclass, %s)", [table, FIRST_SHARD + number]
                )
                worker.execute("INSERT INTO pg_dist_placement VALUES (%s, 1, %s)", [FIRST_SHARD + number, GROUPS[home]])
            make_shard(self.workers[home], table, number, rows)

    def drop(self, table: str) -> None:
        for worker in self.workers.values():
            worker.execute("DELETE FROM pg_dist_placement")
            worker.execute("DELETE FROM pg_dist_shard")
            worker.execute("DELETE FROM pg_dist_partition")
            tables = [table, *(f"{table}_{FIRST_SHARD + number}" for number in range(N_SHARDS))]
            worker.execute(f"DROP TABLE IF EXISTS {', '.join(tables)}")

    def move(self, table: str) -> None:
        first, second = self.workers.values()
        name = f"{table}_{MOVED_SHARD}"
        second.execute(f"CREATE TABLE {name} (LIKE {table})")
        with (
            first.cursor().copy(f"COPY {name} TO STDOUT") as out,
            second.cursor().copy(f"COPY {name} FROM STDIN") as into,
        ):
            for piece in out:
                into.write(piece)
        second.execute(f"GRANT SELECT ON {name} TO {NODE_ROLE}")
        second.execute("UPDATE pg_dist_placement SET groupid = 2 WHERE shardid = %s", [MOVED_SHARD])
        with first.transaction():
            first.execute("UPDATE pg_dist_placement SET groupid = 2 WHERE shardid = %s", [MOVED_SHARD])
            first.execute(f"DROP TABLE {name}")


def make_lookalike(session: Session, group: int) -> None:
    """Give a database the catalog of a node of a cluster; group 0 is the coordinator."""
    session.execute(CATALOG)
    session.execute("INSERT INTO pg_catalog.pg_dist_local_group VALUES (%s)", [group])


def make_shard(worker: Session, table: str, number: int, rows: str) -> None:
    """Make the table of a shard on a worker."""
    name = f"{table}_{FIRST_SHARD + number}"
    worker.execute(f"CREATE TABLE {name} AS SELECT * FROM ({rows}) r WHERE id % {N_SHARDS} = {number}")
    worker.execute(f"GRANT SELECT ON {name} TO {NODE_ROLE}")


class Real:
    """A running cluster."""

    def __init__(self, coordinator: Session, workers: Mapping[str, Session]) -> None:
        self.workers, self._coordinator = workers, coordinator

    def distribute(self, table: str, rows: str) -> None:
        self.drop(table)
        self._coordinator.execute(f"CREATE TABLE {table} AS {rows}")
        self._coordinator.execute("SELECT create_distributed_table(%s, 'id', shard_count => %s)", [table, N_SHARDS])
        self._coordinator.execute(f"GRANT SELECT ON {table} TO {NODE_ROLE}")

    def drop(self, table: str) -> None:
        self._coordinator.execute(f"DROP TABLE IF EXISTS {table}")

    def move(self, table: str) -> None:
        first, second = (conninfo_to_dict(worker.dsn) for worker in self.workers.values())
        self._coordinator.execute(
            "SELECT citus_move_shard_placement(max(shardid), %(host)s, %(port)s, %(to_host)s, %(to_port)s,"
            " 'block_writes') FROM citus_shards WHERE table_name = %(table)s::text::regclass AND nodename = %(host)s"
            " AND nodeport = %(port)s",
            {
                "host": first["host"], "port": int(first["port"]), "to_host": second["host"],
                "to_port": int(second["port"]), "table": table,
            },
        )  # fmt: skip


@contextmanager
def cluster_of(form: str, server: Embedded, snapshot: Path, folder: Path) -> Iterator[Cluster]:
    """A cluster of two workers, real or recorded."""
    with ExitStack() as stack:
        if form == "real":
            yield _real(stack)
            return
        workers = {}
        for name, own in (("east", server), ("west", stack.enter_context(temporary_server(snapshot)))):
            with Session.open(own.dsn(database="postgres")) as session:
                session.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
                session.execute(f"CREATE DATABASE {DATABASE}")
            workers[name] = Session.open(own.dsn(database=DATABASE))
            stack.callback(workers[name].close)
        dsns = {f"pg_{name}": prepare_node(worker) for name, worker in workers.items()}
        stack.enter_context(service_file(folder, dsns))
        yield Lookalike(workers)


def _real(stack: ExitStack) -> Real:
    """The cluster of EASEML_TEST_CITUS, whose first two workers are the services of PGSERVICEFILE, pg_NAME each."""
    coordinator = stack.enter_context(Session.open(os.environ[DSN]))
    services = configparser.ConfigParser(interpolation=None)
    services.read(os.environ["PGSERVICEFILE"])
    if not coordinator.rows("SELECT FROM pg_roles WHERE rolname = %s", NODE_ROLE):
        coordinator.execute(f"CREATE ROLE {NODE_ROLE} LOGIN")
    workers = {}
    for service in services.sections()[:2]:
        place = {key: services[service][key] for key in ("host", "port", "dbname")}
        worker = stack.enter_context(Session.open(make_conninfo(os.environ[DSN], **place)))
        worker.execute("SET citus.enable_ddl_propagation TO off")
        worker.execute("CREATE EXTENSION IF NOT EXISTS easeml_segment CASCADE")
        worker.execute(f"GRANT easeml_segment TO {NODE_ROLE}")
        worker.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}")
        worker.execute("SELECT easeml_segment.release()")
        workers[service.removeprefix("pg_")] = worker
    return Real(coordinator, workers)


@dataclass(frozen=True)
class Delegated:
    """A cluster of which coordinators of easeml reach the coordinator only, by one connection string for all.

    `workers` are a superuser's sessions there, by the group of each; `entrances` lead to where sessions of slots are.
    What looks like a worker is its own entrance: it is told what the coordinator of a cluster is.
    """

    dsns: Mapping[int, str]
    workers: Mapping[int, Session]
    entrances: list[Session]
    is_real: bool

    @contextmanager
    def undelegated(self, group: int) -> Iterator[None]:
        """Have what looks like a worker be the coordinator, where Citus runs calls that it does not delegate."""
        move = "UPDATE pg_catalog.pg_dist_local_group SET groupid = %s"
        self.workers[group].execute(move, [0])
        try:
            yield
        finally:
            self.workers[group].execute(move, [group])


@contextmanager
def delegated_cluster(server: Embedded) -> Iterator[Delegated]:
    """A cluster of two workers: a database of its own on the real one, or two that look like workers."""
    with ExitStack() as stack:
        yield _real_delegated(stack) if DSN in os.environ else _lookalike_delegated(stack, server)


def _lookalike_delegated(stack: ExitStack, server: Embedded) -> Delegated:
    workers, dsns = {}, {}
    for group in (1, 2):
        worker = stack.enter_context(Session.open(stack.enter_context(temporary_database(server))))
        workers[group], dsns[group] = worker, prepare_node(worker)
        make_lookalike(worker, group)
        for statement in KEYS.split(";"):
            worker.execute(statement)
    return Delegated(dsns, workers, list(workers.values()), False)


def _real_delegated(stack: ExitStack) -> Delegated:
    name, dsn = f"easeml_{uuid4().hex[:12]}", os.environ[DSN]
    with Session.open(dsn) as cluster:
        found = "SELECT groupid, nodename AS host, nodeport AS port FROM pg_dist_node WHERE noderole = 'primary'"
        places = {row.pop("groupid"): make_conninfo(dsn, **row) for row in cluster.rows(f"{found} ORDER BY groupid")}
    sessions = {}
    for group, place in places.items():
        admin = stack.enter_context(Session.open(place))
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        stack.callback(admin.execute, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        sessions[group] = stack.enter_context(Session.open(make_conninfo(place, dbname=name)))
        sessions[group].execute("CREATE EXTENSION citus")
    coordinator, *_ = sessions.values()
    for group, place in places.items():
        at = conninfo_to_dict(place)
        add = "citus_add_node" if group else "citus_set_coordinator_host"
        coordinator.execute(f"SELECT {add}(%s, %s)", [at["host"], int(at["port"])])
    for statement in INSTALLATION:
        coordinator.execute(statement)
    if not coordinator.rows("SELECT FROM pg_roles WHERE rolname = %s", NODE_ROLE):
        coordinator.execute(f"CREATE ROLE {NODE_ROLE} LOGIN")
    coordinator.execute(f"GRANT easeml_segment TO {NODE_ROLE}")
    workers = {group: session for group, session in sessions.items() if group}
    for worker in workers.values():
        worker.execute("SET citus.enable_ddl_propagation TO off")
    dsns = dict.fromkeys(workers, make_conninfo(coordinator.dsn, user=NODE_ROLE))
    return Delegated(dsns, workers, [coordinator], True)
