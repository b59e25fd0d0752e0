"""The target of a task whose outputs are series of unequal length.

Blocks keep them one after another, as they keep series that go in (object_rows.py). In a session a row is (steps of the
longest, numbers + 1), flat: the numbers of each step, and behind them 1 where there is a step, 0 behind the last. A
trial's output in that last place is above 0 where the series goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easeml_plpy.columns.numeric_fields import ObjectsField
from easeml_plpy.columns.object_rows import unpacked
from easeml_plpy.columns.tensor_target import TensorTarget
from easeml_plpy.server.value_types import JSON, Array, Floats


@dataclass(frozen=True)
class SeriesTarget(TensorTarget):
    """Series of steps, each of a number of numbers; `shape` is (steps of the longest, numbers + 1). Moments and range
    cover existing steps only.
    """

    @property
    def n_numbers(self) -> int:
        """The numbers of one step."""
        return self.shape[1] - 1

    @property
    def field(self) -> ObjectsField:
        """The series, described like an input series."""
        tensors, recursive = ((self.column, (self.n_numbers,)),), ("next",)
        return ObjectsField(
            column=self.column, type=self.type, dtype=self.dtype, shape=self.shape, tensors=tensors, recursive=recursive
        )

    def of_length(self, n_steps: int) -> SeriesTarget:
        """Return the target for series with at most a number of steps."""
        return replace(self, shape=(n_steps, self.shape[1]))

    def stored(self, payload: bytes, n_rows: int) -> Array:
        """Return the series of a block side by side, (n_rows, n_outputs)."""
        return unpacked(self.field, payload, n_rows).reshape(n_rows, self.n_outputs)

    def numbers(self, stored: Array) -> Array:
        """Return the numbers of all steps that there are, (steps, n_numbers)."""
        steps = stored.reshape(-1, self.shape[1])
        return steps[steps[:, -1] > 0, :-1]

    def standard(self, stored: Array) -> Floats:
        """Return series on the standard scale; padding stays 0."""
        steps = stored.reshape(-1, self.shape[1]).astype(np.float64)
        steps[:, :-1] = (steps[:, :-1] - self.mean) / self.scale * steps[:, -1:]
        return steps.reshape(stored.shape).astype(np.float32)

    def raw(self, outputs: Array) -> Array:
        """Return outputs with their numbers in the target's unit."""
        steps = outputs.reshape(-1, self.shape[1]).astype(np.float64)
        steps[:, :-1] = steps[:, :-1] * self.scale + self.mean
        return steps.reshape(outputs.shape)

    def shaped(self, outputs: Array) -> Array:
        """Return the existing steps of one series."""
        steps = outputs.reshape(self.shape)
        return steps[: int(lengths_of(steps[None])[0]), :-1]

    def to_json(self) -> dict[str, JSON]:
        """Return the target as it is stored."""
        return {**super().to_json(), "is_series": True}


def lengths_of(steps: Array) -> Array:
    """Return how many steps series (n, steps, numbers + 1) have, up to the first that is not there; at least one."""
    goes_on = np.concatenate([steps[:, :, -1] > 0, np.zeros((len(steps), 1), bool)], axis=1)
    lengths: Array = np.maximum(goes_on.argmin(axis=1), 1)
    return lengths
