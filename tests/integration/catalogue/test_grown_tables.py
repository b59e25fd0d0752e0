"""A session keeps its plans: where tables have grown, the coordinator has all sessions plan anew."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row

from easeml_db.postgres.chores.replan_after_growth import LOOK_SECONDS, GrownTables
from easeml_db.postgres.sessions.slot_session import SETTINGS
from easeml_db.postgres.stores.store_session import StoreSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.sessions import Session

    Slot = psycopg.Connection[dict[str, Any]]

OPEN = "SELECT * FROM easeml.open_unit(%s)"
RECORDS = {
    "train": "SELECT easeml.record_training(%s, now(), 2.0, 10, 0.5, 0, repeat('a', 64), '\\x00')",
    "validate": "SELECT easeml.record_evaluation(%s, now(), 1, 'validation', '{}', 0)",
}
# Rows that were read from the first page of a table to its last; what is found by an index does not count.
READ = "SELECT sum(pg_stat_get_xact_tuples_returned(c)) AS n FROM unnest('{easeml.trials, easeml.slots}'::regclass[]) c"
STATISTICS = (
    "SELECT relname, relpages FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'r' ORDER BY 1"
)
MANY = "SELECT easeml.select_models('points', '{mlp}', n_configs => 500, max_epochs => 2)"


@pytest.fixture
def order(database: Session) -> dict[str, object]:
    """A unit of a running trial, the only one of the server, as its statistics know; no coordinator is there."""
    database.execute("CREATE TABLE points AS SELECT sin(i) AS a, sin(i) > 0.3 AS y FROM generate_series(1, 300) i")
    database.execute("SELECT easeml.create_dataset('points', 'points', '{a}', 'y', n_partitions => 2)")
    database.execute("SELECT easeml.select_models('points', '{mlp}', n_configs => 1, max_epochs => 2)")
    database.execute("UPDATE easeml.runs SET status = 'running'")
    database.execute("UPDATE easeml.trials SET status = 'running'")
    database.execute("VACUUM ANALYZE easeml.trials, easeml.runs, easeml.arms, easeml.slots")
    (found,) = database.rows("SELECT trial_id, lease_number FROM easeml.trials, easeml.coordinator_lease")
    where = {"step": 0, "slot_id": 1, "epoch": 1, "position": 0, "partition_number": 0, "seed": 0, "attempt": 1}
    return found | where


@pytest.fixture
def slot(database: Session) -> Iterator[Slot]:
    """A session with the settings of a slot's, that keeps each plan from the first time on."""
    settings = SETTINGS | {"plan_cache_mode": "force_generic_plan"}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    with psycopg.connect(database.dsn, autocommit=True, options=options, row_factory=dict_row) as session:
        yield session


def look(dsn: str) -> float:
    """Let a coordinator look at the tables once; return for how long it wants to rest."""

    async def once() -> float:
        tables = GrownTables(StoreSession(dsn))
        try:
            return await tables.take_turn()
        finally:
            await tables.close()

    return asyncio.run(once())


def n_read(slot: Slot, *statements: tuple[str, str]) -> int:
    """Count the rows that statements read from whole tables, in a transaction that leaves nothing behind."""
    with slot.transaction(force_rollback=True):
        (before,) = slot.execute(READ)
        for statement, argument in statements:
            slot.execute(statement, [argument])  # type: ignore[arg-type]
        (after,) = slot.execute(READ)
    return int(after["n"] - before["n"])


@pytest.mark.parametrize("kind", RECORDS)
def test_a_unit_reads_no_trials_of_others_that_came_since_its_plans_were_made(
    database: Session, slot: Slot, order: dict[str, object], kind: str
) -> None:
    text = json.dumps(order | {"kind": kind})
    unit = (OPEN, text), (RECORDS[kind], text)
    few = n_read(slot, *unit)
    database.execute(MANY)
    assert n_read(slot, *unit) > 500, "the plans are those of a small table"
    look(database.dsn)
    assert n_read(slot, *unit) <= few


def test_trials_of_a_transaction_that_is_open_count(database: Session, slot: Slot, order: dict[str, object]) -> None:
    text = json.dumps(order | {"kind": "train"})
    unit = (OPEN, text), (RECORDS["train"], text)
    few = n_read(slot, *unit)
    with database.transaction(force_rollback=True):
        database.execute(MANY)
        look(database.dsn)
        assert n_read(slot, *unit) <= few


def test_tables_are_left_alone_that_have_not_doubled(database: Session, order: dict[str, object]) -> None:
    database.execute(MANY)
    assert look(database.dsn) >= LOOK_SECONDS
    before = database.rows(STATISTICS)
    database.execute("SELECT easeml.select_models('points', '{mlp}', n_configs => 50, max_epochs => 2)")
    look(database.dsn)
    assert database.rows(STATISTICS) == before
