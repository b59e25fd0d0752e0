"""Jobs on workers of Citus of whose cluster only the coordinator is reached: each looks where it is.

That they come to the bytes of other nodes is in test_citus.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql

from easeml_db.errors import NotAllowed, SlotLost
from easeml_db.postgres.connection import connect
from easeml_db.postgres.nodes.citus.coordinator.work import CoordinatorWork
from easeml_db.postgres.nodes.node_store import Arrival
from easeml_db.postgres.nodes.node_works import node_work
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.on_nodes.temporary_rows import bring_rows, columns_of
from tests.citus import CitusCoordinator, coordinator_of
from tests.nodes import service_file

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

GROUP = "SELECT groupid FROM pg_catalog.pg_dist_local_group"
MAKE = """
CREATE FUNCTION public.make_places() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    CREATE TEMPORARY TABLE easeml_places (row tid, split text, part integer, bytes bytea) ON COMMIT DROP;
    RETURN 1;
END
$$
"""
PLACES = """
SELECT format('(%s,%s)', i / 100, 1 + i % 100)::tid AS row, CASE i % 2 WHEN 0 THEN 'it''s' END AS split, i AS part,
    convert_to('row ' || i, 'utf8') AS bytes FROM generate_series(0, 12000) i
"""
# What a worker refuses at its COMMIT, and not before.
TWINS = """
CREATE FUNCTION public.make_twins() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    CREATE TEMPORARY TABLE twins (i integer UNIQUE DEFERRABLE INITIALLY DEFERRED);
    INSERT INTO twins VALUES (1), (1);
    RETURN 1;
END
$$
"""
# What Citus 12.1.12 and 13.2.2 say then.
WARNING = """
CREATE FUNCTION public.make_twins() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING 'failed to commit transaction on 127.0.0.1:9701';
    RETURN 1;
END
$$
"""


@pytest.fixture(scope="module")
def cluster(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CitusCoordinator]:
    """Two workers, by the services pg_worker1 and pg_worker2."""
    with coordinator_of(private_server) as cluster:
        services = {f"pg_worker{group}": dsn for group, dsn in cluster.dsns.items()}
        with service_file(tmp_path_factory.mktemp("services"), services):
            yield cluster


def played(test: Callable[[CoordinatorWork], Awaitable[Any]], group: int = 1) -> Any:
    """What a test returns that works with a worker."""

    async def play() -> Any:
        node = Node(1 + group, f"w{group}", f"pg_worker{group}", f"token {group}", "citus", group)
        async with node_work(node) as work:
            assert isinstance(work, CoordinatorWork)
            return await test(work)

    return asyncio.run(play())


@pytest.mark.parametrize("group", [1, 2])
def test_what_is_said_reaches_the_worker_with_its_settings(cluster: CitusCoordinator, group: int) -> None:
    async def ask(work: CoordinatorWork) -> list[dict[str, Any]]:
        shown = f"SELECT g.groupid, current_setting('lock_timeout') AS waits, %s::text AS said FROM ({GROUP}) g"
        return await work.execute(shown, "it's 100%")

    assert played(ask, group) == [{"groupid": group, "waits": "10s", "said": "it's 100%"}]


def test_temporary_tables_of_a_transaction_are_filled_and_read_from_statement_to_statement(
    cluster: CitusCoordinator, database: Session
) -> None:
    """Rows come some thousand in a statement, also with places, which the driver has no type for."""
    database.execute(f"CREATE TABLE places AS {PLACES}")
    cluster.workers[1].execute(MAKE)
    types = ("tid", "text", "int4", "bytea")

    async def fill(work: CoordinatorWork) -> int:
        async with await connect(database.dsn, "test") as control, control.transaction():
            async with work.connection.transaction():
                await work.execute("SELECT public.make_places()")
                into = sql.SQL("pg_temp.easeml_places")
                await work.store.receive(control, Arrival(sql.SQL("TABLE public.places"), into, types))
                await control.execute("CREATE TEMPORARY TABLE easeml_places (LIKE public.places)")
                columns = await columns_of(control, "pg_temp.easeml_places")
                assert tuple(columns.values()) == ("tid", "text", "integer", "bytea")
                out = sql.SQL("SELECT * FROM pg_temp.easeml_places WHERE")
                await bring_rows(work, control, out, "pg_temp.easeml_places", columns, into)
            cursor = await control.execute("SELECT count(*) AS n FROM pg_temp.easeml_places")
            row: Any = await cursor.fetchone()
            assert row["n"] == 12001
            cursor = await control.execute(
                "SELECT count(*) AS n FROM (TABLE pg_temp.easeml_places EXCEPT ALL TABLE public.places) d"
            )
            row = await cursor.fetchone()
            return int(row["n"])

    assert played(fill) == 0


def test_a_job_that_finds_itself_on_another_worker_is_refused(cluster: CitusCoordinator) -> None:
    """What is refused so passes: the job begins anew, with a session that looks for its worker again."""

    async def ask(work: CoordinatorWork) -> None:
        for key in range(1, 257):
            work.store.worker = replace(work.store.worker, key=key)
            await work.execute(GROUP)

    async def stray(work: CoordinatorWork) -> None:
        work.store.worker = replace(work.store.worker, group=2)
        await work.execute(GROUP)

    with pytest.raises(SlotLost, match="segment w1: Citus ran this on worker 1, and it is for worker 2"):
        played(stray)
    if cluster.is_real:
        with pytest.raises(SlotLost, match="segment w1: Citus ran this on worker 2, and it is for worker 1"):
            played(ask)


def test_what_a_worker_could_not_commit_counts_as_lost(cluster: CitusCoordinator) -> None:
    """Citus takes what is sent there for a reading: it only warns that the worker could not commit."""
    cluster.workers[1].execute(TWINS if cluster.is_real else WARNING)

    async def write(work: CoordinatorWork) -> None:
        async with work.connection.transaction():
            await work.execute("SELECT public.make_twins()")

    with pytest.raises(SlotLost, match="could not commit"):
        played(write)


def test_a_unit_of_a_job_that_is_not_delegated_is_refused_on_the_coordinator(cluster: CitusCoordinator) -> None:
    """Citus delegates no call in a transaction, and says nothing."""

    async def train(work: CoordinatorWork) -> None:
        if cluster.is_real:
            async with work.connection.transaction():
                await work.unit("train_on_node", "{}", "{}")
        with cluster.undelegated(1):
            await work.unit("train_on_node", "{}", "{}")

    with pytest.raises(SlotLost, match="segment w1: Citus ran this on its coordinator, and it is for worker 1"):
        played(train)


def test_a_worker_that_serves_another_segment_is_refused(cluster: CitusCoordinator) -> None:
    async def ask(work: CoordinatorWork) -> None:
        await work.execute("SELECT easeml_segment.release()")
        await work.execute("SELECT easeml_segment.hold('of another')")

    played(ask)
    with pytest.raises(NotAllowed, match="segment w1: this node serves another segment already"):
        played(ask)
    cluster.workers[1].execute("SELECT easeml_segment.release()")
