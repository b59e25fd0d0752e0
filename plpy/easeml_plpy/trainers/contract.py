"""What a trainer promises, whatever it trains with.

A trainer starts or resumes a live trial; a live trial trains on the rows it is given and tells its outputs.
The same state, rows, seed, device and number of threads give the same bytes, and a state that was dumped
and resumed continues as if nothing had happened. After an error in `train` a live trial is of no further use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from easeml_plpy.architectures import Architecture, fits
from easeml_plpy.checkpoint import Checkpoint
from easeml_plpy.errors import (
    CorruptCheckpoint,
    InvalidArgument,
    InvalidData,
    ShapeMismatch,
    VersionMismatch,
)
from easeml_plpy.task import Task

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

STATE_VERSION = 1
"""Version of the layout of a state; raised when an older package could misread it."""


@dataclass(frozen=True)
class Training:
    """What a pass over rows did; `loss_mean` is per row, NaN when there were no rows."""

    loss_mean: float
    n_rows: int
    n_steps: int


class LiveTrial(Protocol):
    """One trial in memory."""

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Callable[[], None]) -> Training:
        """Visit every row once, in an order drawn from the seed, calling `pause` after every mini-batch.

        inputs: float32 (n, *input_shape); targets: int64 (n,) classes or float32 (n,).
        What `pause` raises passes through. Raises TrialFailed, ShapeMismatch, InvalidData.
        """

    def outputs(self, inputs: torch.Tensor) -> Array:
        """float32 (n, n_outputs): probabilities of the classes, or predicted values. Raises NotReady."""

    def dump(self) -> bytes:
        """The whole state."""


class Trainer(Protocol):
    """Starts and resumes live trials of the architectures that name it. `is_joint`: several slots can train one trial
    together (joint_training.py)."""

    is_joint: bool

    def start(
        self,
        architecture: Architecture,
        config: Mapping[str, Any],
        task: Task,
        *,
        n_steps_total: int,
        seed: int,
        device: str = "cpu",
    ) -> LiveTrial:
        """A new trial, its parameters drawn from the seed; the schedule spans `n_steps_total` steps."""

    def resume(
        self,
        architecture: Architecture,
        config: Mapping[str, Any],
        task: Task,
        payload: bytes | bytearray | memoryview,
        *,
        device: str = "cpu",
    ) -> LiveTrial:
        """The trial that was dumped. Raises CorruptCheckpoint, ShapeMismatch, VersionMismatch."""

    def count_steps(self, config: Mapping[str, Any], n_rows: Sequence[int], n_epochs: int) -> int:
        """Steps of a whole trial over partitions of these sizes: the `n_steps_total` to start with."""


def check_fit(architecture: Architecture, task: Task) -> None:
    """Raise InvalidArgument when the architecture cannot learn the task."""
    reason = fits(architecture, task)
    if reason is not None:
        raise InvalidArgument(f"architecture does not fit: {reason}")


def check_inputs(task: Task, inputs: torch.Tensor) -> None:
    """Raise ShapeMismatch unless inputs are float32 (n, *input_shape)."""
    if tuple(inputs.shape[1:]) != task.input_shape or inputs.dtype != torch.float32:
        expected = ", ".join(["n", *(str(size) for size in task.input_shape)])
        raise ShapeMismatch(
            f"inputs: expected torch.float32 of shape ({expected}), got {inputs.dtype} of shape {tuple(inputs.shape)}"
        )


def check_rows(task: Task, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Raise ShapeMismatch or InvalidData unless the rows can be trained on."""
    check_inputs(task, inputs)
    dtype = torch.int64 if task.kind == "classification" else torch.float32
    if tuple(targets.shape) != (len(inputs),) or targets.dtype != dtype:
        raise ShapeMismatch(
            f"targets: expected {dtype} of shape {(len(inputs),)}, got {targets.dtype} of shape {tuple(targets.shape)}"
        )
    if task.kind == "classification" and len(targets):
        low, high = (int(bound) for bound in torch.aminmax(targets))
        if low < 0 or high >= task.n_outputs:
            raise InvalidData(f"targets: expected classes 0 to {task.n_outputs - 1}, got {low} to {high}")


def visit_order(n_rows: int, seed: int) -> torch.Tensor:
    """A permutation of the rows, int64 (n_rows,), drawn on the CPU so that devices agree."""
    return torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed))


def state_header(architecture: Architecture, task: Task) -> dict[str, Any]:
    """Attributes that say whose state it is."""
    return {
        "state_version": STATE_VERSION,
        "trainer": architecture.trainer,
        "architecture": architecture.name,
        "task": {"kind": task.kind, "input_shape": list(task.input_shape), "n_outputs": task.n_outputs},
    }


def check_state_header(architecture: Architecture, task: Task, state: Checkpoint) -> None:
    """Raise VersionMismatch, CorruptCheckpoint or ShapeMismatch unless the state is of this trial's kind."""
    expected, actual = state_header(architecture, task), state.attributes
    if actual.get("state_version") != STATE_VERSION:
        raise VersionMismatch(
            f"state has version {actual.get('state_version')}, this package reads {STATE_VERSION}",
            hint="Upgrade the easeml package where the segment runs, then reconnect.",
        )
    for key in ("trainer", "architecture"):
        if actual.get(key) != expected[key]:
            raise CorruptCheckpoint(f"state is of {key} {actual.get(key)!r}, expected {expected[key]!r}")
    if actual.get("task") != expected["task"]:
        raise ShapeMismatch("state is of another task", detail=f"{actual.get('task')}, not {expected['task']}")
