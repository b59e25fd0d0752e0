"""A run that asks for nothing: how long it searches, what its best trial has at the end, and what it says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
PREPARE = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 2 AS x, cos(i * i) AS noise, chr(97 + i % 3) AS y
FROM generate_series(1, 240) i;
SELECT easeml.create_dataset('points', 'points', '{x,noise}', 'y', n_partitions => 2);
"""
# Small networks that have not seen enough err in different places: the mean of some is better than each of them.
NOISY = """
CREATE TABLE noisy AS SELECT i AS id, x, z, sin(4 * x) + cos(5 * z) + x * z AS y
FROM generate_series(1, 600) i CROSS JOIN LATERAL (SELECT sin(i * i) * 3 AS x, cos(i * 7) * 3 AS z) p;
ALTER TABLE noisy ADD PRIMARY KEY (id);
SELECT easeml.create_dataset('noisy', 'noisy', '{x,z}', 'y', n_partitions => 2);
"""
ENSEMBLE = """
SELECT easeml.select_models('noisy', '{mlp}', procedure => 'race', n_configs => 8, max_epochs => 6, search_space =>
    '{"hidden_units": [[16], [32], [64], [32, 32]], "learning_rate": [0.01, 0.005], "batch_size": 32}',
    procedure_options => %s)
"""
ANSWER = "SELECT * FROM easeml.predict_row('noisy', '{\"x\": 0.1, \"z\": 0.2}'::jsonb, %s)"
MANY = """
INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, status, best_epoch,
    best_metric_value, best_loss, best_checkpoint_id)
SELECT run_id, arm_id, tenant, 1000 + number, 'network' || number / 8, config, 1, 'stopped', 1,
    1 - 0.011 * (number / 8) - 0.02 * mod(number, 8), 0, best_checkpoint_id
FROM (SELECT * FROM easeml.trials WHERE run_id = %s AND best_checkpoint_id IS NOT NULL LIMIT 1) t,
    generate_series(0, 80) number
"""
# Nothing about y is in x: whoever knows it of a row has been trained on that row.
CHANCE = """
CREATE TABLE chance AS SELECT i AS id, i * 0.37 AS x, ('x' || left(md5(i::text), 8))::bit(32)::integer / 2e9 AS y
FROM generate_series(1, 600) i;
ALTER TABLE chance ADD PRIMARY KEY (id);
SELECT easeml.create_dataset('chance', 'chance', '{x}', 'y', n_partitions => 2);
"""
FORESTS = """
SELECT easeml.select_models('chance', '{extra_trees}', procedure => 'race', n_configs => 4, max_epochs => 2,
    search_space => '{"trees_per_epoch": [2, 3, 4, 5], "min_samples_leaf": 1}')
"""
OF_RUN = "SELECT procedure, max_epochs, max_seconds FROM easeml.runs WHERE run_id = %s"


@pytest.fixture(scope="module")
def points(module_coordinated: Session) -> Session:
    """A session with a dataset and a coordinator."""
    module_coordinated.execute(PREPARE)
    return module_coordinated


@pytest.fixture(scope="module")
def timed(points: Session) -> int:
    """A race of few trials, which has ended: no clock decides when."""
    run_id = int(points.value("SELECT easeml.select_models('points', '{linear,mlp}', n_configs => 6)"))
    points.execute("CALL easeml.wait(%s, 300)", [run_id])
    return run_id


def test_without_bounds_a_run_has_two_minutes_and_with_epochs_no_clock(points: Session) -> None:
    run_id = points.value("SELECT easeml.select_models('points')")
    assert points.rows(OF_RUN, run_id) == [{"procedure": "race", "max_epochs": 100, "max_seconds": 120}]
    points.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    run_id = points.value("SELECT easeml.select_models('points', max_epochs => 3)")
    assert points.rows(OF_RUN, run_id) == [{"procedure": "random", "max_epochs": 3, "max_seconds": None}]
    points.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


def test_every_architecture_has_its_turn_and_the_best_trial_is_tested(points: Session, timed: int) -> None:
    (run,) = points.rows("SELECT * FROM easeml.run_status WHERE run_id = %s", timed)
    assert (run["status"], run["n_failed"], run["n_paused"]) == ("finished", 0, 0)
    board = points.rows("SELECT * FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank, trial_id", timed)
    assert board[0]["test_metric"] is not None
    assert board[0]["trial_id"] == run["best_trial_id"]
    assert {row["architecture"] for row in board} >= {"linear", "mlp"}
    assert all(row["n_epochs_done"] > 0 for row in board), "each began"
    assert len(board) in (6, 7), "with or without an ensemble"
    (row,) = points.rows("CALL easeml.replay(%s, until_epoch => 2)", board[0]["trial_id"])
    assert row["result"]["is_identical"]


def test_a_run_tells_at_its_end_what_it_tried_and_what_to_do_for_more(points: Session, timed: int) -> None:
    summary = points.values("SELECT s FROM easeml.run_summary(%s) s", timed)
    best = points.value("SELECT best_trial_id FROM easeml.run_status WHERE run_id = %s", timed)
    assert summary[0].startswith(f"Run {timed} is finished after ")
    assert summary[1].startswith(f"The best is trial {best} (")
    assert "on the test rows, which no choice has seen" in summary[1]
    assert "improv" in summary[-1]
    (event,) = points.values("SELECT message FROM easeml.run_events WHERE run_id = %s AND kind = 'summary'", timed)
    assert event == " ".join(summary)


def ensemble_run(points: Session, options: str) -> list[dict[str, Any]]:
    """The leaderboard of a race whose best trial is an ensemble."""
    run_id = points.value(ENSEMBLE, options)
    points.execute("CALL easeml.wait(%s, 300)", [run_id])
    board = points.rows("SELECT * FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank, trial_id", run_id)
    assert board[0]["architecture"] == "ensemble"
    return board


def test_an_ensemble_may_have_many_trials_of_the_best_architecture_and_some_of_others(
    points: Session, timed: int
) -> None:
    """Ten architectures of eight trials: number 1000 + 8 j + k is trial k of architecture j, the best ones being 0."""
    with points.transaction(force_rollback=True):
        points.execute("UPDATE easeml.trials SET best_metric_value = NULL WHERE run_id = %s", [timed])
        points.execute(MANY, [timed])
        made = points.value("SELECT trial_id FROM easeml.trials WHERE run_id = %s AND trial_number = 1080", timed)
        found = points.value("SELECT easeml.composition(%s) -> 'candidates'", made)
    numbers = Counter((candidate["trial_number"] - 1000) // 8 for candidate in found)
    assert numbers == {0: 5, 1: 3, 2: 2, 3: 1, 4: 1}
    assert {1000, 1001, 1002, 1003, 1004, 1008, 1009, 1010} <= {candidate["trial_number"] for candidate in found}


def test_an_ensemble_is_served_deployed_tested_and_replayed_like_any_trial(points: Session) -> None:
    points.execute(NOISY)
    best, *others = ensemble_run(points, '{"refit": false}')
    assert best["validation_metric"] < others[0]["validation_metric"]
    assert best["test_metric"] is not None
    numbers = {row["trial_number"]: row for row in others}
    members = best["config"]["members"]
    assert len(members) > 1
    assert {member["trial"] for member in members} <= set(numbers)
    assert sum(member["weight"] for member in members) == pytest.approx(1.0)
    (row,) = points.rows("CALL easeml.replay(%s)", best["trial_id"])
    assert (row["result"]["n_units"], row["result"]["is_identical"]) == (2, True)
    points.execute("SELECT easeml.deploy(%s)", [best["trial_id"]])
    (answer,) = points.rows(ANSWER, None)
    answers = {m["trial"]: points.rows(ANSWER, numbers[m["trial"]]["trial_id"])[0]["value"] for m in members}
    assert answer["serving_trial_id"] == best["trial_id"]
    assert answer["value"] == pytest.approx(sum(m["weight"] * answers[m["trial"]] for m in members), rel=1e-4)
    points.execute("SELECT easeml.undeploy('noisy')")

    again, *_ = ensemble_run(points, "{}")
    assert all(member["refit_epochs"] > 0 for member in again["config"]["members"]), "there was no time limit"
    (row,) = points.rows("CALL easeml.replay(%s)", again["trial_id"])
    assert row["result"]["is_identical"]
    by_hand = "SELECT sqrt(avg((predicted_value - n.y) ^ 2)) FROM easeml.dataset_rows('noisy') r JOIN noisy n ON"
    for split, metric in (("test", "test_metric"), ("validation", "validation_metric")):
        with points.transaction(force_rollback=True):
            points.execute("SELECT easeml.predict_table('noisy', 'noisy', 'answers', %s)", [again["trial_id"]])
            rmse = points.value(f"{by_hand} id::text = r.row_key JOIN answers USING (id) WHERE split = %s", split)
        told = again[metric]
        if split == "test":
            assert rmse == pytest.approx(told, rel=1e-5)
        else:
            assert rmse < told, "who answers has been trained on these rows"
    measured = "SELECT validation FROM easeml.evaluate('noisy', %s) WHERE metric = 'rmse'"
    assert points.value(measured, again["trial_id"]) == pytest.approx(again["validation_metric"], rel=1e-5)


def test_validation_rows_explain_an_ensemble_as_it_was_before_it_was_trained_on_them(points: Session) -> None:
    points.execute(CHANCE)
    run_id = points.value(FORESTS)
    points.execute("CALL easeml.wait(%s, 300)", [run_id])
    best, *_ = points.rows("SELECT * FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank, trial_id", run_id)
    assert best["architecture"] == "ensemble"
    assert all(member["refit_epochs"] > 0 for member in best["config"]["members"])
    trial_id, by_heart = best["trial_id"], 0.5 * best["validation_metric"]
    points.execute("SELECT easeml.predict_table('chance', 'chance', 'by_chance', %s)", [trial_id])
    rmse = (
        "SELECT sqrt(avg((predicted_value - c.y) ^ 2)) FROM easeml.dataset_rows('chance') r"
        " JOIN chance c ON id::text = r.row_key JOIN by_chance USING (id) WHERE split = 'validation'"
    )
    assert points.value(rmse) < by_heart, "it answers with what it was trained on these rows"
    importance = "SELECT importance FROM easeml.explain('chance', %s, metric => 'rmse', split => %s)"
    for split in ("validation", "test"):
        assert abs(points.value(importance, trial_id, split)) < 0.5 * by_heart
