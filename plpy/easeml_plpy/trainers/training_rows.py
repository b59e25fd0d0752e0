"""The rows that trials are trained on and asked for: checked, visited in an order, and measured after a pass."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from easeml_plpy.columns.task import Task
from easeml_plpy.metrics.metrics import Statistics, values
from easeml_plpy.server.errors import InvalidData, ShapeMismatch
from easeml_plpy.server.value_types import Array

if TYPE_CHECKING:
    import numpy as np
    import torch

Rows: TypeAlias = "torch.Tensor | Array"
"""Inputs (n, *input_shape) of a task's type, on the CPU."""


def check_inputs(task: Task, inputs: Rows) -> None:
    """Raise ShapeMismatch unless inputs are of the task's type, (n, *input_shape)."""
    input_type = _type_name(inputs.dtype)
    if tuple(inputs.shape[1:]) != task.input_shape or input_type != task.input_type:
        shape = ", ".join(["n", *(str(size) for size in task.input_shape)])
        expected = f"{task.input_type} of shape ({shape})"
        raise ShapeMismatch(f"inputs: expected {expected}, got {input_type} of shape {tuple(inputs.shape)}")


@lru_cache(32)
def _type_name(dtype: torch.dtype | np.dtype[Any]) -> str:
    """Return what torch and numpy both call a type; asking costs a row more than its arithmetic."""
    return str(dtype).removeprefix("torch.")


def check_rows(task: Task, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Raise ShapeMismatch or InvalidData unless the rows can be trained on."""
    import torch

    check_inputs(task, inputs)
    dtype = torch.int64 if task.kind == "classification" else torch.float32
    expected = (len(inputs), task.n_outputs) if task.output_shape else (len(inputs),)
    if tuple(targets.shape) != expected or targets.dtype != dtype:
        raise ShapeMismatch(
            f"targets: expected {dtype} of shape {expected}, got {targets.dtype} of shape {tuple(targets.shape)}"
        )
    if task.kind == "classification" and len(targets):
        low, high = (int(bound) for bound in torch.aminmax(targets))
        if low < 0 or high >= task.n_outputs:
            raise InvalidData(f"targets: expected classes 0 to {task.n_outputs - 1}, got {low} to {high}")


def visit_order(n_rows: int, seed: int) -> torch.Tensor:
    """Return a permutation of the rows, int64 (n_rows,), drawn on the CPU so that devices agree."""
    import torch

    return torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed))


def measured_loss(task: Task, statistics: Statistics) -> float:
    """Return the loss per row of trainers that minimise none: the mean log loss, or the mean squared error."""
    measured = values(task, statistics)
    return measured["log_loss"] if task.kind == "classification" else measured["rmse"] ** 2
