"""Predictions of a live trial for many rows, a batch at a time."""

from __future__ import annotations

from functools import cache
from typing import TypeVar, cast

import numpy as np
import torch

from easeml_plpy.server.value_types import Array, Pause
from easeml_plpy.trainers.contract import AnsweringTrial, LiveTrial, RefitTrial, WholeTrial

ROWS_AT_ONCE = 4096
A = TypeVar("A", bound=AnsweringTrial)


def measurable_on(split: str, live: A) -> A | LiveTrial:
    """Return the trial as rows of that split can measure it: as it was before it was trained on them."""
    return live.held_out() if split == "validation" and isinstance(live, RefitTrial) else live


def all_outputs(live: LiveTrial, inputs: torch.Tensor, pause: Pause) -> Array:
    """Return the outputs of the rows of a whole split, which may come again after the next epoch."""
    if _is_whole(type(live)):
        return cast("WholeTrial", live).all_outputs(inputs, pause)
    return outputs_of(live, inputs, pause)


@cache
def _is_whole(kind: type[LiveTrial]) -> bool:
    """Say whether trials of a class are whole ones: the look through all methods takes as long as a statement."""
    return issubclass(kind, WholeTrial)


def outputs_of(live: LiveTrial, inputs: torch.Tensor, pause: Pause) -> Array:
    """Return the outputs of all rows, float32 (n, n_outputs), with a pause after every batch."""
    parts = []
    for start in range(0, max(len(inputs), 1), ROWS_AT_ONCE):
        parts.append(live.outputs(inputs[start : start + ROWS_AT_ONCE]))
        pause()
    return np.concatenate(parts)
