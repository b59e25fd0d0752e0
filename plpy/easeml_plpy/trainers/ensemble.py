"""An ensemble in memory: live trials of other trainers, each with its weight and its part of a combined row.

The state holds the states of the members as they are, so an ensemble outlives them, and is served, tested and moved
like any trial. Its training is the choice of its members (ensembles.py); afterwards there is nothing to train. A member
may have a second state, trained on validation rows as well (refitting.py); that state answers, except on validation
rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from easeml_plpy.architectures import Architecture, Config
from easeml_plpy.columns.layout import FormColumn
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import CorruptCheckpoint, NotAllowed
from easeml_plpy.server.value_types import JSON, Array, Pause
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.committee import FoldedTrial
from easeml_plpy.trainers.contract import AnsweringTrial, Blueprint, Trainer, Training, read_trial, state_header
from easeml_plpy.trainers.training_rows import Rows, check_inputs

if TYPE_CHECKING:
    import torch

_MEMBER, _REFIT = "member/", "refit/"


@dataclass(frozen=True)
class Member:
    """A trial in an ensemble: its blueprint, its state, its weight, and where its row form begins in a combined row.
    `refit` is its state after it was trained again on validation rows as well, if it was.
    """

    architecture: str
    config: Mapping[str, JSON]
    task: Task
    weight: float
    start: int
    state: bytes
    refit: bytes | None = None

    @property
    def answering_state(self) -> bytes:
        """The state that answers."""
        return self.state if self.refit is None else self.refit

    @property
    def stop(self) -> int:
        """Where its row form ends."""
        return self.start + self.task.n_features

    def attributes(self) -> dict[str, JSON]:
        """Return all but the state, as JSON values."""
        task = asdict(self.task) | {"input_shape": list(self.task.input_shape)}
        task["layout"] = [asdict(column) for column in self.task.layout]
        return {
            "architecture": self.architecture,
            "config": dict(self.config),
            "task": task,
            "weight": self.weight,
            "start": self.start,
            "is_refit": self.refit is not None,
        }


Restore: TypeAlias = Callable[[Member, str], AnsweringTrial]
"""Returns the trial of a member, on a device. Members are of all trainers, which only the package knows."""


class EnsembleTrial:
    """The restored members. `chosen`: their description for the config, if they have just been chosen."""

    def __init__(
        self,
        blueprint: Blueprint,
        members: Sequence[Member],
        restore: Restore,
        *,
        chosen: Sequence[Mapping[str, JSON]] | None = None,
    ) -> None:
        self._blueprint, self._members, self._restore, self._chosen = blueprint, members, restore, chosen
        self._live: Sequence[AnsweringTrial] | None = None

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Pause) -> Training:
        """See LiveTrial. The members have been trained."""
        return Training(math.nan, 0, 0, self._chosen)

    def train_in_folds(
        self, inputs: torch.Tensor, targets: torch.Tensor, folds: Array, *, seed: int, pause: Pause
    ) -> Training:
        """See FoldedTrial."""
        return self.train(inputs, targets, seed=seed, pause=pause)

    def held_out(self) -> EnsembleTrial:
        """See RefitTrial."""
        if not any(member.refit for member in self._members):
            return self
        members = [replace(member, refit=None) for member in self._members]
        return EnsembleTrial(self._blueprint, members, self._restore)

    def outputs(self, inputs: Rows) -> Array:
        """See LiveTrial."""
        return self._mean(inputs, lambda live, rows: live.outputs(rows))

    def held_out_outputs(self, inputs: Rows, folds: Array) -> Array:
        """See FoldedTrial: the members of an ensemble on rows with folds are committees."""

        def answer(live: AnsweringTrial, rows: Array) -> Array:
            if not isinstance(live, FoldedTrial):
                raise NotAllowed("rows have folds, and a member of the ensemble has one model for all of them")
            return live.held_out_outputs(rows, folds)

        return self._mean(inputs, answer)

    def _mean(self, inputs: Rows, answer: Callable[[AnsweringTrial, Array], Array]) -> Array:
        """Return the weighted mean of what members answer, each for its part of the rows."""
        check_inputs(self._blueprint.task, inputs)
        if self._live is None:
            self._live = [self._restore(member, self._blueprint.device) for member in self._members]
        rows = np.asarray(inputs)
        total = np.zeros((len(rows), self._blueprint.task.n_outputs))
        for member, live in zip(self._members, self._live, strict=True):
            part = np.ascontiguousarray(rows[:, member.start : member.stop], member.task.input_type)
            total += member.weight * answer(live, part.reshape(len(rows), *member.task.input_shape))
        return total.astype(np.float32)

    def dump(self) -> bytes:
        """See LiveTrial."""
        states = {f"{_MEMBER}{k:03}": np.frombuffer(member.state, np.uint8) for k, member in enumerate(self._members)}
        states |= {
            f"{_REFIT}{k:03}": np.frombuffer(member.refit, np.uint8)
            for k, member in enumerate(self._members)
            if member.refit is not None
        }
        header = state_header(self._blueprint.architecture, self._blueprint.task)
        return checkpoint.dump(states, {**header, "members": [member.attributes() for member in self._members]})


class EnsembleTrainer(Trainer[EnsembleTrial]):
    """Resumes ensembles; ensembles.py makes them. `restore` resumes a member, `answer` one that only answers."""

    takes_all_partitions: ClassVar[bool] = True

    def __init__(self, restore: Restore, answer: Restore) -> None:
        self._restore_member, self._answer_member = restore, answer

    def count_steps(self, config: Config, n_rows: Sequence[int], n_epochs: int) -> int:
        """See Trainer. There are none."""
        return 0

    def _begin(self, blueprint: Blueprint, *, n_steps_total: int, seed: int) -> EnsembleTrial:
        raise NotAllowed("an ensemble is made of the trials of a run, when it ends")

    def answering(
        self, architecture: Architecture, config: Mapping[str, object], task: Task, payload: checkpoint.Payload
    ) -> AnsweringTrial:
        """See Trainer. Members only answer, too."""
        blueprint, state = read_trial(architecture, config, task, payload)
        return EnsembleTrial(blueprint, self._members(state), self._answer_member)

    def _restore(self, blueprint: Blueprint, state: checkpoint.Checkpoint) -> EnsembleTrial:
        """See Trainer."""
        return EnsembleTrial(blueprint, self._members(state), self._restore_member)

    def _members(self, state: checkpoint.Checkpoint) -> list[Member]:
        """Return the members of a state. Raises CorruptCheckpoint."""
        entries = state.read("members", list)
        names = names_of(entries)
        if set(chain.from_iterable(names)) != set(state.arrays):
            raise CorruptCheckpoint(f"state has {len(entries)} members and states {', '.join(sorted(state.arrays))}")
        payloads = [[state.arrays[name].tobytes() for name in pair] for pair in names]
        return [_member(entry, *pair) for entry, pair in zip(entries, payloads, strict=True)]


def names_of(entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the names under which a state has the states of each member: its own, and that of its refit if any."""
    return [
        (f"{_MEMBER}{k:03}", *([f"{_REFIT}{k:03}"] if entry["is_refit"] else [])) for k, entry in enumerate(entries)
    ]


def _member(entry: Mapping[str, Any], state: bytes, refit: bytes | None = None) -> Member:
    task = dict(entry["task"])
    layout = tuple(FormColumn(**column) for column in task.pop("layout"))
    whole = Task(**{**task, "input_shape": tuple(task["input_shape"]), "layout": layout})
    weight, start = float(entry["weight"]), int(entry["start"])
    return Member(entry["architecture"], entry["config"], whole, weight, start, state, refit)
