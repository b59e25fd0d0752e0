"""Cross-validation: folds are partitions, a trial is a committee, and no model has seen the rows that rank it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pytest

from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import values

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
N_FOLDS = 3
TASK = Task("classification", (2,), 2)
# Labels that nothing tells, and categories that come a few times each: whoever has seen a row knows its label.
COINS = """
CREATE TABLE coins AS SELECT i AS id, sin(i) AS x, 'c' || (i * 7919 % 150) AS c,
    CASE WHEN hashint4(i) % 2 = 0 THEN 'heads' ELSE 'tails' END AS y FROM generate_series(1, 600) i;
ALTER TABLE coins ADD PRIMARY KEY (id)
"""
RUN = """
SELECT easeml.select_models('coins', '{linear,lightgbm,random_forest}', procedure => 'grid', max_epochs => 2, seed => 5,
    search_space => '{"linear": {"batch_size": 32}, "lightgbm": {"trees_per_epoch": 20},
        "random_forest": {"trees_per_epoch": 10}}')
"""
RACE = "SELECT easeml.select_models('coins', '{linear,gaussian_nb}', n_configs => 4, max_seconds => 8)"
EVALUATIONS = """
SELECT partition_number, statistics FROM easeml.evaluations WHERE trial_id = %s AND epoch = %s AND split = 'validation'
ORDER BY partition_number
"""


@pytest.fixture(scope="module")
def coins(module_coordinated: Session) -> Session:
    """A dataset with folds, and a run on it that has ended."""
    module_coordinated.execute(COINS)
    module_coordinated.execute("SELECT easeml.create_dataset('coins', 'coins', '{x,c}', 'y', n_folds => %s)", [N_FOLDS])
    run_id = module_coordinated.value(RUN)
    module_coordinated.wait_until(
        "SELECT status NOT IN ('queued', 'running') FROM easeml.runs WHERE run_id = %s", run_id
    )
    assert module_coordinated.values("SELECT failure_reason FROM easeml.trials WHERE status <> 'finished'") == []
    return module_coordinated


def board(coins: Session) -> list[dict[str, Any]]:
    return coins.rows("SELECT * FROM easeml.leaderboard WHERE run_id = 1 ORDER BY rank")


def test_all_but_the_test_rows_are_in_folds_and_each_has_its_share_of_each_label(coins: Session) -> None:
    found = coins.rows(
        "SELECT r.split, r.fold, r.partition_number, c.y FROM easeml.dataset_rows('coins') r"
        " JOIN coins c ON c.id::text = r.row_key"
    )
    assert len(found) == 600
    assert Counter(row["split"] for row in found) == {"train": 510, "test": 90}
    assert all(row["fold"] == (row["partition_number"] if row["split"] == "train" else None) for row in found)
    for label in ("heads", "tails"):
        shares = Counter(row["fold"] for row in found if row["y"] == label and row["fold"] is not None)
        assert set(shares) == set(range(N_FOLDS))
        assert max(shares.values()) - min(shares.values()) <= 1


def test_no_model_has_seen_the_rows_that_rank_it(coins: Session) -> None:
    for trial in board(coins):
        assert abs(trial["validation_metric"] - 0.5) < 0.12, trial["architecture"]


def test_the_metric_is_the_mean_over_folds_and_the_winner_is_tested(coins: Session) -> None:
    for trial in board(coins):
        folds = coins.rows(EVALUATIONS, trial["trial_id"], trial["best_epoch"])
        each = [values(TASK, fold["statistics"])["accuracy"] for fold in folds]
        assert [fold["statistics"]["n_rows"] for fold in folds] == [170] * N_FOLDS
        assert trial["validation_metric"] == pytest.approx(np.mean(each))
        assert trial["validation_error"] == pytest.approx(np.std(each, ddof=1) / np.sqrt(N_FOLDS))
        assert trial["test_metric"] is not None
        assert trial["n_validation_classes"] == trial["n_test_classes"] == 2
    units = coins.rows("SELECT trial_id, epoch, kind, count(*) AS n FROM easeml.training_timeline GROUP BY 1, 2, 3")
    assert {row["n"] for row in units} == {N_FOLDS}


def test_a_committee_is_replayed_to_the_same_bytes_and_answers(coins: Session) -> None:
    for trial in board(coins):
        (row,) = coins.rows("CALL easeml.replay(%s)", trial["trial_id"])
        assert row["result"]["is_identical"], trial["architecture"]
        ask = "SELECT probability FROM easeml.predict_row('coins', %s::jsonb, %s::bigint)"
        probability = coins.value(ask, json.dumps({"x": 0.1, "c": "c7"}), trial["trial_id"])
        assert 0.5 <= probability <= 1


def test_evaluate_measures_out_of_fold_too(coins: Session) -> None:
    for trial in board(coins):
        rows = coins.rows("SELECT * FROM easeml.evaluate('coins', %s) WHERE metric = 'accuracy'", trial["trial_id"])
        (found,) = rows
        assert found["validation"] == pytest.approx(trial["validation_metric"], abs=1e-9), "folds have one size"
        assert found["test"] == pytest.approx(trial["test_metric"], abs=1e-9)


def test_what_inputs_are_worth_is_measured_on_test_rows_alone(coins: Session) -> None:
    best = board(coins)[0]["trial_id"]
    assert len(coins.rows("SELECT * FROM easeml.explain('coins', %s, n_rows => 50)", best)) == 2
    with pytest.raises(psycopg.Error, match="have trained most models of the committee"), coins.transaction():
        coins.execute("SELECT * FROM easeml.explain('coins', %s, split => 'validation')", [best])


def test_a_race_over_folds_ends_with_a_winner_that_is_tested(coins: Session) -> None:
    run_id = coins.value(RACE)
    coins.execute("CALL easeml.wait(%s, 300)", [run_id])
    best = coins.rows("SELECT * FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank LIMIT 1", run_id)[0]
    assert coins.value("SELECT failure_reason FROM easeml.runs WHERE run_id = %s", run_id) is None
    assert abs(best["validation_metric"] - 0.5) < 0.15
    assert best["test_metric"] is not None


def test_groups_stay_in_one_fold(coins: Session) -> None:
    with coins.transaction(force_rollback=True):
        coins.execute(
            "CREATE TABLE t AS SELECT i AS id, i * 0.5 AS x, i % 2 AS y, i / 6 AS g FROM generate_series(1, 400) i"
        )
        coins.execute(
            "SELECT easeml.create_dataset('t', 't', '{x}', 'y', n_folds => 4, group_column => 'g',"
            " key_columns => '{id}')"
        )
        places = coins.rows(
            "SELECT t.g, count(DISTINCT (r.split, r.fold)) AS n FROM t JOIN easeml.dataset_rows('t') r"
            " ON r.row_key = t.id::text GROUP BY 1"
        )
        assert {row["n"] for row in places} == {1}
        sizes = coins.rows("SELECT fold, count(*) AS n FROM easeml.dataset_rows('t') GROUP BY 1")
        assert {row["fold"] for row in sizes} == {0, 1, 2, 3, None}
        assert all(abs(row["n"] - (60 if row["fold"] is None else 85)) <= 12 for row in sizes)


def test_a_class_with_fewer_rows_than_folds_is_named(coins: Session) -> None:
    notices: list[str] = []
    coins.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    with coins.transaction(force_rollback=True):
        coins.execute("CREATE TABLE t AS SELECT i AS x, CASE WHEN i < 5 THEN 'rare' ELSE 'often' END AS y"
                      " FROM generate_series(1, 200) i")  # fmt: skip
        coins.execute("SELECT easeml.create_dataset('t', 't', '{x}', 'y', n_folds => 5)")
        assert set(coins.values("SELECT split FROM easeml.dataset_rows('t') WHERE row_key IS NOT NULL")) == {
            "train",
            "test",
        }
    assert any("'rare' (3)" in notice and "the 5 folds" in notice for notice in notices)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("n_folds => 1", "n_folds: expected 2 to 20"),
        ("n_folds => 5, time_column => 'x'", "n_folds and time_column exclude each other"),
        ("n_folds => 20, test_fraction => 0.01", "600 rows are too few for 20 folds"),
    ],
)
def test_folds_that_cannot_be_are_refused(coins: Session, options: str, words: str) -> None:
    with pytest.raises(psycopg.Error, match=words), coins.transaction():
        coins.execute(f"SELECT easeml.create_dataset('t', 'coins', '{{x}}', 'y', {options})")  # type: ignore[arg-type]


def test_no_gang_trains_a_committee(coins: Session) -> None:
    run_id = coins.value(
        "SELECT easeml.select_models('coins', '{linear}', procedure => 'grid', max_epochs => 1,"
        " search_space => '{\"batch_size\": 32}', allocation => 'data_parallel')"
    )
    coins.execute("CALL easeml.wait(%s, 300)", [run_id])
    assert coins.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
    assert coins.values("SELECT DISTINCT n_slots FROM easeml.training_timeline WHERE run_id = %s", run_id) == [1]


def test_a_small_table_gets_folds_unless_the_caller_says_otherwise(database: Session) -> None:
    database.execute("CREATE TABLE few AS SELECT i AS id, i % 7 AS x, ARRAY[i, i] AS xs, i / 9.0 AS y"
                     " FROM generate_series(1, 100) i")  # fmt: skip
    notices: list[str] = []
    database.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))

    def n_folds(inputs: str = "{x}", **how: object) -> int | None:
        """Return the folds of a dataset that is made so, and drop it."""
        named = "".join(f", {name} => %({name})s" for name in how)
        database.execute(f"SELECT easeml.create_dataset('few', 'few', '{inputs}', 'y'{named})", how)  # type: ignore[arg-type]
        return folds_of_newest()

    def folds_of_newest(drop: bool = True) -> int | None:
        (row,) = database.rows("SELECT * FROM easeml.dataset_info WHERE is_newest")
        if drop:
            database.execute("SELECT easeml.drop_dataset('few')")
        told = row["split_options"].get("n_folds")
        assert (row["n_validation_rows"] == 0) == (told is not None)
        assert told is None or told == row["n_partitions"]
        return int(told) if told else None

    assert n_folds() == 5
    assert "the table is small: 5 folds of its rows take turns to validate" in notices
    ways: list[dict[str, object]] = [{"n_folds": 0}, {"n_partitions": 2}, {"validation_fraction": 0.2}]
    ways += [{"time_column": "id"}, {"n_folds": 0, "time_column": "id"}]
    assert [n_folds(**way) for way in ways] == [None] * 5
    assert n_folds(n_folds=3) == 3
    assert n_folds("{xs}") is None
    database.execute("SELECT easeml.create_dataset('few', 'few', '{x}', 'y')")
    database.execute("SELECT easeml.refresh_dataset('few')")
    assert folds_of_newest(drop=False) == 5
    database.execute("INSERT INTO few SELECT i, i % 7, ARRAY[i, i], i FROM generate_series(101, 2001) i")
    for _ in range(2):
        database.execute("SELECT easeml.refresh_dataset('few')")
        assert folds_of_newest(drop=False) is None
    database.execute("SELECT easeml.drop_dataset('few')")
    assert n_folds() is None
    database.execute("DELETE FROM few WHERE id > 99")
    assert n_folds() is None
