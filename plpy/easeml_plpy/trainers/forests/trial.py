"""Training of forests: an epoch adds trees, each grown from all rows and a seed of its own.

The state is the trees as arrays. The answer for a row is the mean over all trees, so an epoch only adds to a sum.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import measure
from easeml_plpy.server.errors import NotReady
from easeml_plpy.server.value_types import Array, Pause, no_pause
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import Blueprint, Training, state_header
from easeml_plpy.trainers.forests.architecture import ForestParameters
from easeml_plpy.trainers.forests.rows import RowConstants, constants_from, constants_of
from easeml_plpy.trainers.forests.tree_arrays import Trees, checked_trees, of_all_classes, trees_of
from easeml_plpy.trainers.training_rows import Rows, check_inputs, check_rows, measured_loss
from easeml_plpy.trainers.trees.lineage import Lineage, Margins
from easeml_plpy.trainers.trees.margins import row_weights

if TYPE_CHECKING:
    import torch

LOSS_ROWS = 10_000  # the training loss is measured on at most this many rows, with the trees of the epoch
LEAF_NUMBERS = 1_000_000  # of a tree at most: with many classes leaves hold more rows
_COLUMNS = "columns"


class ForestTrial:
    """The trees of the epochs so far."""

    def __init__(self, blueprint: Blueprint, parameters: ForestParameters) -> None:
        self._blueprint, self._parameters = blueprint, parameters
        self._constants: RowConstants | None = None  # none before the first epoch
        self._epochs: list[Trees] = []
        self._lineage = Lineage()

    @property
    def _task(self) -> Task:
        return self._blueprint.task

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Pause) -> Training:
        """See LiveTrial. Adds the trees of one epoch."""
        check_rows(self._task, inputs, targets)
        if not len(inputs):
            return Training(math.nan, 0, 0)
        target_values = targets.numpy()
        if self._constants is None:
            self._constants = constants_of(self._task, inputs, target_values)
        rows = self._constants.rows(inputs)
        weights = row_weights(self._task, target_values) if self._parameters.is_balanced else None
        rng = np.random.default_rng(seed)
        grown, sums = [], np.zeros((min(len(rows), LOSS_ROWS), self._task.n_outputs))
        for _ in range(self._parameters.trees_per_epoch):
            grown.append(self._grown(rows, target_values, weights, rng))
            answers = grown[-1].tree_.predict(rows[: len(sums)]).reshape(len(sums), -1)
            sums += of_all_classes(grown[-1], answers, self._task.n_outputs)
            pause()
        self._append(trees_of(grown, self._task.n_outputs))
        loss = measured_loss(self._task, measure(self._task, sums / len(grown), target_values[: len(sums)]))
        return Training(loss, len(rows), len(grown))

    def outputs(self, inputs: Rows) -> Array:
        """See LiveTrial."""
        return self._averaged(self._summed(inputs, None, no_pause))

    def all_outputs(self, inputs: torch.Tensor, pause: Pause) -> Array:
        """See WholeTrial."""
        sums = self._summed(inputs, self._lineage.kept("answer", inputs), pause)
        self._lineage.keep("answer", inputs, sums)
        return self._averaged(sums)

    def dump(self) -> bytes:
        """See LiveTrial."""
        constants = {} if self._constants is None else self._constants.arrays()
        arrays = {f"{_COLUMNS}/{name}": array for name, array in constants.items()}
        for epoch, trees in enumerate(self._epochs):
            arrays |= {f"{epoch:06}/{name}": array for name, array in trees.arrays().items()}
        return checkpoint.dump(arrays, state_header(self._blueprint.architecture, self._task))

    def restore(self, state: checkpoint.Checkpoint) -> None:
        """Restore a state. Raises CorruptCheckpoint."""
        epochs: dict[str, dict[str, Array]] = {}
        for key, array in state.arrays.items():
            epoch, _, name = key.partition("/")
            epochs.setdefault(epoch, {})[name] = array
        if epochs:
            self._constants = constants_from(epochs.pop(_COLUMNS, {}), self._task)
        shape = self._task.n_features, self._task.n_outputs
        for epoch in sorted(epochs):
            self._append(checked_trees(epochs[epoch], *shape))

    def _append(self, trees: Trees) -> None:
        """Add the trees of an epoch."""
        self._epochs.append(trees)
        self._lineage.add(np.ascontiguousarray(array).tobytes() for array in trees.arrays().values())

    def _grown(self, rows: Array, targets: Array, weights: Array | None, rng: np.random.Generator) -> Any:
        """Return one tree of scikit-learn."""
        from sklearn import tree

        parameters, is_classifier = self._parameters, self._task.kind == "classification"
        kinds = {
            (True, True): tree.ExtraTreeClassifier, (True, False): tree.ExtraTreeRegressor,
            (False, True): tree.DecisionTreeClassifier, (False, False): tree.DecisionTreeRegressor,
        }  # fmt: skip
        n_drawn = min(len(rows), parameters.max_samples)
        of_leaf = max(parameters.min_samples_leaf, -(-n_drawn * self._task.n_outputs // LEAF_NUMBERS))
        one = kinds[parameters.is_random, is_classifier](
            max_depth=parameters.max_depth,
            min_samples_leaf=of_leaf if is_classifier else parameters.min_samples_leaf,
            max_features=parameters.feature_fraction,
            random_state=int(rng.integers(2**31)),
        )
        if not parameters.is_random:
            # As weights, the rows that were drawn need no copy.
            drawn = np.bincount(rng.integers(len(rows), size=n_drawn), minlength=len(rows)).astype(np.float64)
            weights = drawn if weights is None else drawn * weights
        elif n_drawn < len(rows):
            some = np.sort(rng.choice(len(rows), n_drawn, replace=False))
            rows, targets, weights = rows[some], targets[some], None if weights is None else weights[some]
        return one.fit(rows, targets, sample_weight=weights, check_input=False)

    def _summed(self, inputs: Rows, kept: Margins | None, pause: Pause) -> Array:
        """Return the sums over all trees, going on from what was kept of earlier epochs."""
        check_inputs(self._task, inputs)
        if not self._epochs or self._constants is None:
            raise NotReady("this trial has not been trained yet")
        sums = np.zeros((len(inputs), self._task.n_outputs)) if kept is None else kept.values.copy()
        rows = self._constants.rows(inputs)
        for trees in self._epochs[0 if kept is None else kept.n_epochs :]:
            trees.add_sums(rows, sums, pause)
        return sums

    def _averaged(self, sums: Array) -> Array:
        return (sums / sum(len(trees.roots) for trees in self._epochs)).astype(np.float32)
