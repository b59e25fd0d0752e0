"""Scores, curves and tables of held-out answers, against scikit-learn on the same rows and outputs: 20 datasets."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import datasets, linear_model, metrics, naive_bayes, tree
from sklearn.calibration import calibration_curve

from easeml_plpy.evaluation import classification, regression, tables
from easeml_plpy.evaluation.classification import ClassAnswers
from easeml_plpy.evaluation.regression import NumberAnswers
from easeml_plpy.evaluation.scores import score_values

EPS = np.finfo(np.float32).eps
REAL = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
CLASSIFIERS = {"bayes": naive_bayes.GaussianNB, "tree": lambda: tree.DecisionTreeClassifier(max_depth=3)}


def _held_out(load: Callable[[], Any], model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Targets of every second row, and what a model of the other rows answers for them, as float32."""
    data = load()
    rows, targets = (np.asarray(each) for each in (data.data, data.target))
    model.fit(rows[::2], targets[::2])
    said = model.predict_proba(rows[1::2]) if hasattr(model, "predict_proba") else model.predict(rows[1::2])
    return targets[1::2], said.astype(np.float32).astype(np.float64)


def _drawn(n_classes: int, seed: int, n_rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Random classes, rare ones among them, and probabilities that know something of them; some are equal."""
    rng = np.random.default_rng(seed)
    classes = rng.choice(n_classes, n_rows, p=np.arange(n_classes, 0, -1) ** 3 / (np.arange(n_classes + 1) ** 3).sum())
    margins = np.round(rng.normal(size=(n_rows, n_classes)) + 1.5 * np.eye(n_classes)[classes], 1)
    said = (np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)).astype(np.float32)
    return classes, said.astype(np.float64)


CLASSIFICATIONS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    **{f"{data}_{kind}": lambda data=data, kind=kind: _held_out(REAL[data], CLASSIFIERS[kind]())
       for data in REAL for kind in CLASSIFIERS},
    **{f"drawn_{n}": lambda n=n: _drawn(n, n) for n in (2, 3, 10, 40)},
}  # fmt: skip


def _numbers(seed: int, make: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=300)
    return make(hidden + rng.normal(size=300) / 3), make(hidden)


REGRESSIONS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "diabetes_linear": lambda: _held_out(datasets.load_diabetes, linear_model.Ridge()),
    "diabetes_tree": lambda: _held_out(datasets.load_diabetes, tree.DecisionTreeRegressor(max_depth=4)),
    "normal": lambda: _numbers(1, lambda x: x),
    "far": lambda: _numbers(2, lambda x: x + 1e6),
    "prices": lambda: _numbers(3, np.exp),
    "counts": lambda: _numbers(4, lambda x: np.abs(np.round(3 * x)) + 1),
    "few": lambda: tuple(each[:3] for each in _numbers(5, np.exp)),
    "large": lambda: _numbers(6, lambda x: x * 1e9),
}


def _expected_of_classes(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """What scikit-learn says, each score by its own call."""
    best, n_classes = p.argmax(axis=1), p.shape[1]
    hot = np.eye(n_classes)[y]
    is_there = np.isin(np.arange(n_classes), y)
    said = (hot[:, 1], p[:, 1]) if n_classes == 2 else (hot[:, is_there], p[:, is_there])
    confidence, is_right = p.max(axis=1), best == y
    bins = np.digitize(confidence, np.linspace(0, 1, 11)[1:-1])
    gaps = [abs((confidence - is_right)[bins == k].sum()) for k in range(10)]
    found = {
        "n_rows": len(y),
        "n_classes": len(np.unique(y)),
        "accuracy": metrics.accuracy_score(y, best),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, best),
        "macro_f1": metrics.f1_score(y, best, average="macro"),
        "log_loss": metrics.log_loss(y, p.clip(EPS, 1), labels=np.arange(n_classes)),
        "macro_precision": metrics.precision_score(y, best, average="macro"),
        "macro_recall": metrics.recall_score(y, best, average="macro"),
        "weighted_precision": metrics.precision_score(y, best, average="weighted"),
        "weighted_f1": metrics.f1_score(y, best, average="weighted"),
        "macro_jaccard": metrics.jaccard_score(y, best, average="macro"),
        "cohen_kappa": metrics.cohen_kappa_score(y, best),
        "matthews": metrics.matthews_corrcoef(y, best),
        "roc_auc": metrics.roc_auc_score(*said, average="macro"),
        "weighted_roc_auc": metrics.roc_auc_score(*said, average="weighted"),
        "average_precision": metrics.average_precision_score(*said, average="macro"),
        "weighted_average_precision": metrics.average_precision_score(*said, average="weighted"),
        "brier_score": metrics.brier_score_loss(y, p[:, 1]) if n_classes == 2 else ((p - hot) ** 2).sum(axis=1).mean(),
        "calibration_error": sum(gaps) / len(y),
        "top_3_accuracy": math.nan
        if n_classes < 4
        else metrics.top_k_accuracy_score(y, p, k=3, labels=range(n_classes)),
    }
    if n_classes == 2:
        found |= {
            "precision": metrics.precision_score(y, best),
            "recall": metrics.recall_score(y, best),
            "f1": metrics.f1_score(y, best),
            "specificity": metrics.recall_score(y, best, pos_label=0),
            "negative_predictive_value": metrics.precision_score(y, best, pos_label=0),
        }
    return found


def _expected_of_numbers(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    is_positive = min(y.min(), p.min()) > 0
    return {
        "n_rows": len(y),
        "rmse": metrics.root_mean_squared_error(y, p),
        "mae": metrics.mean_absolute_error(y, p),
        "r2": metrics.r2_score(y, p),
        "median_absolute_error": metrics.median_absolute_error(y, p),
        "max_error": metrics.max_error(y, p),
        "mean_error": np.mean(p - y),
        "explained_variance": metrics.explained_variance_score(y, p),
        "mean_absolute_percentage_error": metrics.mean_absolute_percentage_error(y, p),
        "root_mean_squared_log_error": metrics.root_mean_squared_log_error(y, p) if is_positive else math.nan,
        "d2_absolute_error": metrics.d2_absolute_error_score(y, p),
        "mean_poisson_deviance": metrics.mean_poisson_deviance(y, p) if is_positive else math.nan,
        "pearson": stats.pearsonr(y, p).statistic,
        "spearman": stats.spearmanr(y, p).statistic,
    }


def _equal(found: dict[str, float], expected: dict[str, float]) -> Iterator[str]:
    for name in expected.keys() | found.keys():
        if found[name] != pytest.approx(expected[name], rel=1e-9, abs=1e-9, nan_ok=True):
            yield f"{name}: {found[name]}, scikit-learn {expected[name]}"


@pytest.mark.parametrize("name", CLASSIFICATIONS)
def test_scores_of_classes_are_those_of_scikit_learn(name: str) -> None:
    y, p = CLASSIFICATIONS[name]()
    positive = 1 if p.shape[1] == 2 else None
    scores = classification.SCORES + (classification.POSITIVE_SCORES if positive else ())
    found = score_values(scores, ClassAnswers(y, p, positive))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(_equal(found, _expected_of_classes(y, p))) == []


@pytest.mark.parametrize("name", REGRESSIONS)
def test_scores_of_numbers_are_those_of_scikit_learn(name: str) -> None:
    y, p = REGRESSIONS[name]()
    assert list(_equal(score_values(regression.SCORES, NumberAnswers(y, p)), _expected_of_numbers(y, p))) == []


def test_there_are_20_datasets_and_more_than_30_scores() -> None:
    assert len(CLASSIFICATIONS) + len(REGRESSIONS) == 20
    names = [score.name for score in (*classification.SCORES, *classification.POSITIVE_SCORES, *regression.SCORES)]
    assert len(set(names)) > 30


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("positive", [0, 1])
def test_a_threshold_says_from_where_on_a_row_counts_as_positive(threshold: float, positive: int) -> None:
    y, p = CLASSIFICATIONS["drawn_2"]()
    answers = ClassAnswers(y, p, positive, threshold)
    found = score_values(classification.SCORES + classification.POSITIVE_SCORES, answers)
    said = p[:, positive] >= threshold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found["precision"] == pytest.approx(
            metrics.precision_score(y == positive, said, zero_division=np.nan), nan_ok=True
        )
    assert found["recall"] == pytest.approx(metrics.recall_score(y == positive, said))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y == positive, said))
    assert found["log_loss"] == score_values(classification.SCORES, ClassAnswers(y, p))["log_loss"]


def test_a_class_of_many_has_scores_of_its_own_at_a_threshold() -> None:
    y, p = CLASSIFICATIONS["drawn_10"]()
    found = score_values(classification.POSITIVE_SCORES, ClassAnswers(y, p, 2, 0.4))
    assert found["f1"] == pytest.approx(metrics.f1_score(y == 2, p[:, 2] >= 0.4))
    assert score_values(classification.SCORES, ClassAnswers(y, p, 2, 0.4))["accuracy"] == metrics.accuracy_score(
        y, p.argmax(axis=1)
    )


def test_what_is_not_defined_is_no_number() -> None:
    one_class = ClassAnswers(np.zeros(3, int), np.array([[0.9, 0.1]] * 3), 1)
    found = score_values(classification.SCORES + classification.POSITIVE_SCORES, one_class)
    assert {name for name, value in found.items() if math.isnan(value)} == {
        "roc_auc", "weighted_roc_auc", "average_precision", "weighted_average_precision", "top_3_accuracy",
        "precision", "recall", "f1", "cohen_kappa",
    }  # fmt: skip
    one_row = score_values(regression.SCORES, NumberAnswers(np.zeros(1), np.ones(1)))
    assert math.isnan(one_row["r2"])
    assert math.isnan(one_row["mean_absolute_percentage_error"])
    json.dumps(list(tables.roc_rows(one_class, ("a", "b"))), allow_nan=False)


@pytest.mark.parametrize("name", ["digits_bayes", "drawn_2", "drawn_40"])
def test_tables_of_classes_are_those_of_scikit_learn(name: str) -> None:
    y, p = CLASSIFICATIONS[name]()
    n_classes = p.shape[1]
    labels = tuple(f"class {k}" for k in range(n_classes))
    answers = ClassAnswers(y, p, 1 if n_classes == 2 else None)
    matrix = metrics.confusion_matrix(y, p.argmax(axis=1), labels=range(n_classes))
    rows = list(tables.confusion_rows(answers, labels))
    assert [row["n_rows"] for row in rows] == matrix.ravel().tolist()
    assert [(row["actual"], row["predicted"]) for row in rows] == [(a, b) for a in labels for b in labels]

    curves, calibration = list(tables.roc_rows(answers, labels)), list(tables.calibration_rows(answers, labels, 7))
    for k in tables.curve_classes(answers):
        roc = [row for row in curves if row["positive_class"] == labels[k]]
        false_rate, true_rate, thresholds = metrics.roc_curve(y == k, p[:, k])
        assert [row["false_positive_rate"] for row in roc] == false_rate.tolist()
        assert [row["true_positive_rate"] for row in roc] == true_rate.tolist()
        assert [float(row["threshold"]) for row in roc] == thresholds.tolist()
        for row in roc:
            said = p[:, k] >= float(row["threshold"])
            counts = [
                int(((y == k) == is_k)[said == is_said].sum()) for is_k in (False, True) for is_said in (False, True)
            ]
            assert counts == [row[each] for each in (
                "true_negatives", "false_positives", "false_negatives", "true_positives")]  # fmt: skip
        bins = [row for row in calibration if row["positive_class"] == labels[k]]
        share, mean = calibration_curve(y == k, p[:, k].clip(0, 1), n_bins=7)
        assert [row["positive_share"] for row in bins] == share.tolist()
        assert [row["mean_probability"] for row in bins] == mean.tolist()
        assert sum(row["n_rows"] for row in bins) == len(y)
        assert all(row["from_probability"] <= row["mean_probability"] <= row["to_probability"] for row in bins)

    each = list(tables.class_rows(answers, labels))
    report = metrics.classification_report(
        y, p.argmax(axis=1), labels=range(n_classes), target_names=labels, output_dict=True, zero_division=np.nan
    )
    for row in each:
        told = report[row["label"]]
        assert row["n_rows"] == told["support"]
        for name, value in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            found = math.nan if row[name] is None else row[name]
            assert found == pytest.approx(told[value], nan_ok=True)
    assert sum(row["n_predicted"] for row in each) == len(y)
    json.dumps([rows, each], allow_nan=False)
