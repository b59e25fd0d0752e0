"""Batches: trials of one shape on one slot, trained as one computation, recorded together, replayed one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.coordinators import BATCHES_AT_ANY_SPEED

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_PARTITIONS, N_EPOCHS, N_ROWS, N_TRIALS = 2, 2, 900, 8
# All eight on one slot are twice as fast together: a few are not always, beside other load.
N_SLOTS, PRELUDE = 1, BATCHES_AT_ANY_SPEED
POINTS = """
CREATE TABLE points AS SELECT sin(i) AS a, cos(i * 7.0) AS b, (array['red', 'green', 'blue'])[1 + i %% 3] AS colour,
    sin(i) > 0.3 AS y FROM generate_series(1, %s) i
"""
RUN = """
SELECT easeml.select_models('points', '{mlp}', procedure => 'grid', max_epochs => %s, seed => 5, allocation => %s,
    search_space => '{"hidden_units": [[8]], "batch_size": 16, "dropout": 0.2,
        "learning_rate": [0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.007, 0.01]}')
"""
# Decay at a rate of 1000 multiplies weights by 499 at each step.
WILD = """
SELECT easeml.select_models('points', '{mlp}', procedure => 'grid', max_epochs => 1, max_seconds => 120, search_space =>
    '{"hidden_units": [[8]], "batch_size": 16, "optimizer": "sgd", "averaging": 0.0, "weight_decay": 0.5,
        "learning_rate": [0.001, 0.005, 0.01, 1000.0]}')
"""
HALVING = """
SELECT easeml.select_models('points', '{mlp}', procedure => 'successive_halving', n_configs => 6, max_epochs => 4,
    seed => 5, allocation => 'batched', procedure_options => '{"min_epochs": 1, "eta": 2}', search_space =>
    '{"hidden_units": [[8]], "batch_size": 16, "learning_rate": {"type": "float", "low": 1e-3, "high": 1e-1}}')
"""


@pytest.fixture(scope="module")
def points(module_coordinated: Session) -> Session:
    """A database with a small dataset, and a coordinator."""
    module_coordinated.execute(POINTS, [N_ROWS])
    module_coordinated.execute(
        "SELECT easeml.create_dataset('points', 'points', '{a,b,colour}', 'y', n_partitions => %s)", [N_PARTITIONS]
    )
    return module_coordinated


@pytest.fixture
def database(points: Session, swept: Session) -> Session:
    """`points`, with only the runs that a test asks for."""
    return swept


def run(database: Session, allocation: str | None, n_epochs: int = N_EPOCHS) -> int:
    run_id: int = database.value(RUN, n_epochs, allocation)
    database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs WHERE run_id = %s", run_id)
    status = database.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id)
    assert status == "finished", database.rows("TABLE easeml.events")
    return run_id


def metrics(database: Session, run_id: int) -> list[Any]:
    return database.rows(
        "SELECT trial_number, epoch, split, n_rows, value AS log_loss FROM easeml.metric_history"
        " WHERE run_id = %s AND split = 'validation' AND metric = 'log_loss' ORDER BY 1, 2, 3",
        run_id,
    )


def test_a_batched_run_comes_to_what_hopping_comes_to_and_every_trial_is_replayed(database: Session) -> None:
    batched, alone = run(database, "batched"), run(database, None)
    found = database.rows(
        "SELECT run_id, count(*) AS n, count(DISTINCT trial_id) AS n_trials, max(n_stacked) AS widest"
        " FROM easeml.training_timeline WHERE kind = 'train' GROUP BY run_id ORDER BY run_id"
    )
    n_units = N_TRIALS * N_PARTITIONS * N_EPOCHS
    assert [(row["n"], row["n_trials"]) for row in found] == [(n_units, N_TRIALS)] * 2
    assert found[0]["widest"] > 1
    assert found[1]["widest"] == 1
    database.assert_slot_time_is_counted(batched)
    for one, other in zip(metrics(database, batched), metrics(database, alone), strict=True):
        assert one["log_loss"] == pytest.approx(other["log_loss"], abs=1e-3)
        assert one | {"log_loss": 0} == other | {"log_loss": 0}
    stacked = "SELECT trial_id FROM easeml.training_timeline WHERE run_id = %s AND n_stacked > 1 GROUP BY 1 ORDER BY 1"
    for trial_id in database.values(stacked, batched)[:2]:
        (row,) = database.rows("CALL easeml.replay(%s)", trial_id)
        assert row["result"]["is_identical"], row["result"]
    overlaps = """
    SELECT count(*) FROM easeml.training_timeline a JOIN easeml.training_timeline b USING (slot_id, run_id)
    WHERE (a.trial_id, a.kind, a.epoch, a.partition_number) <> (b.trial_id, b.kind, b.epoch, b.partition_number)
        AND a.started_at < b.finished_at - interval '10 us' AND b.started_at < a.finished_at - interval '10 us'
    """
    assert database.value(overlaps) == 0  # the time of a slot is counted once


def test_one_that_diverges_fails_alone_in_a_run_with_a_time_limit_which_is_batched_unasked(database: Session) -> None:
    run_id = database.value(WILD)
    database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs WHERE run_id = %s", run_id)
    assert database.value("SELECT allocation FROM easeml.run_status WHERE run_id = %s", run_id) == "batched"
    trials = database.rows(
        "SELECT status, failure_reason, config -> 'learning_rate' AS rate FROM easeml.trials WHERE run_id = %s", run_id
    )
    assert [row["status"] for row in trials if row["rate"] < 1] == ["finished"] * 3
    (wild,) = [row for row in trials if row["rate"] > 1]
    assert wild["status"] == "failed"
    assert wild["failure_reason"].startswith("trial diverged")


def test_a_search_stops_pauses_and_goes_on_with_its_trials_in_batches(database: Session) -> None:
    database.execute(HALVING)
    database.wait_until("SELECT n_units_done > 20 FROM easeml.run_status")
    run_id = database.value("SELECT run_id FROM easeml.runs")
    database.execute("SELECT easeml.cancel(%s)", [run_id])
    database.execute("SELECT easeml.resume(%s)", [run_id])
    database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs")
    assert database.value("SELECT status FROM easeml.runs") == "finished"
    counts = database.rows("SELECT status, count(*) AS n FROM easeml.trials GROUP BY 1 ORDER BY 1")
    assert {row["status"] for row in counts} == {"finished", "stopped"}
    assert sum(row["n"] for row in counts) == 6
    doubled = (
        "SELECT count(*) - count(DISTINCT (trial_id, kind, epoch, partition_number)) FROM easeml.training_timeline"
    )
    assert database.value(doubled) == 0
