"""The trainer of trials that grow trees, some each epoch, each over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import ClassVar, Generic, Protocol, TypeVar

from easeml_plpy.architectures import Config
from easeml_plpy.architectures.size import Size
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import Blueprint, LiveTrial, Trainer

LEAF_BYTES = 100  # a leaf and its node, as text or as arrays


class TreeTrial(LiveTrial, Protocol):
    """A trial that is made from its parameters, and then takes over a state."""

    def restore(self, state: checkpoint.Checkpoint) -> None:
        """Take over a state of the same architecture and task. Raises CorruptCheckpoint."""


T = TypeVar("T", bound=TreeTrial)
P = TypeVar("P")


class TreeTrainer(Trainer[T], Generic[T, P]):
    """Starts and resumes one kind of them. `parameters`: what architectures build. `library`: what grows trees.
    `number_bytes`: what a number of a row takes while it does; `sum_bytes`: what a sum of trees of a row takes, with
    what it is computed from.
    """

    takes_all_partitions: ClassVar[bool] = True  # trees that go on from partition to partition are worse
    size_settings: ClassVar[tuple[str, ...]] = ("num_leaves", "trees_per_epoch")

    def __init__(
        self,
        trial: Callable[[Blueprint, P], T],
        parameters: type[P],
        library: str,
        *,
        number_bytes: int,
        sum_bytes: int = 0,
    ) -> None:
        self._trial, self._parameters, self._library = trial, parameters, library
        self._number_bytes, self._sum_bytes = number_bytes, sum_bytes

    def prepare(self) -> None:
        """See Trainer."""
        import_module(self._library)

    def count_steps(self, config: Config, n_rows: Sequence[int], n_epochs: int) -> int:
        """See Trainer."""
        return n_epochs * config.integer("trees_per_epoch")

    def needed_bytes(self, size: Size, config: Config, n_rows: int) -> int:
        """See Trainer. Those of the rows, and of an epoch's leaves twice; a size counts what an epoch adds."""
        a_row = self._number_bytes * size.n_outputs_a_row + self._sum_bytes * size.n_sums_a_row
        return n_rows * a_row + 2 * LEAF_BYTES * size.n_parameters

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
