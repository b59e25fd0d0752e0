"""Evaluation on a real server: against scikit-learn on the same rows and outputs, who may ask, and bad input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from sklearn import metrics

from tests.fixtures.sessions import Session

N_SLOTS = 1
ROWS = """
CREATE TABLE rowsx AS SELECT i AS id, sin(i)::float8 AS a, CASE WHEN i % 13 > 0 THEN cos(i * 1.7)::float8 END AS b,
    (ARRAY['red', 'green', 'blue'])[1 + i % 3] AS c,
    CASE WHEN sin(i) + cos(i * 1.7) + sin(i * i) / 2 > 0 THEN 'yes' ELSE 'no' END AS is_kept,
    'k' || (1 + floor(2 * (sin(i) + 1) + (i % 3) * 0.5))::int AS kind,
    10 + 3 * sin(i) + cos(i * 1.7) * 2 + (i % 3) + sin(i * i) AS price FROM generate_series(1, 800) i
"""
ROW = '{"a": 0.5, "b": null, "c": "red"}'
RUNS = {
    "kept": ("is_kept", ["lightgbm", "mlp"]),
    "kinds": ("kind", ["random_forest", "tabm", "gaussian_nb"]),
    "prices": ("price", ["lightgbm", "linear", "extra_trees"]),
}


@pytest.fixture(scope="module")
def ada(module_coordinated: Session) -> Session:
    """A tenant with a dataset of each task, trained by several architectures, and one that was never trained."""
    ada = module_coordinated.as_role("ada", "easeml_tenant")
    module_coordinated.execute("GRANT CREATE ON SCHEMA public TO ada")
    ada.execute(ROWS)
    for name, (target, architectures) in RUNS.items():
        ada.execute("SELECT easeml.create_dataset(%s, 'rowsx', '{a,b,c}', %s, n_partitions => 2)", [name, target])
        ada.execute(
            "SELECT easeml.select_models(%s, %s::text[], n_configs => %s, max_epochs => 2)",
            [name, architectures, len(architectures)],
        )
    ada.execute("SELECT easeml.create_dataset('idle', 'rowsx', '{a,b,c}', 'kind')")
    module_coordinated.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    return ada


@pytest.fixture(scope="module")
def shared(ada: Session, module_database: Session) -> Session:
    """A superuser's session that becomes several roles; one, since each new one would import torch again."""
    return module_database.again()


@pytest.fixture(scope="module")
def evaluated(ada: Session) -> Callable[[str, int], dict[str, dict[str, float]]]:
    """`evaluated(dataset, trial_id)["test"]["accuracy"]`."""

    def ask(dataset: str, trial_id: int) -> dict[str, dict[str, float]]:
        rows = ada.rows("SELECT * FROM easeml.evaluate(%s, %s)", dataset, trial_id)
        assert {row["evaluated_trial_id"] for row in rows} == {trial_id}
        return {split: {row["metric"]: row[split] for row in rows} for split in ("validation", "test")}

    return ask


def trials_of(ada: Session, dataset: str) -> list[int]:
    return ada.values("SELECT trial_id FROM easeml.leaderboard WHERE dataset_name = %s", dataset)


def class_outputs(ada: Session, dataset: str, trial_id: int, split: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    rows = ada.rows("SELECT * FROM easeml.held_out_answers(%s, %s, %s)", dataset, trial_id, split)
    labels = sorted(rows[0]["probabilities"])
    y = np.array([labels.index(row["actual"]) for row in rows])
    p = np.array([[row["probabilities"][label] for label in labels] for row in rows])
    assert [labels[k] for k in p.argmax(axis=1)] == [row["predicted"] for row in rows]
    return y, p, labels


@pytest.mark.parametrize("dataset", ["kept", "kinds"])
def test_metrics_of_classes_are_those_of_scikit_learn_on_the_same_rows(
    ada: Session, evaluated: Any, dataset: str
) -> None:
    for trial_id in trials_of(ada, dataset):
        found = evaluated(dataset, trial_id)
        for split in ("validation", "test"):
            y, p, labels = class_outputs(ada, dataset, trial_id, split)
            best, hot = p.argmax(axis=1), np.eye(len(labels))[y]
            scores = (hot[:, 1], p[:, 1]) if len(labels) == 2 else (hot, p)
            expected = {
                "n_rows": len(y),
                "n_classes": len(set(y)),
                "accuracy": metrics.accuracy_score(y, best),
                "balanced_accuracy": metrics.balanced_accuracy_score(y, best),
                "macro_f1": metrics.f1_score(y, best, average="macro"),
                "log_loss": -np.log(p[np.arange(len(y)), y].clip(np.finfo(np.float32).eps)).mean(),
                "roc_auc": metrics.roc_auc_score(*scores, average="macro"),
                "average_precision": metrics.average_precision_score(*scores, average="macro"),
                "matthews": metrics.matthews_corrcoef(y, best),
            }
            assert {name: found[split][name] for name in expected} == pytest.approx(expected, rel=1e-9)
            matrix = ada.values("SELECT n_rows FROM easeml.confusion_matrix(%s, %s, %s)", dataset, trial_id, split)
            assert matrix == metrics.confusion_matrix(y, best).ravel().tolist()


def test_metrics_of_numbers_are_those_of_scikit_learn_on_the_same_rows(ada: Session, evaluated: Any) -> None:
    for trial_id in trials_of(ada, "prices"):
        rows = ada.rows("SELECT * FROM easeml.residuals('prices', %s)", trial_id)
        told = "SELECT row_key FROM easeml.dataset_rows('prices') WHERE split = 'test'"
        assert sorted(row["row_key"] for row in rows) == sorted(ada.values(told))
        y, p = (np.array([row[name] for row in rows]) for name in ("actual", "predicted"))
        assert [row["residual"] for row in rows] == (y - p).tolist()
        expected = {
            "n_rows": len(y),
            "rmse": metrics.root_mean_squared_error(y, p),
            "mae": metrics.mean_absolute_error(y, p),
            "r2": metrics.r2_score(y, p),
            "explained_variance": metrics.explained_variance_score(y, p),
            "max_error": metrics.max_error(y, p),
        }
        found = evaluated("prices", trial_id)["test"]
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-9)


def test_what_units_measured_is_measured_again_and_shown_in_a_view(ada: Session, evaluated: Any) -> None:
    rows = ada.rows("SELECT * FROM easeml.trial_metrics")
    assert len(rows) == 2 * ada.value("SELECT count(*) FROM easeml.leaderboard")
    for row in rows:
        found = evaluated(row["dataset_name"], row["trial_id"])[row["split"]]
        measured = {name: row[name] for name in found if name in row and row[name] is not None}
        assert len(measured) == 5 if row["dataset_name"] != "prices" else 4
        assert {name: found[name] for name in measured} == pytest.approx(measured, rel=1e-6)
    board = ada.rows("SELECT trial_id, test_metric FROM easeml.leaderboard ORDER BY 1")
    assert board == ada.rows(
        "SELECT trial_id, metric_value AS test_metric FROM easeml.trial_metrics WHERE split = 'test' ORDER BY 1"
    )


def test_without_a_trial_the_one_that_answers_is_measured(ada: Session) -> None:
    worst = ada.value("SELECT trial_id FROM easeml.leaderboard WHERE dataset_name = 'kinds' ORDER BY rank DESC LIMIT 1")
    asked = "SELECT DISTINCT evaluated_trial_id FROM easeml.evaluate('kinds')"
    assert ada.value(asked) != worst
    ada.execute("SELECT easeml.deploy(%s)", [worst])
    assert ada.value(asked) == worst
    ada.execute("SELECT easeml.undeploy('kinds')")


def test_a_threshold_and_a_positive_class_change_what_counts(ada: Session) -> None:
    trial_id = trials_of(ada, "kept")[0]
    y, p, _ = class_outputs(ada, "kept", trial_id, "test")
    for positive, k in (("no", 0), ("yes", 1)):
        rows = ada.rows("SELECT * FROM easeml.evaluate('kept', %s, 0.7, %s)", trial_id, positive)
        found = {row["metric"]: row["test"] for row in rows}
        assert found["recall"] == pytest.approx(metrics.recall_score(y == k, p[:, k] >= 0.7))
        assert found["f1"] == pytest.approx(metrics.f1_score(y == k, p[:, k] >= 0.7))
        matrix = ada.values(
            "SELECT n_rows FROM easeml.confusion_matrix('kept', %s, 'test', 0.7, %s)", trial_id, positive
        )
        said = np.where(p[:, k] >= 0.7, k, 1 - k)
        assert matrix == metrics.confusion_matrix(y, said).ravel().tolist()


def test_curves_are_those_of_scikit_learn(ada: Session) -> None:
    for dataset in ("kept", "kinds"):
        trial_id = trials_of(ada, dataset)[0]
        y, p, labels = class_outputs(ada, dataset, trial_id, "test")
        roc = ada.rows("SELECT * FROM easeml.roc_curve(%s, %s, positive => %s)", dataset, trial_id, labels[1])
        columns = ("false_positive_rate", "true_positive_rate", "threshold")
        for name, expected in zip(columns, metrics.roc_curve(y == 1, p[:, 1]), strict=True):
            assert [row[name] for row in roc] == expected.tolist()
        assert {row["positive_class"] for row in roc} == {labels[1]}
        bins = ada.rows("SELECT * FROM easeml.calibration(%s, %s, n_bins => 4)", dataset, trial_id)
        assert {row["positive_class"] for row in bins} == ({"yes"} if dataset == "kept" else set(labels))
        assert sum(row["n_rows"] for row in bins) == len(y) * len({row["positive_class"] for row in bins})
    shown = ada.rows("SELECT * FROM easeml.class_metrics('kinds')")
    assert [row["label"] for row in shown] == labels
    assert math.isclose(sum(row["n_rows"] for row in shown), len(y))


def test_importance_finds_the_inputs_that_decide(ada: Session) -> None:
    for dataset in ("kept", "prices"):
        for trial_id in trials_of(ada, dataset):
            rows = ada.rows("SELECT * FROM easeml.explain(%s, %s, n_repeats => 2)", dataset, trial_id)
            assert {row["input"] for row in rows} == {"a", "b", "c"}
            if dataset == "kept" and rows[0]["importance"] > 0.1:
                assert rows[-1]["input"] == "c", "it tells nothing of this target"
    asked = "SELECT * FROM easeml.explain('kept', metric => 'roc_auc', split => 'validation', seed => 3, n_rows => 50)"
    assert ada.rows(asked) == ada.rows(asked)


@pytest.mark.parametrize("dataset", RUNS)
def test_parts_of_an_answer_add_up_to_it(ada: Session, dataset: str) -> None:
    for trial_id in trials_of(ada, dataset):
        rows = ada.rows("SELECT * FROM easeml.explain_row(%s, %s, %s, n_orders => 20)", dataset, ROW, trial_id)
        assert [row["input"] for row in rows if row["input"] is None] == [rows[0]["input"]]
        values = {row["input"]: row["value"] for row in rows[1:]}
        assert values == {"a": "0.5", "b": None, "c": "red"}
        total = sum(row["contribution"] for row in rows)
        answer = ada.rows("SELECT * FROM easeml.predict_row(%s, %s::jsonb, %s)", dataset, ROW, trial_id)[0]
        (unit,), (label,) = ({row[name] for row in rows} for name in ("unit", "explained_label"))
        if dataset == "prices":
            assert (unit, label) == ("value", None)
            assert total == pytest.approx(answer["value"], rel=1e-5)
        else:
            assert label == answer["label"]
            said = 1 / (1 + math.exp(-total)) if unit == "log odds" and dataset == "kept" else total
            assert said == pytest.approx(answer["probability"], abs=1e-5)
        architecture = ada.value("SELECT architecture FROM easeml.leaderboard WHERE trial_id = %s", trial_id)
        assert {row["standard_error"] is None for row in rows[1:]} == {architecture == "lightgbm"}


def test_probabilities_of_all_classes_are_those_of_the_answer(ada: Session) -> None:
    for trial_id in trials_of(ada, "kinds"):
        answer = ada.rows("SELECT * FROM easeml.predict_row('kinds', %s::jsonb, %s)", ROW, trial_id)[0]
        found = ada.value("SELECT easeml.predict_probabilities('kinds', %s::jsonb, %s)", ROW, trial_id)
        assert max(found, key=found.__getitem__) == answer["label"]
        assert found[answer["label"]] == answer["probability"]
        assert sum(found.values()) == pytest.approx(1, abs=1e-5)
        assert found == ada.value("SELECT easeml.predict_probabilities('kinds', %s::text, %s)", ROW, trial_id)
    with pytest.raises(psycopg.Error, match="is a regression, which has no probabilities"):
        ada.execute("SELECT easeml.predict_probabilities('prices', %s::jsonb)", [ROW])
    with pytest.raises(psycopg.Error, match="'c' is a text and cannot be given as a number"):
        ada.execute("SELECT easeml.predict_probabilities('kinds', ARRAY[1.0, 2.0, 3.0])")


def test_hyperparameters_are_weighed_where_trials_vary(ada: Session, module_database: Session) -> None:
    with pytest.raises(psycopg.Error, match="has no architecture with 4 measured trials that differ"):
        ada.execute("SELECT easeml.hyperparameter_importance(min(run_id)) FROM easeml.run_status")
    run_id = ada.value("SELECT easeml.select_models('prices', '{sgd}', n_configs => 6, max_epochs => 1)")
    module_database.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)
    rows = ada.rows("SELECT * FROM easeml.hyperparameter_importance(%s)", run_id)
    assert {(row["architecture"], row["n_trials"]) for row in rows} == {("sgd", 6)}
    assert "alpha" in {row["hyperparameter"] for row in rows}
    stranger = module_database.as_role("held_stranger", "easeml_tenant")
    with pytest.raises(psycopg.Error, match=f"there is no run {run_id} that you can see"):
        stranger.execute("SELECT easeml.hyperparameter_importance(%s)", [run_id])
    ada.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


REFUSED = {
    "easeml.confusion_matrix('prices')": ("ML004", "dataset 'prices' is a regression, which has no confusion matrix"),
    "easeml.roc_curve('prices')": ("ML004", "dataset 'prices' is a regression, which has no ROC curve"),
    "easeml.residuals('kept')": ("ML004", "dataset 'kept' is a classification, which has no residuals"),
    "easeml.evaluate('kept', threshold => 1.2)": ("ML001", "threshold: expected a number from 0 to 1, got 1.2"),
    "easeml.evaluate('kept', threshold => 'NaN')": ("ML001", "threshold: expected a number from 0 to 1, got NaN"),
    "easeml.evaluate('kinds', threshold => 0.2)": (
        "ML001", "threshold: dataset 'kinds' has 5 classes, and none is named"),
    "easeml.roc_curve('kept', positive => 'ja')": ("ML003", "positive: dataset 'kept' has no class 'ja'"),
    "easeml.roc_curve('kept', split => 'train')": ("ML001", "split: expected validation or test, got 'train'"),
    "easeml.residuals('prices', split => NULL)": ("ML001", "split: expected validation or test, got NULL"),
    "easeml.calibration('kept', n_bins => 0)": ("ML001", "n_bins: expected a number from 1 to 1000, got 0"),
    "easeml.explain('kept', n_repeats => 0)": ("ML001", "n_repeats: expected a number from 1 to 1000, got 0"),
    "easeml.explain('kept', metric => 'rmse')": (
        "ML001", "metric: expected one that ranks, of easeml.evaluate, got 'rmse'"),
    "easeml.explain_row('kept', '{\"a\": 1}')": ("ML009", "the row lacks the input 'b'"),
    "easeml.explain_row('kept', NULL)": ("ML009", "inputs: expected a json object of columns, got NULL"),
    "easeml.explain_row('kept', '{\"a\": 1, \"b\": 1, \"c\": 1}', label => 'ja')": (
        "ML003", "label: dataset 'kept' has no class 'ja'"),
    "easeml.evaluate('nowhere')": ("ML003", "there is no dataset 'nowhere' whose rows role ada may see"),
    "easeml.evaluate(NULL)": ("ML003", "there is no dataset NULL whose rows role ada may see"),
    "easeml.evaluate('idle')": ("ML010", "dataset 'idle' has no trained trial yet"),
    "easeml.evaluate('kept', 999999)": ("ML003", "dataset 'kept' has no trial 999999"),
}  # fmt: skip


@pytest.mark.parametrize("call", REFUSED)
def test_bad_input_is_refused_in_one_line(ada: Session, call: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        ada.execute(f"SELECT * FROM {call}")  # type: ignore[arg-type]
    assert (refused.value.sqlstate, refused.value.diag.message_primary) == REFUSED[call]
    assert refused.value.diag.context is None


def test_a_trial_of_another_dataset_is_refused(ada: Session) -> None:
    other = trials_of(ada, "prices")[0]
    with pytest.raises(psycopg.Error, match=f"dataset 'kept' has no trial {other}"):
        ada.execute("SELECT * FROM easeml.evaluate('kept', %s)", [other])


def test_a_split_without_rows_is_said_and_the_other_is_measured(shared: Session) -> None:
    shared.execute("RESET ROLE")
    with shared.transaction(force_rollback=True):
        shared.execute(
            "DELETE FROM easeml.blocks WHERE split = 'test' AND dataset_id ="
            " (SELECT dataset_id FROM easeml.datasets WHERE dataset_name = 'prices')"
        )
        shared.execute("SET LOCAL ROLE ada")
        rows = shared.rows("SELECT * FROM easeml.evaluate('prices')")
        assert {row["test"] for row in rows} == {None}
        assert next(row["validation"] for row in rows if row["metric"] == "n_rows") > 0
        with pytest.raises(psycopg.Error, match="dataset 'prices' has no test rows"), shared.transaction():
            shared.execute("SELECT * FROM easeml.residuals('prices')")


def test_only_who_may_see_the_rows_gets_them(ada: Session, module_database: Session, shared: Session) -> None:
    """A connection keeps answers for all of its roles, so each is asked after the owner, in the same one."""
    for role in ("held_predictor", "held_mallory", "held_onlooker", "held_chief", "held_twofold"):
        module_database.as_role(role)
    module_database.execute("GRANT easeml_tenant TO held_mallory, held_twofold")
    module_database.execute("GRANT easeml_reader TO held_onlooker, held_twofold")
    module_database.execute("GRANT easeml_admin TO held_chief")
    for role in ("held_predictor", "held_mallory"):
        ada.execute("SELECT easeml.grant_use('kept', %s)", [role])
    shared.execute("RESET ROLE")
    calls = ("evaluate", "confusion_matrix", "class_metrics", "roc_curve", "calibration", "held_out_answers", "explain")
    for call in calls:
        shared.execute("SET ROLE ada")
        expected = shared.rows(f"SELECT * FROM easeml.{call}('kept')")
        shared.execute("SET ROLE held_chief")
        assert shared.rows(f"SELECT * FROM easeml.{call}('ada.kept')") == expected
        for role in ("held_predictor", "held_mallory", "held_onlooker", "held_twofold"):
            shared.execute(f"SET ROLE {role}")  # type: ignore[arg-type]
            for name in ("kept", "ada.kept"):
                with pytest.raises(psycopg.Error) as refused:
                    shared.execute(f"SELECT * FROM easeml.{call}(%s)", [name])  # type: ignore[arg-type]
                message = f"there is no dataset '{name}' whose rows role {role} may see"
                assert refused.value.diag.message_primary == message
                assert "You may use" not in (refused.value.diag.message_hint or ""), "names of others are theirs"
    shared.execute("SET ROLE held_chief")
    with pytest.raises(psycopg.Error, match="whose rows role held_chief may see") as unnamed:
        shared.execute("SELECT * FROM easeml.evaluate('kept')")
    assert (unnamed.value.diag.message_hint or "").startswith("Did you mean 'ada.kept'")
    shared.execute("SET ROLE held_predictor")
    with pytest.raises(psycopg.Error, match="whose rows role held_predictor may see"):
        shared.execute("SELECT * FROM easeml.explain_row('ada.kept', %s)", [ROW])
    assert set(shared.value("SELECT easeml.predict_probabilities('ada.kept', %s::jsonb)", ROW)) == {"yes", "no"}
    assert shared.value('SELECT easeml.predict(\'ada.kept\', \'{"a": 1, "b": 2, "c": "red"}\')') in ("yes", "no")
