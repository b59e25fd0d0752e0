"""Answers as result rows: confusion matrices, curves, counts by class, residuals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from easeml_plpy.evaluation.classification import ClassAnswers
from easeml_plpy.evaluation.regression import NumberAnswers
from easeml_plpy.evaluation.scores import or_null

Row: TypeAlias = dict[str, Any]
"""A row by column, of values that JSON holds."""


def confusion_rows(answers: ClassAnswers, labels: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each pair of an actual and a predicted class, even if it has no rows."""
    from sklearn.metrics import confusion_matrix

    matrix = confusion_matrix(answers.classes, answers.predicted, labels=np.arange(len(labels)))
    for actual, counts in zip(labels, matrix.tolist(), strict=True):
        total = sum(counts)
        for predicted, n_rows in zip(labels, counts, strict=True):
            share = n_rows / total if total else None
            yield {"actual": actual, "predicted": predicted, "n_rows": n_rows, "share": share}


def curve_classes(answers: ClassAnswers) -> list[int]:
    """Return the classes of which curves are drawn: the positive one, or all that differ from the rest."""
    classes = range(answers.n_classes) if answers.positive is None else [answers.positive]
    return [k for k in classes if answers.is_separable[k]]


def roc_rows(answers: ClassAnswers, labels: Sequence[str]) -> Iterator[Row]:
    """Yield the corners of the ROC curve of each class against the rest, from the highest threshold down."""
    from sklearn.metrics import roc_curve

    for k in curve_classes(answers):
        n_positive, n_negative = int(answers.hot[:, k].sum()), int((~answers.hot[:, k]).sum())
        curve = roc_curve(answers.hot[:, k], answers.probabilities[:, k])
        for false_rate, true_rate, threshold in np.column_stack(curve).tolist():
            true_positives, false_positives = round(true_rate * n_positive), round(false_rate * n_negative)
            n_called = true_positives + false_positives
            yield {
                "positive_class": labels[k],
                "threshold": or_null(threshold),
                "false_positive_rate": false_rate,
                "true_positive_rate": true_rate,
                "precision": true_positives / n_called if n_called else None,
                "true_positives": true_positives,
                "false_positives": false_positives,
                "true_negatives": n_negative - false_positives,
                "false_negatives": n_positive - true_positives,
            }


def calibration_rows(answers: ClassAnswers, labels: Sequence[str], n_bins: int) -> Iterator[Row]:
    """Yield, for each class and each interval of its probability that has rows, its mean and the class's share."""
    from sklearn.calibration import calibration_curve

    for k in curve_classes(answers):
        predicted = answers.probabilities[:, k].clip(0.0, 1.0)
        seen, means = calibration_curve(answers.hot[:, k], predicted, n_bins=n_bins)
        edges = np.linspace(0.0, 1.0, n_bins + 1)
        counts = np.bincount(np.searchsorted(edges[1:-1], predicted), minlength=n_bins)  # as calibration_curve has it
        for number, share, mean in zip(np.flatnonzero(counts).tolist(), seen.tolist(), means.tolist(), strict=True):
            yield {
                "positive_class": labels[k],
                "from_probability": number / n_bins,
                "to_probability": (number + 1) / n_bins,
                "n_rows": int(counts[number]),
                "mean_probability": mean,
                "positive_share": share,
            }


def class_rows(answers: ClassAnswers, labels: Sequence[str]) -> Iterator[Row]:
    """Yield counts and scores of each class."""
    from sklearn.metrics import average_precision_score, precision_recall_fscore_support, roc_auc_score

    codes = np.arange(len(labels))
    measured = precision_recall_fscore_support(answers.classes, answers.predicted, labels=codes, zero_division=np.nan)
    precision, recall, f1, n_rows = (column.tolist() for column in measured)
    n_predicted = np.bincount(answers.predicted, minlength=len(labels)).tolist()
    is_right = answers.predicted == answers.classes
    n_correct = np.bincount(answers.classes[is_right], minlength=len(labels)).tolist()
    for k, label in enumerate(labels):
        compared = answers.hot[:, k], answers.probabilities[:, k]
        has_curve = bool(answers.is_separable[k])
        yield {
            "label": label,
            "n_rows": n_rows[k],
            "n_predicted": n_predicted[k],
            "n_correct": n_correct[k],
            "precision": or_null(precision[k]),
            "recall": or_null(recall[k]),
            "f1": or_null(f1[k]),
            "roc_auc": float(roc_auc_score(*compared)) if has_curve else None,
            "average_precision": float(average_precision_score(*compared)) if has_curve else None,
        }


def residual_rows(answers: NumberAnswers, keys: Sequence[str | None]) -> Iterator[Row]:
    """Yield what each row is and what was answered."""
    rows = zip(keys, answers.actual.tolist(), answers.predicted.tolist(), strict=True)
    for key, actual, predicted in rows:
        yield {"row_key": key, "actual": actual, "predicted": predicted, "residual": actual - predicted}


def answer_rows(answers: ClassAnswers, keys: Sequence[str | None], labels: Sequence[str]) -> Iterator[Row]:
    """Yield the class of each row, and what was answered."""
    codes = zip(answers.classes.tolist(), answers.predicted.tolist(), strict=True)
    for key, (actual, predicted), probabilities in zip(keys, codes, answers.probabilities.tolist(), strict=True):
        yield {
            "row_key": key,
            "actual": labels[actual],
            "predicted": labels[predicted],
            "probability": probabilities[predicted],
            "probabilities": dict(zip(labels, probabilities, strict=True)),
        }
