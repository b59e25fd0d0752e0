"""Trials on rows that may have folds: which members learn from a row, and which predict it."""

from __future__ import annotations

import numpy as np

from easeml_plpy.row_forms.datasets import PartitionRows
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.value_types import Array, Pause
from easeml_plpy.trainers.committee import FoldedTrial
from easeml_plpy.trainers.contract import AnsweringTrial, LiveTrial, Training
from easeml_plpy.trainers.training_rows import Rows
from easeml_plpy.units.outputs import ROWS_AT_ONCE, all_outputs


def train_on(live: LiveTrial, rows: PartitionRows, seed: int, pause: Pause) -> Training:
    """Train on rows; if they have folds, no row is seen by the model that answers for it."""
    if rows.folds is None:
        return live.train(rows.inputs, rows.targets, seed=seed, pause=pause)
    return _folded(live).train_in_folds(rows.inputs, rows.targets, rows.folds, seed=seed, pause=pause)


def answers_for(live: LiveTrial, rows: PartitionRows, pause: Pause) -> Array:
    """Return the outputs of rows, float32 (n, n_outputs), of models that have not learned from them."""
    if rows.folds is None:
        return all_outputs(live, rows.inputs, pause)
    parts = []
    for start in range(0, len(rows.inputs), ROWS_AT_ONCE):
        page = slice(start, start + ROWS_AT_ONCE)
        parts.append(held_out_outputs(live, rows.inputs[page], rows.folds[page]))
        pause()
    return np.concatenate(parts)


def held_out_outputs(live: AnsweringTrial, inputs: Rows, folds: Array) -> Array:
    """Return the outputs of rows of these folds, of models that have not learned from them."""
    return _folded(live).held_out_outputs(inputs, folds)


def _folded(live: AnsweringTrial) -> FoldedTrial:
    if not isinstance(live, FoldedTrial):
        raise NotAllowed("rows have folds, and the trial has one model for all of them")
    return live
