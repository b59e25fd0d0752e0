"""Margins: the sum of the trees for a row, one number for each output, or one for two classes."""

from __future__ import annotations

import numpy as np

from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import measure
from easeml_plpy.server.value_types import Array
from easeml_plpy.trainers.training_rows import measured_loss

PRIOR_ROWS = 0.5  # added to each class, so that no class is impossible because training lacks it


def row_weights(task: Task, targets: Array) -> Array | None:
    """Return weights of mean 1, float32 (n,), with which all classes that there are weigh alike; None for numbers."""
    if task.kind == "regression":
        return None
    counts = np.bincount(targets, minlength=task.n_outputs)
    of_class = len(targets) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    weights: Array = of_class[targets].astype(np.float32)
    return weights


def base_margins(task: Task, targets: Array, weights: Array | None) -> list[float]:
    """Return the margins of an unknown row: the mean, or the margins of the class shares."""
    if task.kind == "regression":
        return [float(np.mean(targets, dtype=np.float64))]
    counts = np.bincount(targets, weights, minlength=task.n_outputs) + PRIOR_ROWS
    logs = np.log(counts / counts.sum())
    return [float(logs[1] - logs[0])] if task.n_outputs == 2 else [float(log) for log in logs]


def outputs_of(task: Task, margins: Array) -> Array:
    """Return the outputs, float32 (n, n_outputs): values, or probabilities of the classes."""
    if task.kind == "regression":
        return margins.astype(np.float32)
    if task.n_outputs == 2:
        margins = np.concatenate([np.zeros(margins.shape), margins], axis=1)
    powers = np.exp(margins - np.maximum.reduce(margins, axis=1, keepdims=True, initial=-np.inf))
    probabilities: Array = powers / np.add.reduce(powers, axis=1, keepdims=True)
    return probabilities.astype(np.float32)


def loss_mean(task: Task, margins: Array, targets: Array) -> float:
    """Return the mean log loss, or the mean squared error."""
    return measured_loss(task, measure(task, outputs_of(task, margins), targets))
