"""What a trial learns: the kind of task and the shapes of its input and output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from easeml_plpy.columns.layout import Layout
from easeml_plpy.server.errors import InvalidArgument

TaskKind = Literal["classification", "regression"]
InputType = Literal["float32", "float64"]
TASK_KINDS: tuple[TaskKind, ...] = ("classification", "regression")

MAX_RANK = 16


class Objects(NamedTuple):
    """The layout of a place in a series or tree: a number of numbers, 1 if the object exists, else 0, and the places,
    from 1, of the objects that it links to, 0 for none. Each comes after the one that links to it; a series has no
    links.
    """

    n_numbers: int
    n_links: int


@dataclass(frozen=True)
class Task:
    """`input_shape` is without the batch, `n_outputs` the number of classes, or 1 for regression.

    A single number as input has the shape (1,). `layout` gives the kind of each column, if the row form has columns of
    several kinds. `input_range` holds the minimum and maximum of the training rows, if the input is one array of
    several dimensions; `target_range` those of the targets on the standard scale, if they are numbers. With `n_folds` a
    trial is a committee of that many models. A regression with an `output_shape` returns tensors, whose numbers
    `n_outputs` counts, in `output_range`. `objects` says that a row is a series or tree, padded to the longest one;
    `output_objects` that the outputs are series, of an output_shape (steps, numbers + 1), whose last number of a step
    is 1 if the step exists. Raises InvalidArgument.
    """

    kind: TaskKind
    input_shape: tuple[int, ...]
    n_outputs: int
    input_type: InputType = "float32"
    layout: Layout = ()
    n_folds: int = 0
    input_range: tuple[float, float] | None = None
    target_range: tuple[float, float] | None = None
    output_shape: tuple[int, ...] = ()
    output_range: tuple[float, float] = (0.0, 0.0)
    objects: Objects | None = None
    output_objects: Objects | None = None

    def __post_init__(self) -> None:
        if self.kind not in TASK_KINDS:
            raise InvalidArgument(f"task kind: expected one of {', '.join(TASK_KINDS)}, got {self.kind!r}")
        if len(self.input_shape) > MAX_RANK:
            raise InvalidArgument(f"task input_shape: expected at most {MAX_RANK} sizes, got {len(self.input_shape)}")
        if not self.input_shape or min(self.input_shape) < 1:
            raise InvalidArgument(
                f"task input_shape: expected one or more positive sizes, got {list(self.input_shape)}"
            )
        if self.kind == "classification" and self.n_outputs < 2:
            raise InvalidArgument(f"task n_outputs: classification needs 2 or more, got {self.n_outputs}")
        if self.kind == "regression" and self.n_outputs != math.prod(self.output_shape):
            expected = math.prod(self.output_shape)
            raise InvalidArgument(f"task n_outputs: regression needs exactly {expected}, got {self.n_outputs}")

    @property
    def n_features(self) -> int:
        """Numbers per row once the input is flattened."""
        return math.prod(self.input_shape)
