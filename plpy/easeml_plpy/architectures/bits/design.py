"""Common parts of networks over bits: the conversion of an input of any shape into steps of bits.

A number is written as the 16 bits of its bfloat16: sign, exponent, and the first digits. Series and trees have a step
for each object, with the places of the objects that it links to as further numbers. Other inputs are flattened, and cut
into at most as many steps as MOST_STEPS.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.series.design import width
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.torch_hyperparameters import DROPOUT
from easeml_plpy.columns.task import Task

N_BITS, N_WRITTEN = 16, 8
"""Of a number that is read, and of one that is written."""
MOST_STEPS = 64
"""Of an input that has no steps of its own."""
N_GATES = 3

HYPERPARAMETERS: tuple[Hyperparameter, ...] = (
    width(64, "how many numbers the reader keeps from step to step"),
    DROPOUT,
)


class Reading(NamedTuple):
    """The steps in which an input is read, and the numbers of each. If `n_own` is not None, steps are objects,
    which hold `n_own` numbers before the place that says whether the object exists.
    """

    n_steps: int
    n_numbers: int
    n_own: int | None

    @classmethod
    def of(cls, task: Task) -> Reading:
        """Return how the inputs of a task are read."""
        if task.objects is not None:
            n_own, links = task.objects
            return cls(task.input_shape[0], n_own + links, n_own)
        n_numbers = math.ceil(task.n_features / MOST_STEPS)
        return cls(math.ceil(task.n_features / n_numbers), n_numbers, None)

    @property
    def n_bits(self) -> int:
        """The bits of a step."""
        return self.n_numbers * N_BITS


def reader_size(task: Task, wide: int) -> Size:
    """Return the size of a recurrent network over the bits."""
    reading = Reading.of(task)
    kept = reading.n_steps * (reading.n_bits + N_GATES * wide)
    return Size(N_GATES * wide * (reading.n_bits + wide + 2), task.n_features + kept)
