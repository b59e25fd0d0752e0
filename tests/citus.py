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

from easeml_db.local.preparation import prepare_database
from easeml_db.postgres.nodes.citus.coordinator.statements import INSTALLATION
from tests.fixtures.databases import temporary_database
from tests.fixtures.servers import temporary_server
from tests.fixtures.sessions import Session
from tests.nodes import NODE_ROLE, let_read, make_reader, prepare_node, service_file

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

DSN = "EASEML_TEST_CITUS"
KINDS = ("recorded", "real") if DSN in os.environ else ("recorded",)
THROUGH_COORDINATOR = "coordinator"
# Of clusters whose workers are segments: reached one by one, or through the coordinator alone.
FORMS = tuple((kind, way) for kind in KINDS for way in ("direct", THROUGH_COORDINATOR))
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
    """Workers that are nodes of easeml, by their names; each is reached by the service pg_NAME.

    `contents` are their groups where that service leads to the coordinator of the cluster, None where it leads to each.
    """

    workers: Mapping[str, Session]
    contents: Mapping[str, int | None]

    def distribute(self, table: str, rows: str) -> None:
        """Make a distributed table of the rows of a query, which NODE_ROLE may read."""

    def drop(self, table: str) -> None:
        """Drop a distributed table."""

    def move(self, table: str) -> None:
        """Move a shard from the first worker to the second."""


def add_segments(control: Session, cluster: Cluster) -> None:
    """Make the workers of a cluster segments of a control server, with a slot each."""
    add = "SELECT easeml.add_segment(%s, service => %s, engine => 'citus', content => %s)"
    for name in cluster.workers:
        control.execute(add, [name, f"pg_{name}", cluster.contents[name]])
        control.execute("SELECT easeml.add_slots(1, %s)", [name])


class Lookalike:
    """Two nodes with a catalog as that of Citus, and their coordinator, where there is one. Every fourth row is in a
    shard, by its id."""

    def __init__(
        self, workers: Mapping[str, Session], *, through_coordinator: bool, coordinator: Session | None = None
    ) -> None:
        self.workers = workers
        self._coordinator = coordinator
        self._nodes = [*workers.values(), *([coordinator] if coordinator else [])]
        self.contents = {name: GROUPS[name] if through_coordinator else None for name in workers}
        for name, worker in workers.items():
            make_lookalike(worker, GROUPS[name], through_coordinator=through_coordinator)

    def distribute(self, table: str, rows: str) -> None:
        for worker in self._nodes:
            shown = "" if worker is self._coordinator else "LIMIT 0"  # a query there would be answered by the workers
            worker.execute(f"CREATE TABLE {table} AS SELECT * FROM ({rows}) r {shown}")
            let_read(worker, table)
            worker.execute("INSERT INTO pg_dist_partition VALUES (%s::text::regclass, 'h', 's', 1)", [table])
        for number in range(N_SHARDS):
            home = list(self.workers)[number % len(self.workers)]
            for worker in self._nodes:
                worker.execute(
                    "INSERT INTO pg_dist_shard VALUES (%s::text::regclass, %s)", [table, FIRST_SHARD + number]
                )
                worker.execute("INSERT INTO pg_dist_placement VALUES (%s, 1, %s)", [FIRST_SHARD + number, GROUPS[home]])
            make_shard(self.workers[home], table, number, rows)

    def drop(self, table: str) -> None:
        for worker in self._nodes:
            worker.execute("DELETE FROM pg_dist_placement WHERE shardid IN (SELECT shardid FROM pg_dist_shard)")
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
        let_read(second, name)
        second.execute("UPDATE pg_dist_placement SET groupid = 2 WHERE shardid = %s", [MOVED_SHARD])
        with first.transaction():
            first.execute("UPDATE pg_dist_placement SET groupid = 2 WHERE shardid = %s", [MOVED_SHARD])
            first.execute(f"DROP TABLE {name}")


def make_lookalike(session: Session, group: int, *, through_coordinator: bool = False) -> None:
    """Give a database the catalog of a node of a cluster; group 0 is the coordinator."""
    session.execute(CATALOG)
    session.execute("INSERT INTO pg_catalog.pg_dist_local_group VALUES (%s)", [group])
    if through_coordinator:
        for statement in KEYS.split(";"):
            session.execute(statement)


def make_shard(worker: Session, table: str, number: int, rows: str) -> None:
    """Make the table of a shard on a worker."""
    name = f"{table}_{FIRST_SHARD + number}"
    worker.execute(f"CREATE TABLE {name} AS SELECT * FROM ({rows}) r WHERE id % {N_SHARDS} = {number}")
    let_read(worker, name)


class Real:
    """A running cluster."""

    def __init__(self, coordinator: Session, workers: Mapping[str, Session], *, through_coordinator: bool) -> None:
        self.workers, self.coordinator = workers, coordinator
        numbers = dict(zip(workers, GROUPS.values(), strict=True))
        self.contents = {name: numbers[name] if through_coordinator else None for name in workers}

    def distribute(self, table: str, rows: str) -> None:
        self.drop(table)
        self.coordinator.execute(f"CREATE TABLE {table} AS {rows}")
        self.coordinator.execute("SELECT create_distributed_table(%s, 'id', shard_count => %s)", [table, N_SHARDS])
        let_read(self.coordinator, table)
        for worker in self.workers.values():  # of which the coordinator may know nothing
            make_reader(worker, self.coordinator.value("SELECT current_user::text"))

    def drop(self, table: str) -> None:
        self.coordinator.execute(f"DROP TABLE IF EXISTS {table}")

    def move(self, table: str) -> None:
        first, second = (conninfo_to_dict(worker.dsn) for worker in self.workers.values())
        self.coordinator.execute(
            "SELECT citus_move_shard_placement(max(shardid), %(host)s, %(port)s, %(to_host)s, %(to_port)s,"
            " 'block_writes') FROM citus_shards WHERE table_name = %(table)s::text::regclass AND nodename = %(host)s"
            " AND nodeport = %(port)s",
            {
                "host": first["host"], "port": int(first["port"]), "to_host": second["host"],
                "to_port": int(second["port"]), "table": table,
            },
        )  # fmt: skip


@contextmanager
def cluster_of(form: tuple[str, str], server: Embedded, folder: Path) -> Iterator[Cluster]:
    """A cluster of two workers, real or recorded, whose workers are reached, or its coordinator alone."""
    kind, way = form
    with ExitStack() as stack:
        if kind == "real":
            yield real_through_coordinator(stack, folder) if way == THROUGH_COORDINATOR else _real(stack)
            return
        servers = {"east": server, "west": stack.enter_context(temporary_server())}
        workers = {name: _database(stack, own) for name, own in servers.items()}
        dsns = {f"pg_{name}": prepare_node(worker) for name, worker in workers.items()}
        stack.enter_context(service_file(folder, dsns))
        yield Lookalike(workers, through_coordinator=way == THROUGH_COORDINATOR)


def _real(stack: ExitStack) -> Real:
    """The cluster of EASEML_TEST_CITUS, whose first two workers are the services of PGSERVICEFILE, pg_NAME each."""
    coordinator = stack.enter_context(Session.open(os.environ[DSN]))
    services = configparser.ConfigParser(interpolation=None)
    services.read(os.environ["PGSERVICEFILE"])
    _make_node_role(coordinator)
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
    return Real(coordinator, workers, through_coordinator=False)


def _make_node_role(coordinator: Session) -> None:
    """Make the role of nodes where it is missing; Citus makes it on all workers."""
    if not coordinator.rows("SELECT FROM pg_roles WHERE rolname = %s", NODE_ROLE):
        coordinator.execute(f"CREATE ROLE {NODE_ROLE} LOGIN")


def real_through_coordinator(stack: ExitStack, folder: Path) -> Real:
    """A database of its own on the cluster of EASEML_TEST_CITUS, of which only the coordinator is reached."""
    coordinator, sessions = _own_database(stack)
    workers = dict(zip(GROUPS, sessions.values(), strict=True))
    dsn = make_conninfo(coordinator.dsn, user=NODE_ROLE)
    stack.enter_context(service_file(folder, {f"pg_{name}": dsn for name in workers}))
    return Real(coordinator, workers, through_coordinator=True)


@contextmanager
def control_on_coordinator(form: tuple[str, str], folder: Path) -> Iterator[tuple[Session, Cluster]]:
    """A control server that is the coordinator of a cluster itself, and that cluster; the extension is there alone."""
    kind, way = form
    with ExitStack() as stack:
        if kind == "real":
            coordinator, sessions = _own_database(stack)
            workers = dict(zip(GROUPS, sessions.values(), strict=True))
            prepare_database(coordinator, n_slots=1)
            coordinator.execute(f"GRANT easeml_coordinator TO {NODE_ROLE}")
            coordinator.execute("RESET citus.enable_ddl_propagation")
            cluster: Cluster = Real(coordinator, workers, through_coordinator=way == THROUGH_COORDINATOR)
        else:
            server, *own = (stack.enter_context(temporary_server()) for _ in range(3))
            coordinator = _database(stack, server)
            prepare_database(coordinator, n_slots=1)
            workers = {name: _database(stack, each) for name, each in zip(GROUPS, own, strict=True)}
            make_lookalike(coordinator, 0)
            for worker in workers.values():
                prepare_node(worker)
            cluster = Lookalike(workers, through_coordinator=way == THROUGH_COORDINATOR, coordinator=coordinator)
        entrance = coordinator if form == ("real", THROUGH_COORDINATOR) else None
        dsns = {f"pg_{name}": (entrance or worker).dsn for name, worker in workers.items()}
        stack.enter_context(
            service_file(folder, {name: make_conninfo(dsn, user=NODE_ROLE) for name, dsn in dsns.items()})
        )
        yield coordinator, cluster


def _database(stack: ExitStack, server: Embedded) -> Session:
    """Make the database of a cluster on a server; return a superuser's session there."""
    with Session.open(server.dsn(database="postgres")) as session:
        session.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        session.execute(f"CREATE DATABASE {DATABASE}")
    return stack.enter_context(Session.open(server.dsn(database=DATABASE)))


@dataclass(frozen=True)
class CitusCoordinator:
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
def coordinator_of(server: Embedded) -> Iterator[CitusCoordinator]:
    """A cluster of two workers: a database of its own on the real one, or two that look like workers."""
    with ExitStack() as stack:
        yield _real_coordinator(stack) if DSN in os.environ else _lookalike_coordinator(stack, server)


def _lookalike_coordinator(stack: ExitStack, server: Embedded) -> CitusCoordinator:
    workers, dsns = {}, {}
    for group in (1, 2):
        worker = stack.enter_context(Session.open(stack.enter_context(temporary_database(server))))
        workers[group], dsns[group] = worker, prepare_node(worker)
        make_lookalike(worker, group, through_coordinator=True)
    return CitusCoordinator(dsns, workers, list(workers.values()), False)


def _real_coordinator(stack: ExitStack) -> CitusCoordinator:
    coordinator, workers = _own_database(stack)
    dsns = dict.fromkeys(workers, make_conninfo(coordinator.dsn, user=NODE_ROLE))
    return CitusCoordinator(dsns, workers, [coordinator], True)


def _own_database(stack: ExitStack) -> tuple[Session, dict[int, Session]]:
    """Make a database on all servers of the cluster; return a superuser's sessions there: that of the coordinator, and
    those of the workers by their groups."""
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
    _make_node_role(coordinator)
    coordinator.execute(f"GRANT easeml_segment TO {NODE_ROLE}")
    coordinator.execute(f"GRANT CREATE ON SCHEMA public TO {NODE_ROLE}")
    workers = {group: session for group, session in sessions.items() if group}
    for worker in workers.values():
        worker.execute("SET citus.enable_ddl_propagation TO off")
    return coordinator, workers
