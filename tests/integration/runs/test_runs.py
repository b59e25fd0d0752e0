"""Runs under a real coordinator: what the views show, what predictions answer, and how a run can end."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pytest

from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.encoding import fields_from_bytes

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session


N_PARTITIONS = 3
SOURCES = """
CREATE TABLE flowers AS
SELECT i AS id, (i % 3) * 2 + sin(i * 12.9898) AS petal, cos((i % 3) * 2) + sin(i * 78.233) AS sepal,
    (ARRAY['rose', 'tulip', 'lily'])[1 + i % 3] AS kind
FROM generate_series(1, 240) i;
ALTER TABLE flowers ADD PRIMARY KEY (id);
CREATE TABLE houses AS
SELECT i AS id, ARRAY[i % 17, sin(i), i % 5]::float8[] AS features, (i % 17) * 1000.0 + 300 * sin(i) AS price
FROM generate_series(1, 240) i;
CREATE TABLE people AS
SELECT CASE WHEN i % 11 > 0 THEN 20 + i % 50 END AS age, (ARRAY['a', 'b c', 'it''s', NULL])[1 + i % 4] AS town,
    i % 2 = 0 AS member,
    date '2000-01-01' + i AS since, i AS number, i % 4 > 1 AS buys
FROM generate_series(1, 200) i;
SELECT easeml.create_dataset('flowers', 'flowers', '{petal,sepal}', 'kind', n_partitions => 3);
SELECT easeml.create_dataset('houses', 'houses', '{features}', 'price', n_partitions => 3);
SELECT easeml.create_dataset('people', 'people', '{age,town,member,since}', 'buys', n_partitions => 2);
"""
FLOWERS = """
SELECT easeml.select_models('flowers', '{linear,mlp}', procedure => 'grid', max_epochs => 3, seed => %s,
    search_space => '{"learning_rate": [0.03, 0.001], "batch_size": 16, "mlp": {"hidden_units": [[8]],
        "dropout": 0.1}}')
"""
OUTCOME = """
SELECT trial_number, epoch, position, partition_number, loss, state_sha256 FROM easeml.training_timeline
WHERE run_id = %s AND kind = 'train' ORDER BY trial_number, epoch, position
"""
BOARD = """
SELECT rank, trial_number, architecture, config, status, validation_metric, test_metric, best_epoch, n_epochs_done
FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank, trial_number
"""


def wait_for(database: Session, run_id: int, *states: str) -> dict[str, Any]:
    """Wait until a run is in one of the states (by default: has ended) and return its status."""
    wanted = states or ("finished", "failed", "cancelled")
    database.wait_until("SELECT status = ANY (%s) FROM easeml.run_status WHERE run_id = %s", list(wanted), run_id)
    return database.rows("SELECT * FROM easeml.run_status WHERE run_id = %s", run_id)[0]


def run(database: Session, statement: str, *values: Any) -> int:
    """Start a run, wait for its end, return its number."""
    run_id = int(database.value(statement, *values))
    status = wait_for(database, run_id)
    assert status["status"] == "finished", (status, database.rows("SELECT * FROM easeml.run_events"))
    return run_id


def prepare(database: Session) -> None:
    for statement in SOURCES.strip().split(";\n"):
        database.execute(statement)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shop(module_coordinated: Session) -> Session:
    """A database with three datasets and a coordinator."""
    prepare(module_coordinated)
    return module_coordinated


@pytest.fixture(scope="module")
def flowers(shop: Session) -> int:
    """A finished run: 4 trials, 3 epochs, 3 partitions."""
    return run(shop, FLOWERS, 1)


@pytest.fixture(scope="module")
def houses(shop: Session) -> int:
    """A finished regression run."""
    return run(
        shop,
        "SELECT easeml.select_models('houses', '{linear}', procedure => 'grid', max_epochs => 8,"
        ' search_space => \'{"learning_rate": [0.1, 0.0001], "batch_size": 8}\')',
    )


def timeline(database: Session, run_id: int) -> list[dict[str, Any]]:
    return database.rows("SELECT * FROM easeml.training_timeline WHERE run_id = %s ORDER BY started_at", run_id)


# What the views show of a finished run


def test_status_counts_to_the_end(shop: Session, flowers: int) -> None:
    (status,) = shop.rows("SELECT * FROM easeml.run_status WHERE run_id = %s", flowers)
    n_units = 4 * (2 * 3 + 1) * N_PARTITIONS
    assert (status["status"], status["n_trials"], status["n_finished"], status["n_failed"]) == ("finished", 4, 4, 0)
    assert (status["n_units_done"], status["n_units"], status["percent_done"]) == (n_units, n_units, 100.0)
    assert status["created_at"] <= status["started_at"] <= status["finished_at"]
    elapsed = (status["finished_at"] - status["started_at"]).total_seconds()
    assert status["elapsed_seconds"] == pytest.approx(elapsed)
    (best,) = shop.rows(
        "SELECT * FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank, trial_number LIMIT 1", flowers
    )
    assert (status["best_trial_id"], status["best_metric_value"]) == (best["trial_id"], best["validation_metric"])
    shop.assert_slot_time_is_counted(flowers)


def test_each_trial_meets_each_partition_once_an_epoch_in_cyclic_order(shop: Session, flowers: int) -> None:
    visits: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    for unit in timeline(shop, flowers):
        visits[unit["trial_number"], unit["kind"], unit["epoch"]].append(unit["partition_number"])
    best = {row["trial_number"]: row["best_epoch"] for row in shop.rows(BOARD, flowers)}
    expected = {(trial, kind, epoch) for trial in best for kind in ("train", "validate") for epoch in (1, 2, 3)}
    assert set(visits) == expected | {(trial, "test", epoch) for trial, epoch in best.items()}
    for (trial, _, _), partitions in visits.items():
        assert partitions == [(trial + k) % N_PARTITIONS for k in range(N_PARTITIONS)]


def test_units_of_a_trial_and_of_a_slot_never_overlap(shop: Session, flowers: int) -> None:
    units = timeline(shop, flowers)
    for key in ("trial_id", "slot_id"):
        for value in {unit[key] for unit in units}:
            own = [unit for unit in units if unit[key] == value]
            assert all(one["finished_at"] <= two["started_at"] for one, two in pairwise(own))
    assert {unit["slot_id"] for unit in units} == {1, 2}
    for unit in units:
        assert unit["attempt"] == 1
        assert unit["seconds"] == pytest.approx((unit["finished_at"] - unit["started_at"]).total_seconds())
        if unit["kind"] == "train":
            assert 0 <= unit["training_seconds"] <= unit["seconds"]


def test_units_count_the_rows_of_their_partitions(shop: Session, flowers: int) -> None:
    names = {"train": "n_train_rows", "validate": "n_validation_rows", "test": "n_test_rows"}
    sizes = shop.rows(
        "SELECT p.* FROM easeml.partitions p JOIN easeml.runs USING (dataset_id) WHERE run_id = %s", flowers
    )
    for unit in timeline(shop, flowers):
        (partition,) = (row for row in sizes if row["partition_number"] == unit["partition_number"])
        assert unit["n_rows"] == partition[names[unit["kind"]]]


def test_best_epoch_and_ranks_follow_the_learning_curves(shop: Session, flowers: int) -> None:
    board = shop.rows(BOARD, flowers)
    for row in board:
        curve = shop.rows(
            "SELECT * FROM easeml.learning_curves WHERE run_id = %s AND trial_number = %s ORDER BY epoch",
            flowers,
            row["trial_number"],
        )
        assert [point["epoch"] for point in curve] == [1, 2, 3]
        values = [point["validation_metric"] for point in curve]
        of_equals = max(curve, key=lambda point: (point["validation_metric"], -point["log_loss"]))
        assert row["best_epoch"] == of_equals["epoch"]
        assert row["validation_metric"] == max(values)
        assert row["n_epochs_done"] == 3
        for point in curve:
            assert point["metric"] == "accuracy"
            assert point["accuracy"] == point["validation_metric"]
            assert point["rmse"] is None
            assert math.isfinite(point["training_loss"])
            assert point["log_loss"] >= 0
            assert point["elapsed_seconds"] >= 0
    ranked = [row["validation_metric"] for row in board]
    assert ranked == sorted(ranked, reverse=True)
    assert [row["rank"] for row in board] == [1 + sum(other > value for other in ranked) for value in ranked]
    assert ranked[0] > 0.6


def test_test_metric_is_that_of_predictions_for_the_test_rows(shop: Session, flowers: int) -> None:
    petals = petals_of(shop, "test")
    assert len(petals) == 36
    for row in shop.rows("SELECT trial_id, test_metric FROM easeml.leaderboard WHERE run_id = %s", flowers):
        with shop.transaction(force_rollback=True):
            shop.execute("SELECT easeml.predict_table('flowers', 'flowers', 'answers', %s)", [row["trial_id"]])
            correct = shop.rows(
                "SELECT kind = predicted_label AS is_right FROM flowers JOIN answers USING (id) WHERE petal = ANY (%s)",
                petals,
            )
        assert len(correct) == 36
        assert row["test_metric"] == pytest.approx(np.mean([answer["is_right"] for answer in correct]))


def petals_of(database: Session, split: str) -> list[float]:
    """The values of petal, which is unique, in a split."""
    (dataset,) = database.rows("SELECT dataset_id, encoder FROM easeml.datasets WHERE dataset_name = 'flowers'")
    blocks = database.rows(
        "SELECT inputs, n_rows FROM easeml.blocks WHERE dataset_id = %s AND split = %s", dataset["dataset_id"], split
    )
    encoder = Encoder.from_json(dataset["encoder"])
    parts = [fields_from_bytes(encoder, bytes(block["inputs"]), block["n_rows"])[0] for block in blocks]
    return [float(value) for value in np.concatenate(parts)]


def test_of_each_trial_the_newest_and_the_best_state_are_kept(shop: Session, flowers: int) -> None:
    trials = shop.rows("SELECT * FROM easeml.trials WHERE run_id = %s", flowers)
    for trial in trials:
        kept = shop.values("SELECT checkpoint_id FROM easeml.checkpoints WHERE trial_id = %s", trial["trial_id"])
        assert set(kept) == {trial["checkpoint_id"], trial["best_checkpoint_id"]}
        (newest,) = shop.rows("SELECT * FROM easeml.checkpoints WHERE checkpoint_id = %s", trial["checkpoint_id"])
        last = shop.rows("SELECT * FROM easeml.training_units WHERE checkpoint_id = %s", trial["checkpoint_id"])
        assert [(unit["epoch"], unit["state_sha256"]) for unit in last] == [(3, newest["sha256"])]


def test_slots_and_coordinator_are_shown(shop: Session, flowers: int) -> None:
    slots = shop.rows("SELECT * FROM easeml.slot_status ORDER BY slot_id")
    assert [(slot["slot_id"], slot["status"], slot["trial_id"]) for slot in slots] == [
        (1, "idle", None),
        (2, "idle", None),
    ]
    assert all(slot["n_units_done"] > 0 for slot in slots)
    newest = "SELECT is_alive FROM easeml.coordinator_status ORDER BY lease_number DESC LIMIT 1"
    assert shop.value(newest)  # earlier ones may have been killed by tests before this one


def test_wait_returns_when_the_run_has_ended_and_tells_of_progress(shop: Session, flowers: int) -> None:
    notices: list[str] = []
    session = shop.again()
    session.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    run_id = session.value("SELECT easeml.select_models('flowers', '{linear}', n_configs => 1, max_epochs => 1)")
    session.execute(f"CALL easeml.wait({run_id}, 300)")
    assert session.value("SELECT status FROM easeml.run_status WHERE run_id = %s", run_id) == "finished"
    assert notices[0] == f"run {run_id} trains 1 trial for 1 epoch"
    summary = notices[notices.index(f"run {run_id}: finished, 9 of 9 units") + 1 :]
    assert summary[0].startswith(f"Run {run_id} is finished")


def test_one_seed_gives_the_same_states_and_leaderboard(shop: Session, flowers: int) -> None:
    again, other = (shop.value(FLOWERS, seed) for seed in (1, 2))  # both at once
    for run_id in (again, other):
        assert wait_for(shop, run_id)["status"] == "finished"
    assert shop.rows(OUTCOME, again) == shop.rows(OUTCOME, flowers)
    assert shop.rows(BOARD, again) == shop.rows(BOARD, flowers)
    states = {row["state_sha256"] for row in shop.rows(OUTCOME, flowers)}
    assert len(states) == 4 * 3 * N_PARTITIONS
    assert states.isdisjoint(row["state_sha256"] for row in shop.rows(OUTCOME, other))


def test_every_architecture_that_fits_can_be_trained(shop: Session) -> None:
    names = "{mlp,sgd,perceptron,passive_aggressive,gaussian_nb,multinomial_nb}"
    run_id = run(shop, f"SELECT easeml.select_models('flowers', '{names}', n_configs => 6, max_epochs => 1)")
    board = shop.rows(BOARD, run_id)
    assert sorted("{" + row["architecture"] for row in board) == sorted("{" + name for name in names[1:-1].split(","))
    assert all(row["test_metric"] is not None for row in board)


# Predictions


def test_all_ways_to_predict_a_label_agree(shop: Session, flowers: int) -> None:
    with shop.transaction(force_rollback=True):
        n_rows = shop.value("SELECT easeml.predict_table('flowers', 'flowers', '\"My Answers\"')")
        rows = shop.rows("""
            SELECT a.*, easeml.predict('flowers', ARRAY[petal, sepal]) AS by_numbers, easeml.predict('flowers',
                to_jsonb(f)) AS by_json,
                easeml.predict_value('flowers', to_jsonb(f)) AS value, p.label, p.probability AS p,
                    p.serving_trial_id AS trial_id,
                j.label AS json_label, j.probability AS json_p
            FROM flowers f JOIN "My Answers" a USING (id), LATERAL easeml.predict_row('flowers', ARRAY[petal, sepal]) p,
                LATERAL easeml.predict_row('flowers', to_jsonb(f)) j
        """)
    assert n_rows == len(rows) == 240
    best = shop.value(
        "SELECT trial_id FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank, trial_id LIMIT 1", flowers
    )
    for row in rows:
        labels = {row[name] for name in ("predicted_label", "by_numbers", "by_json", "label", "json_label")}
        assert len(labels) == 1
        assert row["probability"] == pytest.approx(row["p"], rel=1e-5)
        assert row["p"] == row["json_p"]
        assert 1 / 3 <= row["p"] <= 1
        assert row["value"] is None
    assert {row["trial_id"] for row in rows} <= {
        best,
        *shop.values("SELECT trial_id FROM easeml.trials WHERE run_id <> %s", flowers),
    }


def test_all_ways_to_predict_a_value_agree(shop: Session, houses: int) -> None:
    (first, second) = shop.rows(BOARD, houses)
    assert first["config"]["learning_rate"] == 0.1
    assert first["validation_metric"] < second["validation_metric"]  # rmse: less is better
    assert first["validation_metric"] < 500
    with shop.transaction(force_rollback=True):
        shop.execute("SELECT easeml.predict_table('houses', 'houses', 'answers')")
        rows = shop.rows("""
            SELECT a.*, h.price, easeml.predict_value('houses', features) AS value,
                easeml.predict_value('houses', to_jsonb(h)) AS by_json,
                easeml.predict('houses', features)::float8 AS by_text, p.label, p.probability, p.value AS row_value
            FROM houses h JOIN answers a USING (id), LATERAL easeml.predict_row('houses', features) p
        """)
    for row in rows:
        assert row["predicted_value"] == pytest.approx(row["value"], rel=1e-4, abs=1)
        assert row["value"] == row["by_json"] == row["by_text"] == row["row_value"] == float(row["label"])
        assert row["probability"] is None
    assert np.sqrt(np.mean([(row["price"] - row["value"]) ** 2 for row in rows])) < 500


def test_an_outlier_gets_the_answer_of_the_end_of_what_training_saw(shop: Session, houses: int) -> None:
    call = "SELECT easeml.predict_value('houses', ARRAY[%s, 0, 0]::float8[])"
    low, high = shop.value(call, 0), shop.value(call, 16)  # each of the 17 is in some training row
    assert high > low + 10_000
    assert [shop.value(call, value) for value in (-1e300, 1e300, 17)] == [low, high, high]
    row = "SELECT clipped FROM easeml.predict_row('houses', ARRAY[%s, %s, %s]::float8[])"
    told = [shop.value(row, *values) for values in ((1, 0, 0), (17, 0, 0), (1, 0, -1e300))]
    assert told == [None, ["features"], ["features"]]


def test_mixed_columns_train_and_predict(shop: Session) -> None:
    run_id = run(
        shop,
        "SELECT easeml.select_models('people', '{mlp}', procedure => 'grid', max_epochs => 10,"
        ' search_space => \'{"learning_rate": 0.01, "batch_size": 8}\')',
    )
    (row,) = shop.rows(BOARD, run_id)
    assert row["validation_metric"] > 0.9  # the town tells
    with shop.transaction(force_rollback=True):
        shop.execute("CREATE VIEW guests AS SELECT * FROM people WHERE number <= 60")
        shop.execute("CREATE TABLE crowd (LIKE people)")
        shop.execute("CREATE TABLE crowd_2 () INHERITS (crowd)")
        shop.execute("INSERT INTO crowd SELECT * FROM people WHERE number <= 30")
        shop.execute("INSERT INTO crowd_2 SELECT p.* FROM people p CROSS JOIN generate_series(1, 30) WHERE number > 30")
        for source, n_rows in (("guests", 60), ("people", 200), ("crowd", 30 + 170 * 30)):
            assert shop.value("SELECT easeml.predict_table('people', %s, %s)", source, f"{source}_out") == n_rows
            answers = shop.rows(
                f"SELECT easeml.predict('people', to_jsonb(p)) AS label, o.predicted_label, buys"
                f" FROM people p JOIN {source}_out o USING (number, buys) WHERE number <= 60"
            )
            assert len(answers) == {"guests": 60, "people": 60, "crowd": 30 + 30 * 30}[source]
            assert all(answer["label"] == answer["predicted_label"] for answer in answers)
        shop.execute("INSERT INTO people VALUES (NULL, 'never seen', NULL, NULL, 999, NULL)")
        assert shop.value("SELECT easeml.predict('people', to_jsonb(p)) FROM people p WHERE number = 999") in (
            "true",
            "false",
        )


def test_the_named_trial_answers_before_the_deployed_before_the_best(shop: Session) -> None:
    shop.execute("SELECT easeml.create_dataset('huts', 'houses', '{features}', 'price')")
    run_id = run(
        shop,
        "SELECT easeml.select_models('huts', '{linear}', procedure => 'grid', max_epochs => 2,"
        ' search_space => \'{"learning_rate": [0.0001, 0.1], "batch_size": 8}\')',
    )
    best, worst = shop.values("SELECT trial_id FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank", run_id)
    assert best > worst
    row = "SELECT (easeml.predict_row('huts', ARRAY[1, 2, 3]::float8[])).serving_trial_id"
    assert shop.value(row) == best
    shop.execute("SELECT easeml.deploy(%s)", [worst])
    assert shop.value(row) == worst
    assert shop.values("SELECT trial_id FROM easeml.leaderboard WHERE is_deployed") == [worst]
    named = "SELECT (easeml.predict_row('huts', ARRAY[1, 2, 3]::float8[], %s)).serving_trial_id"
    assert shop.value(named, best) == best
    shop.execute("SELECT easeml.deploy(%s)", [best])
    assert shop.value(row) == best
    shop.execute("SELECT easeml.undeploy('huts')")
    assert shop.value(row) == best
    later = run(
        shop, "SELECT easeml.select_models('huts', '{linear}', n_configs => 1, metric => 'mae', max_epochs => 1)"
    )
    assert shop.value(row) == best  # what answers is chosen by rmse, as in the first run
    shop.execute("SELECT easeml.refresh_dataset('huts')")
    weak = '{"learning_rate": 0.00001, "batch_size": 64}'
    run(shop, f"SELECT easeml.select_models('huts', '{{linear}}', '{weak}', 'grid', max_epochs => 1)")
    assert shop.value(row) == best  # a weak run on new rows takes nothing over
    (serving,) = shop.rows("SELECT * FROM easeml.serving WHERE dataset_name = 'huts'")
    expected = {"trial_id": best, "run_id": run_id, "dataset_version": 1, "metric": "rmse", "is_deployed": False}
    assert serving | expected == serving
    with pytest.raises(psycopg.Error, match=f"run {run_id} has trial {best}, which answers for dataset 'huts'"):
        shop.execute("SELECT easeml.drop_run(%s)", [run_id])
    shop.execute("SELECT easeml.drop_run(%s)", [later])
    assert shop.value(row) == best
    assert shop.value("SELECT count(*) FROM easeml.deployments") == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("predict('flowers', ARRAY[1, 2, 3])", "expected 2 numbers, got 3"),
        ("predict('flowers', ARRAY[]::int[])", "expected 2 numbers, got 0"),
        ("predict('flowers', NULL::int[])", "expected an array of numbers, got NULL"),
        ("predict('flowers', '\\x0102'::bytea || '\\x03')", "expected 2 numbers, got 3"),
        ("predict('flowers', NULL::bytea)", "expected bytea, got NULL"),
        ("predict('flowers', NULL::jsonb)", "expected a json object of columns, got NULL"),
        ("predict('flowers', '[1, 2]'::jsonb)", "expected a json object of columns, got an array"),
        ("predict('flowers', '{\"petal\": 1}'::jsonb)", "lacks the input 'sepal'"),
        ('predict(\'flowers\', \'{"petal": 1, "sepal": "x"}\'::jsonb)', "'sepal': expected a number, got 'x'"),
        ("predict('flowers', '{\"petal\": 1, \"sepal\": [1, 2]}'::jsonb)", "'sepal': expected 1 number.*got 2"),
        ("predict('houses', '{\"features\": [1, 2]}'::jsonb)", r"'features': expected 3 number.*got 2"),
        ("predict('houses', '{\"features\": [[1], [2, 3]]}'::jsonb)", "'features': expected a number"),
        ("predict_table('houses', 'ragged', 'answers')", "do not all have the declared shape"),
        ("predict_table('houses', 'wordy', 'answers')", "'features' of public.wordy has type text"),
        ("predict_table('houses', 'flowers', 'answers')", "no column 'features'"),
        ("predict('flowers', '{1, -Infinity}'::float8[])", "'sepal': expected finite numbers, got an infinite one"),
        ('predict(\'flowers\', \'{"petal": "inf", "sepal": 1}\'::jsonb)', "'petal': expected finite numbers"),
        ("predict_table('flowers', 'endless', 'answers')", "'petal': .* got an infinite one in 2 rows"),
    ],
)
def test_shapes_that_do_not_match_are_refused(
    shop: Session, flowers: int, houses: int, call: str, message: str
) -> None:
    with shop.transaction(force_rollback=True):
        shop.execute(
            "CREATE TABLE ragged AS SELECT i AS id, CASE i WHEN 5 THEN ARRAY[1.0, 2] ELSE ARRAY[1.0, 2, 3] END"
            " AS features FROM generate_series(1, 9) i"
        )
        shop.execute("CREATE TABLE wordy AS SELECT 'x'::text AS features")
        shop.execute(
            "CREATE TABLE endless AS SELECT id, 1 AS sepal, float8 'inf' AS petal FROM generate_series(1, 2) id"
        )
        with pytest.raises(psycopg.Error, match=message) as refused, shop.transaction():
            shop.execute(f"SELECT easeml.{call}")  # type: ignore[arg-type]
        assert refused.value.sqlstate == ("ML001" if "no column" in message else "ML009")
        assert shop.value("SELECT to_regclass('answers')") is None


@pytest.mark.parametrize("output", ["", "a b", "a.b.c.d", "x; DROP TABLE flowers", '"', None])
def test_output_must_be_a_name(shop: Session, houses: int, output: str | None) -> None:
    with pytest.raises(psycopg.Error, match="output: expected the name of a new table") as refused:
        shop.execute("SELECT easeml.predict_table('houses', 'houses', %s)", [output])
    assert refused.value.sqlstate == "ML001"


def test_existing_tables_are_never_overwritten(shop: Session, houses: int) -> None:
    with pytest.raises(psycopg.Error, match="flowers exists already") as refused:
        shop.execute("SELECT easeml.predict_table('houses', 'houses', 'flowers')")
    assert refused.value.sqlstate == "ML004"


def test_an_empty_source_gives_an_empty_table(shop: Session, houses: int) -> None:
    with shop.transaction(force_rollback=True):
        shop.execute("CREATE TABLE nobody (LIKE houses)")
        assert shop.value("SELECT easeml.predict_table('houses', 'nobody', 'answers')") == 0
        assert shop.value("SELECT count(*) FROM answers") == 0


# How runs end


def test_a_trial_that_diverges_fails_alone(shop: Session) -> None:
    run_id = run(
        shop,
        "SELECT easeml.select_models('houses', '{linear}', procedure => 'grid', max_epochs => 2,"
        ' search_space => \'{"optimizer": "sgd", "learning_rate": [1000, 0.01], "batch_size": 1, "momentum": 0.9}\')',
    )
    good, bad = shop.rows("SELECT * FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank", run_id)
    assert (good["status"], good["failure_reason"], good["config"]["learning_rate"]) == ("finished", None, 0.01)
    assert (bad["status"], bad["validation_metric"], bad["config"]["learning_rate"]) == ("failed", None, 1000)
    assert "diverged" in bad["failure_reason"]
    (event,) = shop.rows("SELECT * FROM easeml.run_events WHERE run_id = %s AND kind = 'failed'", run_id)
    assert event["trial_id"] == bad["trial_id"]
    assert "diverged" in event["message"]
    (status,) = shop.rows("SELECT * FROM easeml.run_status WHERE run_id = %s", run_id)
    assert (status["n_finished"], status["n_failed"], status["best_trial_id"]) == (1, 1, good["trial_id"])
    assert set(shop.values("SELECT status FROM easeml.slot_status")) == {"idle"}


def test_a_run_whose_trials_all_fail_has_failed_and_can_be_resumed(shop: Session) -> None:
    statement = (
        "SELECT easeml.select_models('houses', '{linear}', procedure => 'grid', max_epochs => 1,"
        ' search_space => \'{"optimizer": "sgd", "learning_rate": 1000, "batch_size": 1}\')'
    )
    run_id = shop.value(statement)
    for _ in range(2):
        status = wait_for(shop, run_id)
        assert status["status"] == "failed"
        assert "all 1 trials failed; the first: trial diverged" in status["failure_reason"]
        shop.execute("SELECT easeml.resume(%s)", [run_id])
    wait_for(shop, run_id)


def test_max_seconds_ends_a_run_with_what_it_has(shop: Session, flowers: int) -> None:
    run_id = shop.value(
        "SELECT easeml.select_models('flowers', '{linear}', n_configs => 3, max_epochs => 100000, max_seconds => 4)"
    )
    status = wait_for(shop, run_id)
    assert status["status"] == "finished"
    assert status["elapsed_seconds"] > 3.9  # the coordinator's clock counts, the server's is shown
    best, *others = shop.rows(BOARD, run_id)
    assert {row["status"] for row in others} == {"stopped"}
    assert (best["status"], best["test_metric"] is not None) == ("finished", True)
    assert best["n_epochs_done"] > 0
    assert shop.value("SELECT easeml.predict('flowers', ARRAY[1, 2], %s)", status["best_trial_id"]) is not None
    (row,) = shop.rows("CALL easeml.replay(%s, until_epoch => 2)", status["best_trial_id"])
    assert row["result"]["is_identical"]


def test_dropping_a_data_set_under_a_running_run_ends_it(shop: Session) -> None:
    shop.execute("SELECT easeml.create_dataset('passing', 'flowers', '{petal}', 'kind')")
    run_id = shop.value("SELECT easeml.select_models('passing', '{linear,mlp}', n_configs => 4, max_epochs => 1000)")
    wait_for(shop, run_id, "running")
    shop.execute("SELECT easeml.drop_dataset('passing', cascade => true)")
    assert shop.value("SELECT count(*) FROM easeml.runs WHERE run_id = %s", run_id) == 0
    assert shop.value("SELECT count(*) FROM easeml.training_units WHERE run_id = %s", run_id) == 0
    run(shop, "SELECT easeml.select_models('flowers', '{linear}', n_configs => 2, max_epochs => 1)")  # both slots live


# Of units that take minutes: nothing but a cancel ends them within a test.
ENDLESS = """
SELECT easeml.select_models('houses', '{mlp}', procedure => 'grid', max_epochs => 1000, search_space =>
    '{"batch_size": 1, "hidden_units": [[2048, 2048, 2048]], "learning_rate": [0.001, 0.0001]}')
"""


def test_cancel_reaches_busy_units_and_resume_finishes(shop: Session) -> None:
    run_id = shop.value(ENDLESS)
    shop.wait_until(
        "SELECT count(*) = 2 FROM easeml.slots s JOIN easeml.trials t USING (trial_id)"
        " WHERE t.run_id = %s AND s.unit_started_at IS NOT NULL",
        run_id,
    )
    n_done = shop.value("SELECT n_units_done FROM easeml.run_status WHERE run_id = %s", run_id)
    shop.execute("SELECT easeml.cancel(%s)", [run_id])
    shop.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity"
        " WHERE application_name LIKE 'easeml slot%' AND state <> 'idle' AND datname = current_database()"
    )
    (status,) = shop.rows("SELECT * FROM easeml.run_status WHERE run_id = %s", run_id)
    assert (status["status"], status["n_units_done"]) == ("cancelled", n_done)
    assert set(shop.values("SELECT status FROM easeml.trials WHERE run_id = %s", run_id)) == {"cancelled"}
    shop.wait_until("SELECT bool_and(status = 'idle') FROM easeml.slot_status")
    # What nobody has trained yet may be made small.
    small = '{"batch_size": 16, "hidden_units": [8]}'
    shop.execute(
        "UPDATE easeml.trials SET max_epochs = 1, config = config || %s::jsonb WHERE run_id = %s", [small, run_id]
    )
    shop.execute("SELECT easeml.resume(%s)", [run_id])
    status = wait_for(shop, run_id)
    assert (status["status"], status["n_finished"]) == ("finished", 2)
    # It comes when the run has ended.
    shop.wait_until("SELECT count(*) = 1 FROM easeml.run_events WHERE run_id = %s AND kind = 'summary'", run_id)
    kinds = shop.values("SELECT kind FROM easeml.run_events WHERE run_id = %s ORDER BY event_id", run_id)
    assert [kind for kind in kinds if kind != "scheduled"] == ["cancelled", "resumed", "summary"]


# Damaged states


def flip_bit(database: Session, column: str, trial_id: int) -> None:
    database.execute(
        "UPDATE easeml.checkpoints c SET state ="
        " set_bit(c.state, 8 * length(c.state) - 3, 1 - get_bit(c.state, 8 * length(c.state) - 3))"
        f" FROM easeml.trials t WHERE t.trial_id = %s AND c.checkpoint_id = t.{column}",
        [trial_id],
    )


def test_a_state_with_a_flipped_bit_is_never_served(shop: Session, houses: int) -> None:
    (trial_id, _) = shop.values("SELECT trial_id FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank", houses)
    with shop.transaction(force_rollback=True):
        # A copy, which this session has never restored.
        shop.execute(
            "WITH copy AS (INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, state)"
            " SELECT trial_id, tenant, epoch, n_bytes, sha256, state FROM easeml.checkpoints"
            " WHERE trial_id = %s LIMIT 1"
            " RETURNING *) UPDATE easeml.trials t SET best_checkpoint_id = c.checkpoint_id FROM copy c"
            " WHERE t.trial_id = c.trial_id",
            [trial_id],
        )
        flip_bit(shop, "best_checkpoint_id", trial_id)
        for call in ("predict('houses', '{1,2,3}'::int[], %s)", "predict_table('houses', 'houses', 'answers', %s)"):
            with pytest.raises(psycopg.Error, match="does not match its digest") as refused, shop.transaction():
                shop.execute(f"SELECT easeml.{call}", [trial_id])
            assert refused.value.sqlstate == "ML005"


@pytest.mark.slow
def test_training_on_from_a_flipped_bit_fails_that_trial_alone(
    shop: Session, another_coordinator: Callable[[], None]
) -> None:
    run_id = shop.value("SELECT easeml.select_models('flowers', '{linear}', n_configs => 3, max_epochs => 200)")
    trials = shop.values("SELECT trial_id FROM easeml.trials WHERE run_id = %s ORDER BY trial_number", run_id)
    shop.wait_until("SELECT min(n_steps_done) >= %s FROM easeml.trials WHERE run_id = %s", 2 * N_PARTITIONS, run_id)
    shop.execute("SELECT easeml.cancel(%s)", [run_id])
    another_coordinator()  # so that nobody keeps the live trials any more
    shop.execute("UPDATE easeml.trials SET max_epochs = n_steps_done / 6 + 2 WHERE run_id = %s", [run_id])
    flip_bit(shop, "checkpoint_id", trials[1])
    shop.execute("SELECT easeml.resume(%s)", [run_id])
    assert wait_for(shop, run_id)["status"] == "finished"
    rows = shop.rows("SELECT status, failure_reason FROM easeml.trials WHERE run_id = %s ORDER BY trial_number", run_id)
    shop.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    assert [row["status"] for row in rows] == ["finished", "failed", "finished"]
    assert "does not match its digest" in rows[1]["failure_reason"]
