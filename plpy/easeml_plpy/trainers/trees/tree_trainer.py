"""The trainer of trials that grow trees, some each epoch: boosters and forests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Generic, Protocol, TypeVar

from easeml_plpy.architectures import Config
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import Blueprint, LiveTrial, Trainer


class TreeTrial(LiveTrial, Protocol):
    """A trial that is made from its parameters, and then takes over a state."""

    def restore(self, state: checkpoint.Checkpoint) -> None:
        """Take over a state of the same architecture and task. Raises CorruptCheckpoint."""


T = TypeVar("T", bound=TreeTrial)
P = TypeVar("P")


class TreeTrainer(Trainer[T], Generic[T, P]):
    """Starts and resumes one kind of them. `parameters`: what architectures build. `library`: what grows trees."""

    def __init__(self, trial: Callable[[Blueprint, P], T], parameters: type[P], library: str) -> None:
        self._trial, self._parameters, self._library = trial, parameters, library

    def prepare(self) -> None:
        """See Trainer."""
        import_module(self._library)

    def count_steps(self, config: Config, n_rows: Sequence[int], n_epochs: int) -> int:
        """See Trainer."""
        return n_epochs * config.integer("trees_per_epoch")

    def _begin(self, blueprint: Blueprint, *, n_steps_total: int, seed: int) -> T:
        """See Trainer. Trees are drawn in training: no total, seed or device."""
        parameters = blueprint.architecture.build(blueprint.task, blueprint.config)
        if not isinstance(parameters, self._parameters):
            raise TypeError(f"{blueprint.architecture.name} builds {type(parameters).__name__}")
        return self._trial(blueprint, parameters)

    def _restore(self, blueprint: Blueprint, state: checkpoint.Checkpoint) -> T:
        """See Trainer."""
        trial = self._begin(blueprint, n_steps_total=0, seed=0)
        trial.restore(state)
        return trial
