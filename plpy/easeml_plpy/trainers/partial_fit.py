"""Trains scikit-learn estimators with `partial_fit`, mini-batch by mini-batch.

What is stored: the fitted attributes that the next `partial_fit` or prediction reads, arrays as tensors and
plain numbers as attributes. Estimators run on the CPU whatever the slot's device.

Estimators without probabilities (hinge losses, perceptron, passive-aggressive) answer with the softmax, or
for two classes the logistic function, of their scores: it ranks and decides as they do, uncalibrated.
The loss of a pass is measured after it, over the same rows: log loss or mean squared error.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from easeml_plpy.architectures import Architecture, Config, IncrementalEstimator
from easeml_plpy.architectures.tables.incremental import BATCH_ROWS
from easeml_plpy.columns.task import Task
from easeml_plpy.metrics import metrics
from easeml_plpy.server.errors import CorruptCheckpoint, InvalidData, NotReady, TrialFailed
from easeml_plpy.server.value_types import Array, Pause
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import Blueprint, Trainer, Training, state_header
from easeml_plpy.trainers.training_rows import Rows, check_inputs, check_rows, measured_loss, visit_order

if TYPE_CHECKING:
    import torch

FITTED_ATTRIBUTES = (
    "n_features_in_",
    "classes_",
    "coef_",
    "intercept_",
    "t_",
    "n_iter_",
    "class_count_",
    "class_prior_",
    "epsilon_",
    "theta_",
    "var_",
    "feature_count_",
    "feature_log_prob_",
    "class_log_prior_",
)

_ESTIMATOR = "estimator/"


class PartialFitTrial:
    """One scikit-learn estimator."""

    def __init__(self, architecture: Architecture, task: Task, incremental: IncrementalEstimator) -> None:
        self._architecture = architecture
        self._task = task
        self._estimator = incremental.estimator
        self._transform = incremental.transform
        self._batch_rows = incremental.batch_rows
        self._n_steps = 0

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Pause) -> Training:
        """See LiveTrial."""
        import torch

        check_rows(self._task, inputs, targets)
        if not np.isfinite(inputs.numpy()).all():
            raise InvalidData("inputs: a number is not finite")
        if hasattr(self._estimator, "random_state"):
            self._estimator.random_state = seed % 2**32
        if not len(inputs):
            return Training(math.nan, 0, 0)
        first_step = self._n_steps
        for rows in torch.split(visit_order(len(inputs), seed), self._batch_rows):
            self._step(self._features(inputs[rows]), targets[rows].numpy())
            pause()
        return Training(self._loss_mean(inputs, targets, pause), len(inputs), self._n_steps - first_step)

    def outputs(self, inputs: Rows) -> Array:
        """See LiveTrial."""
        check_inputs(self._task, inputs)
        if self._n_steps == 0:
            raise NotReady("this trial has not been trained yet")
        starts = range(0, len(inputs), self._batch_rows)
        batches = [self._answer(inputs[start : start + self._batch_rows]) for start in starts]
        empty = np.empty((0, self._task.n_outputs), dtype=np.float32)
        return np.concatenate([empty, *batches])

    def dump(self) -> bytes:
        """See LiveTrial."""
        present = [name for name in FITTED_ATTRIBUTES if hasattr(self._estimator, name)]
        fitted = {name: getattr(self._estimator, name) for name in present}
        arrays = {name: value for name, value in fitted.items() if isinstance(value, np.ndarray | np.generic)}
        numbers = {name: value for name, value in fitted.items() if name not in arrays}
        return checkpoint.dump(
            {_ESTIMATOR + name: np.asarray(value) for name, value in arrays.items()},
            {
                **state_header(self._architecture, self._task),
                "n_steps": self._n_steps,
                "estimator": numbers,
                "scalars": sorted(name for name, value in arrays.items() if isinstance(value, np.generic)),
            },
        )

    def restore(self, state: checkpoint.Checkpoint) -> None:
        """Restore a state."""
        numbers, arrays = (
            state.read("estimator", dict),
            {k.removeprefix(_ESTIMATOR): v for k, v in state.arrays.items()},
        )
        if not {*numbers, *arrays} <= set(FITTED_ATTRIBUTES):
            raise CorruptCheckpoint("state has attributes that no estimator is fitted with")
        for name, number in numbers.items():
            setattr(self._estimator, name, number)
        scalars = state.read("scalars", list)
        for name, array in arrays.items():
            setattr(self._estimator, name, array[()] if name in scalars else array)
        self._n_steps = state.read("n_steps", int)

    def _step(self, features: Any, targets: Array) -> None:
        """Call partial_fit once. Raises TrialFailed when the weights overflow."""
        classes = {"classes": np.arange(self._task.n_outputs)} if self._task.kind == "classification" else {}
        try:
            with _quiet_scikit_learn():
                self._estimator.partial_fit(features, targets, **classes)
        except ValueError as error:
            if "overflow" not in str(error):
                raise
            raise self._diverged() from error
        except MemoryError as error:
            raise TrialFailed(f"trial ran out of memory at step {self._n_steps}") from error
        self._n_steps += 1

    def _answer(self, batch: Rows) -> Array:
        """Return the outputs of one batch, float32 (n, n_outputs)."""
        features = self._features(batch)
        with _quiet_scikit_learn():
            if self._task.kind == "regression":
                outputs = self._estimator.predict(features)[:, None]
            elif hasattr(self._estimator, "predict_proba"):
                outputs = self._estimator.predict_proba(features)
            elif hasattr(self._estimator, "decision_function"):
                outputs = probabilities_of_scores(self._estimator.decision_function(features))
            else:
                raise TypeError(f"{self._architecture.name} builds a classifier without probabilities and scores")
        return np.asarray(outputs, dtype=np.float32)

    def _features(self, batch: Rows) -> Any:
        return self._transform(np.asarray(batch).reshape(len(batch), -1))

    def _loss_mean(self, inputs: torch.Tensor, targets: torch.Tensor, pause: Pause) -> float:
        """Return the loss per row after the pass. Raises TrialFailed when it is not finite."""
        import torch

        parts = []
        batches = zip(torch.split(inputs, self._batch_rows), torch.split(targets, self._batch_rows), strict=True)
        for batch, batch_targets in batches:
            parts.append(metrics.measure(self._task, self._answer(batch), batch_targets.numpy()))
            pause()
        loss_mean = measured_loss(self._task, metrics.combine(parts))
        if not math.isfinite(loss_mean):
            raise self._diverged()
        return loss_mean

    def _diverged(self) -> TrialFailed:
        return TrialFailed(
            f"trial diverged: outputs of {self._architecture.name} are not finite at step {self._n_steps}"
            f"{self._rate_text()}",
            hint="Search lower learning rates, or check that inputs are of moderate size.",
        )

    def _rate_text(self) -> str:
        rate = getattr(self._estimator, "eta0", None)
        return "" if rate is None else f" with learning rate {rate:.6g}"


class PartialFitTrainer(Trainer[PartialFitTrial]):
    """Starts and resumes PartialFitTrials."""

    def prepare(self) -> None:
        """See Trainer."""
        import sklearn.linear_model
        import sklearn.naive_bayes  # noqa: F401

    def count_steps(self, config: Config, n_rows: Sequence[int], n_epochs: int) -> int:
        """See Trainer."""
        return n_epochs * sum(-(-n // BATCH_ROWS) for n in n_rows)

    def _begin(self, blueprint: Blueprint, *, n_steps_total: int, seed: int) -> PartialFitTrial:
        """See Trainer. Estimators start from nothing and schedule themselves: no total, seed or device."""
        return PartialFitTrial(blueprint.architecture, blueprint.task, _built(blueprint))

    def _restore(self, blueprint: Blueprint, state: checkpoint.Checkpoint) -> PartialFitTrial:
        """See Trainer."""
        trial = self._begin(blueprint, n_steps_total=0, seed=0)
        trial.restore(state)
        return trial


def _built(blueprint: Blueprint) -> IncrementalEstimator:
    estimator = blueprint.architecture.build(blueprint.task, blueprint.config)
    if not isinstance(estimator, IncrementalEstimator):
        raise TypeError(f"{blueprint.architecture.name} builds {type(estimator).__name__}, not an IncrementalEstimator")
    return estimator


def probabilities_of_scores(scores: Array) -> Array:
    """Return uncalibrated probabilities (n, n_classes) of scores of that shape, or (n,) for the second of two."""
    if scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Array = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


@contextmanager
def _quiet_scikit_learn() -> Iterator[None]:
    """Silence warnings, and skip repeated checks of rows that were checked once."""
    import sklearn

    with (
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
        sklearn.config_context(assume_finite=True, skip_parameter_validation=True),
    ):
        warnings.simplefilter("ignore")
        yield
