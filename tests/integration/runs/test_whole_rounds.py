"""Trials that take all partitions at once: a round in one unit on one slot; paused, killed, replayed, asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_PARTITIONS, N_EPOCHS, N_ROWS = 3, 4, 1500
# What y is depends on a number with holes, on a category and on nothing that a line could follow.
POINTS = """
CREATE TABLE points AS SELECT CASE WHEN i %% 11 = 0 THEN NULL ELSE sin(i) * 3 END AS x, cos(i * 7.0) AS noise,
    (array['red', 'green', 'blue'])[1 + i %% 3] AS colour, abs(sin(i)) * 10 + (i %% 3 = 1)::integer * 5 AS y
FROM generate_series(1, %s) i
"""
RUN = """
SELECT easeml.select_models('points', '{lightgbm}', procedure => 'grid', max_epochs => %s, seed => 5, allocation => %s,
    search_space => '{"trees_per_epoch": 10, "num_leaves": [7, 15], "bagging_fraction": 0.8}')
"""
HALVING = """
SELECT easeml.select_models('points', '{lightgbm}', procedure => 'successive_halving', max_epochs => %s, n_configs => 2,
    seed => 5, procedure_options => '{"min_epochs": 1, "eta": 2}',
    search_space => '{"trees_per_epoch": 10, "num_leaves": [7, 15], "bagging_fraction": 0.8}')
"""
FORESTS = """
SELECT easeml.select_models('points', '{extra_trees,random_forest}', procedure => 'grid', max_epochs => 2, seed => 5,
    search_space => '{"trees_per_epoch": 5}')
"""


@pytest.fixture(scope="module")
def points(module_coordinated: Session) -> Session:
    """A database with a dataset of numbers and categories, and a coordinator."""
    module_coordinated.execute(POINTS, [N_ROWS])
    module_coordinated.execute(
        "SELECT easeml.create_dataset('points', 'points', '{x,noise,colour}', 'y', n_partitions => %s)", [N_PARTITIONS]
    )
    return module_coordinated


@pytest.fixture
def database(points: Session, swept: Session) -> Session:
    """`points`, with only the runs that a test asks for."""
    return swept


def run(database: Session, allocation: str = "hopping", n_epochs: int = N_EPOCHS) -> int:
    run_id: int = database.value(RUN, n_epochs, allocation)
    return run_id


def wait_for_end(database: Session) -> None:
    database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs")
    assert database.value("SELECT status FROM easeml.runs") == "finished", database.rows("TABLE easeml.events")


def states(database: Session) -> list[Any]:
    return database.rows(
        "SELECT trial_number, epoch, position, partition_number, n_rows, loss, state_sha256"
        " FROM easeml.training_timeline WHERE kind = 'train' ORDER BY trial_number, epoch, position"
    )


def replay(database: Session, trial_id: int) -> dict[str, Any]:
    (row,) = database.rows("CALL easeml.replay(%s)", trial_id)
    result: dict[str, Any] = row["result"]
    return result


@pytest.mark.parametrize("allocation", ["hopping", "data_parallel", "auto", "water_filling"])
def test_a_round_is_one_unit_on_one_slot_under_every_allocation(database: Session, allocation: str) -> None:
    run(database, allocation)
    wait_for_end(database)
    rounds = database.rows(
        "SELECT trial_id, kind, epoch, count(*) AS n, max(n_slots) AS width, count(DISTINCT slot_id) AS n_slots,"
        " count(DISTINCT state_sha256) AS n_states, sum(seconds) AS seconds,"
        " extract(epoch FROM max(finished_at) - min(started_at))::float8 AS duration"
        " FROM easeml.training_timeline GROUP BY trial_id, kind, epoch"
    )
    assert len(rounds) == 2 * (2 * N_EPOCHS + 1)
    for each in rounds:
        assert (each["n"], each["n_slots"], each["width"]) == (N_PARTITIONS, 1, 1)
        assert each["n_states"] == (each["kind"] == "train")
        assert each["seconds"] == pytest.approx(each["duration"], abs=1e-4)
    assert database.value("SELECT count(*) FROM easeml.epoch_metrics") == 2 * (N_EPOCHS + 1)
    assert database.value("SELECT sum(n_rows) FROM easeml.training_units WHERE epoch = 1") == 2 * database.value(
        "SELECT n_train_rows FROM easeml.dataset_info"
    )
    database.assert_slot_time_is_counted(database.value("SELECT run_id FROM easeml.runs"))


def test_trees_learn_what_they_are_shown_and_answer_for_rows_with_holes(database: Session) -> None:
    run(database, n_epochs=8)
    wait_for_end(database)
    best = database.rows("SELECT trial_id, test_metric FROM easeml.leaderboard ORDER BY test_metric LIMIT 1")[0]
    assert best["test_metric"] < 1.5  # the targets spread by 3.9
    ask = "SELECT value FROM easeml.predict_row('points', %s, %s::bigint)"
    answers = [
        database.value(ask, Jsonb(row), best["trial_id"])
        for row in (
            {"x": 1.5, "noise": 0.1, "colour": "green"},
            {"x": None, "noise": 0.1, "colour": "green"},
            {"x": 1.5, "noise": 0.1, "colour": "purple"},
        )
    ]
    assert answers[0] is not None
    assert all(answer is not None for answer in answers)


def test_forests_are_trained_served_and_replayed_as_boosted_trees_are(database: Session) -> None:
    database.execute(FORESTS)
    wait_for_end(database)
    for trial in database.rows("SELECT trial_id, test_metric FROM easeml.leaderboard"):
        assert trial["test_metric"] < 2.0
        assert replay(database, trial["trial_id"])["is_identical"]


def test_paused_by_its_procedure_a_trial_goes_on_to_the_bytes_of_one_that_was_not(database: Session) -> None:
    run(database, n_epochs=4)
    wait_for_end(database)
    straight = states(database)
    database.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")
    database.execute(HALVING, [N_EPOCHS])
    wait_for_end(database)
    halved = states(database)
    assert len({row["trial_number"] for row in halved}) == 2
    by_leaves = database.values("SELECT config ->> 'num_leaves' FROM easeml.trials ORDER BY trial_number")
    if by_leaves == ["7", "15"]:
        assert [row for row in straight if row in halved] == halved
    for trial_id in database.values("SELECT trial_id FROM easeml.trials"):
        assert replay(database, trial_id)["is_identical"]


def test_killed_in_the_middle_a_trial_is_recorded_once_and_replays_to_the_same_bytes(
    database: Session, another_coordinator: Callable[[], None]
) -> None:
    run(database)
    wait_for_end(database)
    undisturbed = states(database)
    database.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")
    run(database)
    database.wait_until("SELECT count(*) >= %s FROM easeml.training_units", N_PARTITIONS)
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'easeml slot%%'"
    )
    another_coordinator()
    wait_for_end(database)
    assert states(database) == undisturbed
    trial_id = database.value("SELECT min(trial_id) FROM easeml.trials")
    found = replay(database, trial_id)
    assert (found["n_units"], found["n_matching"]) == (N_EPOCHS * N_PARTITIONS, N_EPOCHS * N_PARTITIONS)


def test_a_unit_over_one_of_several_partitions_is_refused(database: Session) -> None:
    run_id = run(database)
    database.execute("SELECT easeml.cancel(%s)", [run_id])
    trial_id = database.value("SELECT max(trial_id) FROM easeml.trials")
    database.execute("UPDATE easeml.trials SET status = 'waiting', n_steps_done = 0 WHERE trial_id = %s", [trial_id])
    unit = {
        "trial_id": trial_id, "step": 0, "kind": "train", "epoch": 1, "position": 0, "partition_number": 0, "seed": 1,
        "slot_id": database.value("SELECT min(slot_id) FROM easeml.slots"), "lease_number": 1, "attempt": 1,
    }  # fmt: skip
    with pytest.raises(psycopg.Error, match="lightgbm takes all 3 partitions at once"):
        database.execute("CALL easeml.train_unit(%s, NULL)", [Jsonb(unit)])


def test_constraints_name_inputs_and_a_config_beyond_all_memory_is_refused(database: Session) -> None:
    ask = "SELECT easeml.select_models('points', '{lightgbm}', n_configs => 1, max_epochs => 1, search_space => %s)"
    database.value(ask, Jsonb({"increasing": ["x"], "interactions": [["x", "colour"]], "trees_per_epoch": 5}))
    wait_for_end(database)
    kept = database.value("SELECT config FROM easeml.trials")
    assert (kept["increasing"], kept["interactions"]) == (["x"], [["x", "colour"]])
    with pytest.raises(psycopg.Error, match="search_space: there is no input 'size'; the inputs are x, noise, colour"):
        database.value(ask, Jsonb({"increasing": [["x"], ["size"]]}))
    with database.transaction(force_rollback=True):
        database.execute("UPDATE easeml.slots SET memory_limit_bytes = 1 << 30")
        with pytest.raises(psycopg.Error, match=r"lightgbm with num_leaves 4096.* takes at least"):
            database.value(ask, Jsonb({"num_leaves": 4096, "trees_per_epoch": 10_000}))


def test_partitions_on_different_segments_are_refused_when_the_run_is_asked_for(database: Session) -> None:
    with database.transaction(force_rollback=True):
        database.execute("UPDATE easeml.datasets SET placement = 'bound'")
        database.execute("DELETE FROM easeml.replicas")
        with pytest.raises(psycopg.Error, match="lightgbm takes all partitions at once, and no segment holds all"):
            run(database)
