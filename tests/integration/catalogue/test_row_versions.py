"""As long as anybody's snapshot is old, the server keeps every version of every row: a unit makes few of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

RECORDS = {
    "train": "SELECT easeml.record_training(%s, now(), 2.0, 10, 0.5, 0, repeat('a', 64), '\\x00')",
    "evaluate": "SELECT easeml.record_evaluation(%s, now(), 1, 'validation', '{}', 0)",
}
CHANGED = {"trials": "slot_seconds = slot_seconds + 1", "slots": "n_units_done = n_units_done + 1"}
N_PAGES = "SELECT pg_stat_get_xact_blocks_fetched(%s::regclass)"
N_UPDATED = "SELECT pg_stat_get_xact_tuples_updated('easeml.trials'::regclass)"


@pytest.fixture
def unit(database: Session) -> dict[str, object]:
    """A unit of a running trial that this session is to record; no coordinator is there."""
    database.execute("CREATE TABLE points AS SELECT sin(i) AS a, sin(i) > 0.3 AS y FROM generate_series(1, 300) i")
    database.execute("SELECT easeml.create_dataset('points', 'points', '{a}', 'y', n_partitions => 2)")
    database.execute("SELECT easeml.select_models('points', '{mlp}', n_configs => 1, max_epochs => 2)")
    database.execute("UPDATE easeml.runs SET status = 'running'")
    database.execute("UPDATE easeml.trials SET status = 'running'")
    database.execute("UPDATE easeml.slots SET backend_pid = pg_backend_pid() WHERE slot_id = 1")
    (found,) = database.rows("SELECT trial_id, lease_number FROM easeml.trials, easeml.coordinator_lease")
    where = {"step": 0, "slot_id": 1, "epoch": 1, "position": 0, "partition_number": 0, "seed": 0, "attempt": 1}
    return found | where


@pytest.mark.parametrize("kind", RECORDS)
def test_a_unit_makes_one_version_of_its_trial(database: Session, unit: dict[str, object], kind: str) -> None:
    with database.transaction():
        before = database.value(N_UPDATED)
        database.execute(RECORDS[kind], [json.dumps(unit | {"kind": kind})])
        assert database.value(N_UPDATED) - before == 1
    (trial,) = database.rows("SELECT * FROM easeml.trials")
    assert trial["n_steps_done"] == 1
    assert trial["slot_seconds"] > 0
    assert trial["training_seconds"] == (2.0 if kind == "train" else None)
    assert (trial["checkpoint_id"] is not None) == (kind == "train")


def test_a_unit_whose_trial_got_another_state_meanwhile_is_not_recorded(
    database: Session, unit: dict[str, object]
) -> None:
    with database.transaction(force_rollback=True):
        advance = "SELECT easeml.advance(%s, 1, 1, from_checkpoint_id => 7, new_checkpoint_id => 8)"
        with pytest.raises(Exception, match="was stopped or moved on meanwhile: step 0 is not recorded"):
            database.execute(advance, [json.dumps(unit | {"kind": "train"})])


@pytest.mark.parametrize("table", ["trials", "slots"])
def test_a_session_finds_the_rows_of_its_unit_where_it_left_them(
    database: Session, unit: dict[str, object], table: str
) -> None:
    order = json.dumps(unit | {"kind": "train"})
    reader = database.as_role("rita", "easeml_reader")
    with reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM easeml.leaderboard")  # until this ends, every version stays
        change = f"UPDATE easeml.{table} SET {CHANGED[table]}"
        database.execute(f"DO $$ BEGIN FOR i IN 1..2000 LOOP {change}; COMMIT; END LOOP; END $$")
        pages = int(database.value("SELECT pg_relation_size(%s) / 8192", f"easeml.{table}"))
        assert pages > 30
        database.execute("SELECT easeml.open_unit(%s)", [order])
        with database.transaction(force_rollback=True):
            before = database.value(N_PAGES, f"easeml.{table}")
            database.execute("SELECT easeml.open_unit(%s)", [order])
            assert database.value(N_PAGES, f"easeml.{table}") - before < 10


def test_what_units_have_recorded_goes_with_their_run(database: Session, unit: dict[str, object]) -> None:
    database.execute(RECORDS["train"], [json.dumps(unit | {"kind": "train"})])
    order = json.dumps(unit | {"kind": "validate", "step": 1})
    database.execute(RECORDS["evaluate"], [order])
    database.execute("SELECT easeml.record_metrics(%s, 1, 'validation', 10, '{\"accuracy\": 0.5}', NULL)", [order])
    tables = ("checkpoints", "training_units", "evaluations", "epoch_metrics", "metric_values")
    counts = {table: f"SELECT count(*) FROM easeml.{table}" for table in tables}
    assert {table: database.value(count) for table, count in counts.items()} == dict.fromkeys(tables, 1)
    database.execute("DELETE FROM easeml.runs")
    assert {table: database.value(count) for table, count in counts.items()} == dict.fromkeys(tables, 0)


def test_rows_of_units_stay_on_their_page(database: Session, unit: dict[str, object]) -> None:
    order = json.dumps(unit | {"kind": "pilot"})
    unit_of_one = f"""DO $$ BEGIN FOR i IN 1..400 LOOP
        PERFORM easeml.open_unit('{order}'); COMMIT; PERFORM easeml.record_pilot('{order}', 1, 1); COMMIT;
    END LOOP; END $$"""
    database.execute(unit_of_one)
    for table in ("trials", "slots"):
        assert database.value("SELECT pg_relation_size(%s) / 8192", f"easeml.{table}") <= 3
