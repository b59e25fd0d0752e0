"""A cross-validation committee: a trial of a dataset with folds has one member for each fold, which never sees that
fold.

Member f trains on all rows except those of fold f, and it alone answers for those. So every row that trains some
members also validates the trial, and no member has seen the rows that measure it (Krogh and Vedelsby 1995). For other
rows the committee answers with the mean of its members. It is one trial with one state, so it trains, hops, is replayed
and serves like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from easeml_plpy.architectures import Architecture, complete
from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import CorruptCheckpoint
from easeml_plpy.server.value_types import Array, Pause
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import AnsweringTrial, LiveTrial, Trainer, Training, check_state_header, state_header
from easeml_plpy.trainers.training_rows import Rows

if TYPE_CHECKING:
    import torch

_MEMBER = "member/"
_SEED_STEP = 1_000_003
_MOST = 2**63 - 1


@runtime_checkable
class FoldedTrial(LiveTrial, Protocol):
    """A live trial that knows which rows it may learn from, and which of its models have not seen a row."""

    def train_in_folds(
        self, inputs: torch.Tensor, targets: torch.Tensor, folds: Array, *, seed: int, pause: Pause
    ) -> Training:
        """Train as `train` does; `folds` (n,) gives for each row the member that must not see it."""

    def held_out_outputs(self, inputs: Rows, folds: Array) -> Array:
        """Return what `outputs` returns, of models that have not seen the rows of these folds (n,)."""


class Committee:
    """The members, by the fold that each has not seen."""

    def __init__(self, architecture: Architecture, task: Task, members: Sequence[LiveTrial]) -> None:
        self._architecture, self._task, self._members = architecture, task, members

    def train(self, inputs: torch.Tensor, targets: torch.Tensor, *, seed: int, pause: Pause) -> Training:
        """See LiveTrial: rows that come without folds, to be timed, are dealt to them in turn."""
        folds = np.arange(len(inputs)) % len(self._members)
        return self.train_in_folds(inputs, targets, folds, seed=seed, pause=pause)

    def train_in_folds(
        self, inputs: torch.Tensor, targets: torch.Tensor, folds: Array, *, seed: int, pause: Pause
    ) -> Training:
        """See FoldedTrial. A row counts once, though several members train on it."""
        import torch

        parts = []
        for fold, member in enumerate(self._members):
            seen = torch.from_numpy(folds != fold)
            if seen.any():
                parts.append(member.train(inputs[seen], targets[seen], seed=member_seed(seed, fold), pause=pause))
        n_visits = sum(part.n_rows for part in parts)
        loss = math.fsum(part.loss_mean * part.n_rows for part in parts if part.n_rows) / max(n_visits, 1)
        n_steps = sum(part.n_steps for part in parts)
        return Training(loss if n_visits else math.nan, len(inputs) if n_visits else 0, n_steps)

    def outputs(self, inputs: Rows) -> Array:
        """See LiveTrial: the mean of all members."""
        return AnsweringCommittee(self._members).outputs(inputs)

    def held_out_outputs(self, inputs: Rows, folds: Array) -> Array:
        """See FoldedTrial."""
        rows = np.asarray(inputs)
        answers = np.zeros((len(inputs), self._task.n_outputs), np.float32)
        for fold in np.unique(folds):
            in_fold = folds == fold
            answers[in_fold] = self._members[fold].outputs(rows[in_fold])
        return answers

    def dump(self) -> bytes:
        """See LiveTrial."""
        states = {
            f"{_MEMBER}{fold:03}": np.frombuffer(member.dump(), np.uint8) for fold, member in enumerate(self._members)
        }
        header = state_header(self._architecture, self._task)
        return checkpoint.dump(states, {**header, "n_folds": len(self._members)})


class AnsweringCommittee:
    """Members that answer together."""

    def __init__(self, members: Sequence[AnsweringTrial]) -> None:
        self._members = members

    def outputs(self, inputs: Rows) -> Array:
        """See AnsweringTrial: the mean of all members."""
        total = np.sum([member.outputs(inputs).astype(np.float64) for member in self._members], axis=0)
        answers: Array = (total / len(self._members)).astype(np.float32)
        return answers


def member_seed(seed: int, fold: int) -> int:
    """Return the seed of a member's unit."""
    return (seed + fold * _SEED_STEP) & _MOST


def begin_committee(
    trainer: Trainer[LiveTrial],
    architecture: Architecture,
    config: Mapping[str, object],
    task: Task,
    *,
    train_rows: Sequence[int],
    n_epochs: int,
    seed: int,
    device: str,
) -> Committee:
    """Return a committee before its first unit; `train_rows` are those of each partition, which is a fold."""
    members, full = [], complete(architecture, config)
    for fold in range(task.n_folds):
        seen = [n for partition, n in enumerate(train_rows) if partition != fold]
        n_steps_total = trainer.count_steps(full, seen, n_epochs)
        seeded = member_seed(seed, fold)
        members.append(
            trainer.start(architecture, full, single(task), n_steps_total=n_steps_total, seed=seeded, device=device)
        )
    return Committee(architecture, task, members)


def resume_committee(
    trainer: Trainer[LiveTrial],
    architecture: Architecture,
    config: Mapping[str, object],
    task: Task,
    payload: checkpoint.Payload,
    *,
    device: str,
) -> Committee:
    """Return the committee that was dumped. Raises CorruptCheckpoint, ShapeMismatch, VersionMismatch."""
    states = member_states(architecture, task, payload)
    members = [trainer.resume(architecture, config, single(task), state, device=device) for state in states]
    return Committee(architecture, task, members)


def answering_committee(
    trainer: Trainer[LiveTrial],
    architecture: Architecture,
    config: Mapping[str, object],
    task: Task,
    payload: checkpoint.Payload,
) -> AnsweringCommittee:
    """Return a dumped committee for prediction only. Raises the errors of `resume_committee`."""
    states = member_states(architecture, task, payload)
    return AnsweringCommittee([trainer.answering(architecture, config, single(task), state) for state in states])


def member_states(architecture: Architecture, task: Task, payload: checkpoint.Payload) -> list[bytes]:
    """Return the states of the members of a committee's. Raises CorruptCheckpoint, ShapeMismatch, VersionMismatch."""
    state = checkpoint.load(payload)
    check_state_header(architecture, task, state)
    payloads = [state.arrays[name].tobytes() for name in sorted(state.arrays)]
    if not len(payloads) == task.n_folds == state.attributes.get("n_folds"):
        raise CorruptCheckpoint(f"state has {len(payloads)} members, expected {task.n_folds}, one for each fold")
    return payloads


def single(task: Task) -> Task:
    """Return the task of a member."""
    return replace(task, n_folds=0)
