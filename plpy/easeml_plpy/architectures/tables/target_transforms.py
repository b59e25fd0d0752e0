"""Transforms of a number to predict: a skewed target is learnt better as its root or its logarithm.

They act on the standard scale, above the least training target, so they suit a target of any unit and sign. A trial
trains on transformed targets and answers on the standard scale, so nothing outside it, such as metrics and ensembles,
sees the transform.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.columns.task import Task
from easeml_plpy.server.value_types import Array

if TYPE_CHECKING:
    import torch

NONE, ROOT, LOGARITHM = "none", "root", "logarithm"
SHIFT = 0.1  # in standard deviations: what keeps the slope finite at the least target
SKEWED = 1.5  # the greatest target is that many times as far above the mean as the least one is below it

TARGET_TRANSFORM = Hyperparameter(
    "target_transform",
    "categorical",
    NONE,
    "what a number to predict is learnt as: itself, or the root or logarithm of what it exceeds the least one by",
    choices=(NONE, ROOT, LOGARITHM),
)
SEARCHED_TRANSFORM = replace(TARGET_TRANSFORM, search=[NONE, ROOT, LOGARITHM])
"""The same, as it is searched where the target is skewed."""

T = TypeVar("T", "torch.Tensor", Array)


class Functions(Protocol):
    """numpy or torch: what computes."""

    def __getattr__(self, name: str) -> Any: ...


@dataclass(frozen=True)
class TargetTransform:
    """A transform of targets from `low` to `high` on the standard scale; the functions take arrays of any shape."""

    name: str
    low: float
    high: float

    def forward(self, values: T, functions: Functions = np) -> T:
        """Return what a trial is trained on; targets below the least one count as that one."""
        above: T = functions.clip(values - self.low, 0.0, None) + SHIFT
        return self._function(functions)(above)  # type: ignore[no-any-return]

    def inverse(self, values: T, functions: Functions = np) -> T:
        """Return answers on the standard scale, at most as far above the greatest target as that is above the least."""
        most = self._function(np)(2 * (self.high - self.low) + SHIFT)
        bounded = functions.clip(values, self._function(np)(SHIFT), float(most))
        above = functions.exp(bounded) if self.name == LOGARITHM else bounded**2
        return above - SHIFT + self.low  # type: ignore[no-any-return]

    def _function(self, functions: Functions) -> Any:
        return functions.log if self.name == LOGARITHM else functions.sqrt


def target_transform(task: Task, config: Config) -> TargetTransform | None:
    """Return the transform that a config asks for, or None."""
    name = config.get(TARGET_TRANSFORM.name, NONE)
    if name == NONE or task.target_range is None:
        return None
    return TargetTransform(str(name), *task.target_range)


def is_skewed(low: float, mean: float, high: float) -> bool:
    """Return whether a target reaches so much further up than down that a transform is worth a try."""
    return high - mean > SKEWED * (mean - low)


def object_to_transform(task: Task, config: Config) -> str | None:
    """Return why the targets of this task cannot be transformed as a config asks; None if they can."""
    if config.get(TARGET_TRANSFORM.name, NONE) == NONE or task.target_range is not None:
        return None
    if task.kind == "classification":
        return f"{TARGET_TRANSFORM.name} is for numbers, and the target is one of {task.n_outputs} classes"
    return f"{TARGET_TRANSFORM.name}: this dataset was packed before targets could be transformed; refresh it"
