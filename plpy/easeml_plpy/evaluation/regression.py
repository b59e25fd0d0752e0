"""Scores of a regression, in units of the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from easeml_plpy.evaluation.scores import Score
from easeml_plpy.metrics import METRICS
from easeml_plpy.server.value_types import Array


@dataclass(frozen=True, eq=False)
class NumberAnswers:
    """True and predicted numbers of rows, float64 (n,)."""

    actual: Array
    predicted: Array


def _by_library(name: str, is_root: bool = False) -> Callable[[NumberAnswers], float]:
    """Return a score of scikit-learn, or its root."""

    def compute(answers: NumberAnswers) -> float:
        from sklearn import metrics

        score = float(getattr(metrics, name)(answers.actual, answers.predicted))
        return float(np.sqrt(score)) if is_root else score

    return compute


def _r2(answers: NumberAnswers) -> float:
    return _by_library("r2_score")(answers) if len(answers.actual) > 1 else np.nan


def _percentage_error(answers: NumberAnswers) -> float:
    has_zero = not answers.actual.all()
    return np.nan if has_zero else _by_library("mean_absolute_percentage_error")(answers)


def _root_mean_squared_log_error(answers: NumberAnswers) -> float:
    is_legal = answers.actual.min() >= 0 and answers.predicted.min() >= 0
    return _by_library("mean_squared_log_error", is_root=True)(answers) if is_legal else np.nan


def _poisson_deviance(answers: NumberAnswers) -> float:
    is_legal = answers.actual.min() >= 0 and answers.predicted.min() > 0
    return _by_library("mean_poisson_deviance")(answers) if is_legal else np.nan


def _correlation(name: str) -> Callable[[NumberAnswers], float]:
    def compute(answers: NumberAnswers) -> float:
        from scipy import stats

        is_constant = len(answers.actual) < 2 or not (np.ptp(answers.actual) and np.ptp(answers.predicted))
        return np.nan if is_constant else float(getattr(stats, name)(answers.actual, answers.predicted).statistic)

    return compute


def _of_run(name: str, compute: Callable[[NumberAnswers], float]) -> Score[NumberAnswers]:
    return Score(name, METRICS[name].is_higher_better, METRICS[name].summary, compute)


SCORES: tuple[Score[NumberAnswers], ...] = (
    Score("n_rows", None, "rows of the split", lambda answers: len(answers.actual)),
    _of_run("rmse", _by_library("mean_squared_error", is_root=True)),
    _of_run("mae", _by_library("mean_absolute_error")),
    _of_run("r2", _r2),
    Score("median_absolute_error", False, "median of the absolute errors", _by_library("median_absolute_error")),
    Score("max_error", False, "the largest absolute error", _by_library("max_error")),
    Score(
        "mean_error",
        None,
        "mean of predicted minus actual: how far answers are too high",
        lambda answers: float((answers.predicted - answers.actual).mean()),
    ),
    Score("explained_variance", True, "share of the variance that is explained, whatever the mean error",
          _by_library("explained_variance_score")),
    Score("mean_absolute_percentage_error", False, "mean absolute error as a share of the target", _percentage_error),
    Score("root_mean_squared_log_error", False, "root of the mean squared error of log(1 + x)",
          _root_mean_squared_log_error),
    Score("d2_absolute_error", True, "share of the mean absolute error of the median that is saved",
          _by_library("d2_absolute_error_score")),
    Score("mean_poisson_deviance", False, "mean Poisson deviance, for counts", _poisson_deviance),
    Score("pearson", True, "linear correlation of answers and targets", _correlation("pearsonr")),
    Score("spearman", True, "rank correlation of answers and targets", _correlation("spearmanr")),
)  # fmt: skip
