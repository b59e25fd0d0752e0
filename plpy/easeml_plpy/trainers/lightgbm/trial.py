"""Training of boosted trees: each epoch is a booster of its own, grown from the margins of all epochs before.

The state is one text for each epoch, and the margin that all rows begin with. So a resumed trial gives the same bytes
as a live one: the margins that a process keeps (lineage.py) only save it from evaluating the trees again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from easeml_plpy.architectures.tables.target_transforms import target_transform
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import CorruptCheckpoint, NotReady, TrialFailed
from easeml_plpy.server.value_types import Array, Pause, no_pause
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import Blueprint, Training, state_header
from easeml_plpy.trainers.lightgbm import boosters
from easeml_plpy.trainers.lightgbm.architecture import LightGBMParameters
from easeml_plpy.trainers.lightgbm.binned_rows import binned
from easeml_plpy.trainers.lightgbm.c_interface import GrownTrees
from easeml_plpy.trainers.lightgbm.memory import demand_growing
from easeml_plpy.trainers.training_rows import Rows, check_inputs, check_rows
from easeml_plpy.trainers.trees.lineage import Lineage, Margins
from easeml_plpy.trainers.trees.margins import base_margins, loss_mean, outputs_of, row_weights

if TYPE_CHECKING:
    import torch

_EPOCH = "epoch/"


class LightGBMTrial:
    """The boosters of the epochs so far."""

    def __init__(self, blueprint: Blueprint, parameters: LightGBMParameters) -> None:
        self._blueprint, self._parameters = blueprint, parameters
        self._transform = target_transform(blueprint.task, blueprint.config)
        self._base: list[float] = []  # margins of any row before the first tree; empty before the first epoch
        self._texts: list[str] = []
        self._boosters: dict[int, GrownTrees] = {}  # by epoch, from 0
        self._lineage = Lineage()

    @property
    def _task(self) -> Task:
        return self._blueprint.task

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Pause) -> Training:
        """See LiveTrial. Adds the trees of one epoch."""
        check_rows(self._task, inputs, targets)
        parameters, learnt = self._parameters, targets.numpy()
        if self._transform is not None:
            learnt = self._transform.forward(learnt)
        if not len(inputs):
            return Training(math.nan, 0, 0)
        demand_growing(parameters, len(inputs), self._task.n_features)
        weights = row_weights(self._task, learnt) if parameters.is_balanced else None
        if not self._base:
            self._base = base_margins(self._task, learnt, weights)
        before = self._training_margins(inputs, pause)
        data = binned(self._task, parameters, inputs, targets, self._transform)
        # Trials share these rows, and set_weight(None) would leave the weights of the last one there.
        data.set_field("weight", weights)
        data.set_init_score(before.ravel(order="F"))  # LightGBM wants one class after the other
        booster = boosters.grown(data, parameters.trees, parameters.rounds_per_epoch, seed, pause)
        margins = boosters.scores_of(booster, parameters.n_margins)
        if not np.isfinite(margins).all():
            raise TrialFailed(
                "trial diverged: a margin is not finite", hint="Search lower learning rates, or raise lambda_l2."
            )
        self._append(boosters.text_of(booster))
        self._lineage.keep("train", inputs, margins)
        return Training(loss_mean(self._task, margins, learnt), len(inputs), booster.current_iteration())

    def outputs(self, inputs: Rows) -> Array:
        """See LiveTrial."""
        return self._answers(self._added_up(inputs, None, no_pause))

    def all_outputs(self, inputs: torch.Tensor, pause: Pause) -> Array:
        """Return the outputs of rows that come again after the next epoch; what was added up so far is kept."""
        margins = self._added_up(inputs, self._lineage.kept("answer", inputs), pause)
        self._lineage.keep("answer", inputs, margins)
        return self._answers(margins)

    @property
    def is_additive(self) -> bool:
        """Whether contributions add up to the answer, or to its log odds."""
        return self._transform is None

    def contributions(self, inputs: Rows) -> Array:
        """Return what each column adds to the margins of rows, and in the last one what all rows begin with.

        float64 (n, n_margins, n_columns + 1). Raises NotReady.
        """
        check_inputs(self._task, inputs)
        if not self._base:
            raise NotReady("this trial has not been trained yet")
        values = np.zeros((len(inputs), self._parameters.n_margins, self._task.n_features + 1))
        values[:, :, -1] = self._base
        for epoch in range(len(self._texts)):
            values += boosters.contributions(self._booster(epoch), inputs)
        return values

    def dump(self) -> bytes:
        """See LiveTrial."""
        texts = {f"{_EPOCH}{k:06}": np.frombuffer(text.encode(), np.uint8) for k, text in enumerate(self._texts)}
        header = state_header(self._blueprint.architecture, self._task)
        return checkpoint.dump(texts, {**header, "base": self._base})

    def restore(self, state: checkpoint.Checkpoint) -> None:
        """Restore a state. Raises CorruptCheckpoint."""
        self._base = [float(value) for value in state.read("base", list)]
        for name in sorted(state.arrays):
            self._append(state.arrays[name].tobytes().decode())
        if self._texts and len(self._base) != self._parameters.n_margins:
            raise CorruptCheckpoint(f"state has {len(self._base)} margins, expected {self._parameters.n_margins}")

    def _append(self, text: str) -> None:
        """Add the trees of an epoch."""
        self._texts.append(text)
        self._lineage.add([np.array(self._base).tobytes(), text.encode()])

    def _answers(self, margins: Array) -> Array:
        return outputs_of(self._task, margins if self._transform is None else self._transform.inverse(margins))

    def _training_margins(self, inputs: torch.Tensor, pause: Pause) -> Array:
        """Return the margins of training rows as training left them, to the bit."""
        kept = self._lineage.kept("train", inputs)
        margins = self._first_margins(len(inputs)) if kept is None else kept.values
        for epoch in range(0 if kept is None else kept.n_epochs, len(self._texts)):
            boosters.add_trees(self._booster(epoch), inputs, margins, pause)
        return margins

    def _added_up(self, inputs: Rows, kept: Margins | None, pause: Pause) -> Array:
        """Return the margins of rows, going on from what was kept of earlier epochs."""
        check_inputs(self._task, inputs)
        if not self._base:
            raise NotReady("this trial has not been trained yet")
        first = 0 if kept is None else kept.n_epochs
        margins = self._first_margins(len(inputs)) if kept is None else kept.values.copy()
        rows = boosters.matrix(inputs)
        for epoch in range(first, len(self._texts)):
            boosters.add_sums(self._booster(epoch), rows, margins, pause)
        return margins

    def _first_margins(self, n_rows: int) -> Array:
        return np.array([self._base], np.float64).repeat(n_rows, axis=0)

    def _booster(self, epoch: int) -> GrownTrees:
        if epoch not in self._boosters:
            self._boosters[epoch] = boosters.trees_of(self._texts[epoch])
        return self._boosters[epoch]
