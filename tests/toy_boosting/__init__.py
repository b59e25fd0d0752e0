"""A second boosting library, as somebody would add it: this folder in trainers/, and the lines REGISTER beside it.

Each round adds a stump: one column, one threshold, a value on either side. So the answer is a sum over the columns, and
says by itself what each of them adds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easeml_plpy.architectures import Architecture, Config, Hyperparameter
from easeml_plpy.architectures.hyperparameter import magnitude
from easeml_plpy.architectures.size import Size
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import CorruptCheckpoint
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import Library, Training, state_header
from easeml_plpy.trainers.training_rows import check_inputs, check_rows
from easeml_plpy.trainers.trees.margins import base_margins, loss_mean, outputs_of
from easeml_plpy.trainers.trees.tree_trainer import TreeTrainer

NAME = "stumps"
REGISTER = """
from easeml_plpy.trainers.toy_boosting import TOY
register(TOY)
"""
QUANTILES = np.linspace(0.1, 0.9, 9)


@dataclass(frozen=True)
class StumpParameters:
    """Rounds of an epoch, and the share of each stump that is added."""

    n_rounds: int
    rate: float


class StumpTrial:
    """Stumps, float64 (n, 5): margin, column, threshold, and the values up to it and beyond; unknown is beyond."""

    is_additive = True

    def __init__(self, blueprint, parameters):
        self._blueprint, self._parameters = blueprint, parameters
        self._base, self._stumps = [], np.empty((0, 5))

    def train(self, inputs, targets, *, seed, pause):
        task, wanted, rows = self._blueprint.task, targets.numpy(), np.asarray(inputs)
        check_rows(task, inputs, targets)
        self._base = self._base or base_margins(task, wanted, None)
        margins = self._margins(rows)
        for _ in range(self._parameters.n_rounds):
            for margin in range(len(self._base)):
                stump = np.array([margin, *best_split(rows, residuals(task, margins, wanted)[:, margin])])
                stump[3:] *= self._parameters.rate
                self._stumps = np.vstack([self._stumps, stump])
                margins[:, margin] += added(stump, rows)
            pause()
        return Training(loss_mean(task, margins, wanted), len(rows), self._parameters.n_rounds)

    def outputs(self, inputs):
        check_inputs(self._blueprint.task, inputs)
        return outputs_of(self._blueprint.task, self._margins(np.asarray(inputs)))

    def contributions(self, inputs):
        rows = np.asarray(inputs)
        parts = np.zeros((len(rows), len(self._base), rows.shape[1] + 1))
        parts[:, :, -1] = self._base
        for stump in self._stumps:
            margin, column, beyond = int(stump[0]), int(stump[1]), stump[4]
            parts[:, margin, column] += added(stump, rows) - beyond
            parts[:, margin, -1] += beyond
        return parts

    def dump(self):
        header = state_header(self._blueprint.architecture, self._blueprint.task)
        return checkpoint.dump({"stumps": self._stumps}, {**header, "base": self._base})

    def restore(self, state):
        self._base, self._stumps = state.read("base", list), state.arrays["stumps"]

    def _margins(self, rows):
        margins = np.tile(np.array(self._base, np.float64), (len(rows), 1))
        for stump in self._stumps:
            margins[:, int(stump[0])] += added(stump, rows)
        return margins


def added(stump, rows):
    return np.where(rows[:, int(stump[1])] <= stump[2], stump[3], stump[4])


def residuals(task, margins, wanted):
    outputs = outputs_of(task, margins).astype(np.float64)
    if task.kind == "regression":
        return wanted[:, None] - outputs
    return (np.eye(task.n_outputs)[wanted] - outputs)[:, -margins.shape[1] :]


def best_split(rows, residual):
    """Return column, threshold and the mean residual on either side, with the largest gain."""
    found = []
    for column, values in enumerate(rows.T):
        for threshold in np.nanquantile(values, QUANTILES):
            is_low = values <= threshold
            low, high = residual[is_low], residual[~is_low]
            sums = low.sum(), high.sum()
            gain = sums[0] ** 2 / max(len(low), 1) + sums[1] ** 2 / max(len(high), 1)
            found.append((gain, column, threshold, sums[0] / max(len(low), 1), sums[1] / max(len(high), 1)))
    return max(found)[1:]


class StumpTrainer(TreeTrainer[StumpTrial, StumpParameters]):
    """Whole rounds, no stacks and what it takes at least are those of all that grow trees."""

    def check_foreign(self, blueprint, payload):
        columns = checkpoint.load(payload).arrays["stumps"][:, 1]
        if not ((columns >= 0) & (columns < blueprint.task.n_features)).all():
            raise CorruptCheckpoint("stumps split by a column that is not there")


def size(task: Task, config: Config) -> Size:
    return Size(2 * config.integer("trees_per_epoch"), task.n_features + task.n_outputs)


STUMPS = Architecture(
    name=NAME,
    trainer="toy_boosting",
    summary="boosted stumps",
    hyperparameters=(
        magnitude("learning_rate", 0.5, "the share of each stump that is added", legal=(1e-3, 1.0), search=(0.1, 1.0)),
        Hyperparameter("trees_per_epoch", "integer", 10, "the rounds of an epoch", low=1, high=10**7),
    ),
    build=lambda task, config: StumpParameters(config.integer("trees_per_epoch"), config.number("learning_rate")),
    size=size,
    view="tree",
)
TOY = Library({"toy_boosting": StumpTrainer(StumpTrial, StumpParameters, "numpy", number_bytes=16)}, (STUMPS,))
