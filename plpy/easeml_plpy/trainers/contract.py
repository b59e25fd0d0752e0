"""The contract of trainers, whichever library they use.

A trainer starts or resumes a live trial; a live trial trains on the rows that it is given and returns its outputs. The
same state, rows, seed, device and number of threads give the same bytes, and a state that was dumped and resumed
continues as if nothing had happened. After an error in `train` a live trial is of no further use.

Whoever must treat trials of one trainer differently asks the trainer (the attributes of `Trainer`), or looks for a
protocol that the live trial fulfils (`WholeTrial`, `RefitTrial`, `AdditiveTrial`). Nobody compares names: a further
library is a folder, and a line in trainers/__init__.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from easeml_plpy.architectures import Architecture, Config, complete, fits
from easeml_plpy.architectures.size import FLOAT64_BYTES, Size
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import CorruptCheckpoint, InvalidArgument, ShapeMismatch, VersionMismatch
from easeml_plpy.server.value_types import JSON, Array, Pause
from easeml_plpy.states.checkpoint import Checkpoint, Payload, load
from easeml_plpy.trainers.training_rows import Rows

if TYPE_CHECKING:
    import torch

STATE_VERSION = 1
"""Version of the layout of a state; raised when an older package could misread it."""


@dataclass(frozen=True)
class Training:
    """The result of a pass over rows; `loss_mean` is per row, NaN when there were no rows. `members`: the members that
    an ensemble chose, in its config's form.
    """

    loss_mean: float
    n_rows: int
    n_steps: int
    members: Sequence[Mapping[str, JSON]] | None = None


class AnsweringTrial(Protocol):
    """A trial that only answers."""

    def outputs(self, inputs: Rows) -> Array:
        """Return float32 (n, n_outputs): probabilities of the classes, or predicted values. Raises NotReady."""


class LiveTrial(AnsweringTrial, Protocol):
    """One trial in memory."""

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Pause) -> Training:
        """Visit every row once, in an order drawn from the seed, and call `pause` after every mini-batch.

        inputs: (n, *input_shape) of the task's type; targets: int64 (n,) classes or float32 (n,), (n, n_outputs) if the
        outputs are tensors. What `pause` raises passes through. Raises TrialFailed, ShapeMismatch, InvalidData.
        """

    def dump(self) -> bytes:
        """Return the whole state."""


@runtime_checkable
class WholeTrial(LiveTrial, Protocol):
    """A live trial that is measured on the same rows after each epoch, and goes on from what it knows of them."""

    def all_outputs(self, inputs: torch.Tensor, pause: Pause) -> Array:
        """Return what `outputs` returns, and keep what the next call for these rows can build on."""


@runtime_checkable
class RefitTrial(LiveTrial, Protocol):
    """A live trial that may have been trained on validation rows too, once they had chosen it."""

    def held_out(self) -> LiveTrial:
        """Return what it was before: the trial that validation rows can measure."""


@runtime_checkable
class AdditiveTrial(AnsweringTrial, Protocol):
    """A trial that can say exactly what each column adds to its answer, which other trials are sampled for."""

    @property
    def is_additive(self) -> bool:
        """Whether contributions add up to the answer; a config may transform what they add up to."""

    def contributions(self, inputs: Rows) -> Array:
        """Return what each column adds to the margins of rows, and in the last one what all rows begin with.

        float64 (n, n_margins, n_columns + 1), one margin for two classes. The margin of a class is its log odds.
        """


@dataclass(frozen=True)
class Blueprint:
    """A trial before it has a state; `config` is complete."""

    architecture: Architecture
    config: Config
    task: Task
    device: str = "cpu"


L_co = TypeVar("L_co", bound=LiveTrial, covariant=True)


class Trainer(ABC, Generic[L_co]):
    """Starts and resumes live trials of the architectures that name it.

    takes_all_partitions: it trains on all rows at once, so a unit of its trials is a whole round (units/rounds.py).
    is_joint: several slots can train one trial together (networks/joint_training.py).
    varying: hyperparameters in which trials may differ that train as one computation (networks/stack.py); without any,
        its trials never do.
    has_growing_epochs: an epoch takes longer the more there were, which plans have to know.
    size_settings: hyperparameters that make a config large, for the message that refuses one.
    """

    takes_all_partitions: ClassVar[bool] = False
    is_joint: ClassVar[bool] = False
    varying: ClassVar[tuple[str, ...]] = ()
    has_growing_epochs: ClassVar[bool] = False
    size_settings: ClassVar[tuple[str, ...]] = ()

    def rows_at_once(self, partition_rows: Sequence[int]) -> int:
        """Return the largest number of training rows of a unit, from those of each partition."""
        return sum(partition_rows) if self.takes_all_partitions else max(partition_rows, default=0)

    def needed_bytes(self, size: Size, config: Config, n_rows: int) -> int:
        """Return the least memory that training takes; `n_rows` are those of a unit (`rows_at_once`).

        By default that of parameters in double precision, and of the copy of them that is the state.
        """
        return FLOAT64_BYTES * 2 * size.n_parameters

    def check_foreign(self, blueprint: Blueprint, payload: Payload) -> None:
        """Raise CorruptCheckpoint if a state from elsewhere could do more harm than a wrong answer.

        A made-up state has a valid digest, too. `resume` checks names and shapes; a library that trusts what it reads
        needs more.
        """

    def start(
        self,
        architecture: Architecture,
        config: Mapping[str, object],
        task: Task,
        *,
        n_steps_total: int,
        seed: int,
        device: str = "cpu",
    ) -> L_co:
        """Return a new trial, its parameters drawn from the seed; the schedule spans `n_steps_total` steps."""
        check_fit(architecture, task)
        blueprint = Blueprint(architecture, complete(architecture, config), task, device)
        return self._begin(blueprint, n_steps_total=n_steps_total, seed=seed)

    def resume(
        self,
        architecture: Architecture,
        config: Mapping[str, object],
        task: Task,
        payload: Payload,
        *,
        device: str = "cpu",
        stale: LiveTrial | None = None,
    ) -> L_co:
        """Return the trial that was dumped. Raises CorruptCheckpoint, ShapeMismatch, VersionMismatch.

        stale: the same trial at another moment, of no further use: it may become the trial that was dumped."""
        blueprint, state = read_trial(architecture, config, task, payload, device)
        refilled = None if stale is None else self._refilled(stale, blueprint, state)
        return self._restore(blueprint, state) if refilled is None else refilled

    def answering(
        self, architecture: Architecture, config: Mapping[str, object], task: Task, payload: Payload
    ) -> AnsweringTrial:
        """Return a dumped trial for prediction only, on the CPU. Raises the errors of `resume`."""
        return self.resume(architecture, config, task, payload)

    def prepare(self) -> None:
        """Import what trials need, so that the measured times of the first one exclude it."""

    @abstractmethod
    def count_steps(self, config: Config, n_rows: Sequence[int], n_epochs: int) -> int:
        """Count the steps of a whole trial over partitions of these sizes: the `n_steps_total` to start with."""

    @abstractmethod
    def _begin(self, blueprint: Blueprint, *, n_steps_total: int, seed: int) -> L_co:
        """Return a trial before its first step."""

    def _refilled(self, stale: LiveTrial, blueprint: Blueprint, state: Checkpoint) -> L_co | None:
        """Return the stale trial with this state; None if it must be made anew."""
        return None

    @abstractmethod
    def _restore(self, blueprint: Blueprint, state: Checkpoint) -> L_co:
        """Return the trial with this state, which is one of its architecture and task."""


@dataclass(frozen=True)
class Library:
    """What is registered together: trainers by name, and the architectures that they train.

    The name of a trainer stands in every state, so it stays as it is.
    """

    trainers: Mapping[str, Trainer[Any]]
    architectures: Sequence[Architecture]


def read_trial(
    architecture: Architecture, config: Mapping[str, object], task: Task, payload: Payload, device: str = "cpu"
) -> tuple[Blueprint, Checkpoint]:
    """Return what a stored trial is, and its state. Raises CorruptCheckpoint, ShapeMismatch, VersionMismatch."""
    check_fit(architecture, task)
    state = load(payload)
    check_state_header(architecture, task, state)
    return Blueprint(architecture, complete(architecture, config), task, device), state


def check_fit(architecture: Architecture, task: Task) -> None:
    """Raise InvalidArgument when the architecture cannot learn the task."""
    reason = fits(architecture, task)
    if reason is not None:
        raise InvalidArgument(f"architecture does not fit: {reason}")


def state_header(architecture: Architecture, task: Task) -> dict[str, JSON]:
    """Return the attributes that say whose state it is."""
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
