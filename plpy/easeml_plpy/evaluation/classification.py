"""Scores of a classification. Classes are codes, the places of the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from easeml_plpy.evaluation.scores import Score
from easeml_plpy.metrics import METRICS
from easeml_plpy.metrics.classification_metrics import SMALLEST_PROBABILITY
from easeml_plpy.server.value_types import Array

N_TOP = 3
N_CONFIDENCE_BINS = 10


@dataclass(frozen=True, eq=False)
class ClassAnswers:
    """Classes (n,) and float64 probabilities (n, n_classes) of rows.

    `positive` is the class that scores of one class refer to; None if there are more than two and none is named.
    `threshold`: a row counts as positive from this probability on; None: if no other class is more probable.
    """

    classes: Array
    probabilities: Array
    positive: int | None = None
    threshold: float | None = None

    @property
    def n_classes(self) -> int:
        """How many classes the dataset has."""
        return int(self.probabilities.shape[1])

    @cached_property
    def most_probable(self) -> Array:
        """The most probable class of each row, the first of several."""
        codes: Array = self.probabilities.argmax(axis=1)
        return codes

    @cached_property
    def predicted(self) -> Array:
        """The class of each row: the most probable one, or of two what the threshold says."""
        if self.threshold is None or self.n_classes > 2 or self.positive is None:
            return self.most_probable
        return np.where(self.is_predicted_positive, self.positive, 1 - self.positive)

    @cached_property
    def is_positive(self) -> Array:
        """Whether each row is of the positive class."""
        mask: Array = self.classes == self.positive
        return mask

    @cached_property
    def is_predicted_positive(self) -> Array:
        """Whether each row counts as positive."""
        if self.threshold is None:
            mask: Array = self.most_probable == self.positive
        else:
            mask = np.asarray(self.probabilities[:, self.positive] >= self.threshold)
        return mask

    @cached_property
    def hot(self) -> Array:
        """A column for each class, true where the row is of it."""
        mask: Array = self.classes[:, None] == np.arange(self.n_classes)
        return mask

    @cached_property
    def is_separable(self) -> Array:
        """For each class, whether some rows are of it and some are not."""
        return np.asarray(self.hot.any(axis=0) & ~self.hot.all(axis=0))


Compute: TypeAlias = Callable[[ClassAnswers], float]


def _of_classes(name: str, average: str) -> Compute:
    """Return a score of scikit-learn over the predicted classes; a class without rows and predictions counts not."""

    def compute(answers: ClassAnswers) -> float:
        from sklearn import metrics

        score = getattr(metrics, name)(answers.classes, answers.predicted, average=average, zero_division=0)
        return float(score)

    return compute


def _of_labels(name: str) -> Compute:
    """Return a score of scikit-learn that takes true and predicted classes only."""

    def compute(answers: ClassAnswers) -> float:
        from sklearn import metrics

        return float(getattr(metrics, name)(answers.classes, answers.predicted))

    return compute


def _of_positive(name: str, is_about: bool = True) -> Compute:
    """Return a score of scikit-learn about the positive class, or about what is not of it."""

    def compute(answers: ClassAnswers) -> float:
        from sklearn import metrics

        truth, predicted = answers.is_positive, answers.is_predicted_positive
        return float(getattr(metrics, name)(truth, predicted, pos_label=is_about, zero_division=np.nan))

    return compute


def _of_probabilities(name: str, average: str) -> Compute:
    """Return a score of scikit-learn that orders rows by a class's probability: of the positive class if there are two,
    else the average over the classes that have rows, each against the rest."""

    def compute(answers: ClassAnswers) -> float:
        from sklearn import metrics

        column: Array = answers.is_separable
        if answers.n_classes == 2:
            column = column & (np.arange(2) == answers.positive)
        if not column.any():
            return np.nan
        truth, scores = answers.hot[:, column], answers.probabilities[:, column]
        if column.sum() == 1:
            truth, scores = truth.ravel(), scores.ravel()
        return float(getattr(metrics, name)(truth, scores, average=average))

    return compute


def _balanced_accuracy(answers: ClassAnswers) -> float:
    from sklearn.metrics import recall_score

    seen = np.unique(answers.classes)
    return float(recall_score(answers.classes, answers.predicted, labels=seen, average="macro", zero_division=0))


def _log_loss(answers: ClassAnswers) -> float:
    right = answers.probabilities[np.arange(len(answers.classes)), answers.classes]
    return float(0.0 - np.log(right.clip(SMALLEST_PROBABILITY, 1.0)).mean())  # 0, not -0, where all are certain


def _brier_score(answers: ClassAnswers) -> float:
    squares = np.square(answers.probabilities - answers.hot)
    return float(squares[:, answers.positive or 0].mean() if answers.n_classes == 2 else squares.sum(axis=1).mean())


def _top_accuracy(answers: ClassAnswers) -> float:
    from sklearn.metrics import top_k_accuracy_score

    if answers.n_classes <= N_TOP:
        return np.nan
    labels = np.arange(answers.n_classes)
    return float(top_k_accuracy_score(answers.classes, answers.probabilities, k=N_TOP, labels=labels))


def _calibration_error(answers: ClassAnswers) -> float:
    confidence = answers.probabilities.max(axis=1)
    is_right = answers.most_probable == answers.classes
    bins = np.minimum((confidence * N_CONFIDENCE_BINS).astype(int), N_CONFIDENCE_BINS - 1)
    gaps = np.bincount(bins, weights=confidence - is_right, minlength=N_CONFIDENCE_BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def _of_run(name: str, compute: Compute) -> Score[ClassAnswers]:
    """Return the score that is a metric of runs, too."""
    return Score(name, METRICS[name].is_higher_better, METRICS[name].summary, compute)


SCORES: tuple[Score[ClassAnswers], ...] = (
    Score("n_rows", None, "rows of the split", lambda answers: len(answers.classes)),
    Score("n_classes", None, "classes that have a row in the split", lambda answers: answers.hot.any(axis=0).sum()),
    _of_run("accuracy", _of_labels("accuracy_score")),
    _of_run("balanced_accuracy", _balanced_accuracy),
    _of_run("macro_f1", _of_classes("f1_score", "macro")),
    _of_run("log_loss", _log_loss),
    Score("macro_precision", True, "mean over classes of the precision", _of_classes("precision_score", "macro")),
    Score("macro_recall", True, "mean over classes of the recall", _of_classes("recall_score", "macro")),
    Score("weighted_precision", True, "precision, weighted by rows", _of_classes("precision_score", "weighted")),
    Score("weighted_f1", True, "F1 score, weighted by rows", _of_classes("f1_score", "weighted")),
    Score("macro_jaccard", True, "mean over classes of the Jaccard index", _of_classes("jaccard_score", "macro")),
    Score("cohen_kappa", True, "agreement beyond chance", _of_labels("cohen_kappa_score")),
    Score("matthews", True, "Matthews correlation of truth and answer", _of_labels("matthews_corrcoef")),
    Score("roc_auc", True, "area under the ROC curve", _of_probabilities("roc_auc_score", "macro")),
    Score(
        "weighted_roc_auc", True, "the same, classes weighted by rows", _of_probabilities("roc_auc_score", "weighted")
    ),
    Score(
        "average_precision",
        True,
        "area under precision over recall",
        _of_probabilities("average_precision_score", "macro"),
    ),
    Score(
        "weighted_average_precision",
        True,
        "the same, classes weighted by rows",
        _of_probabilities("average_precision_score", "weighted"),
    ),
    Score("brier_score", False, "mean squared error of the probabilities", _brier_score),
    Score("calibration_error", False, "mean gap of confidence and accuracy, over ten bins", _calibration_error),
    Score("top_3_accuracy", True, "share of rows whose class is among the three most probable", _top_accuracy),
)

POSITIVE_SCORES: tuple[Score[ClassAnswers], ...] = (
    Score("precision", True, "share right of what is called positive", _of_positive("precision_score")),
    Score("recall", True, "share found of the positive rows", _of_positive("recall_score")),
    Score("f1", True, "harmonic mean of precision and recall", _of_positive("f1_score")),
    Score(
        "specificity", True, "share of the other rows that is not called positive", _of_positive("recall_score", False)
    ),
    Score(
        "negative_predictive_value",
        True,
        "share right of what is not called positive",
        _of_positive("precision_score", False),
    ),
)
