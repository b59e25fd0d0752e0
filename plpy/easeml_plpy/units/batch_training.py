"""Training the members of a batch: those of one shape as one computation where that is faster, the others in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeAlias

from easeml_plpy.catalogue.config_memory import needed_bytes
from easeml_plpy.row_forms import datasets
from easeml_plpy.row_forms.datasets import TENSOR_BYTES, PartitionRows
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.devices import device_bytes
from easeml_plpy.server.errors import TrialFailed
from easeml_plpy.server.session import Kept, Session
from easeml_plpy.trainers.contract import LiveTrial
from easeml_plpy.trainers.networks.stack import Pass, n_common_steps, stack_key, train_stacked
from easeml_plpy.trainers.networks.stack_gain import StackGains
from easeml_plpy.trainers.networks.stacked_layers import NotStackable
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from easeml_plpy.units.recording import TrainingFacts
from easeml_plpy.units.training import trained, training_facts
from easeml_plpy.units.units import Unit, UnitContext

SHARE_OF_MEMORY = 0.5  # of what a slot may take, for the numbers of a stack
COPIES = 2  # of what a trial takes alone: its own numbers, and those in the stack
GAINS: Kept[StackGains] = Kept(StackGains)
Blaming: TypeAlias = Callable[[int], AbstractContextManager[None]]
"""Keeps the error of the trial of that number, and lets others go on."""


class Learner(NamedTuple):
    """A unit that has been opened, with its trial and the bytes of state that were read for it."""

    order: Unit
    context: UnitContext
    live: LiveTrial
    read_bytes: int


class Learnt(NamedTuple):
    """The result of a unit; `stack` holds how many trials trained as one computation, its place among them, and how
    many steps they did together.
    """

    facts: TrainingFacts
    state: bytes
    stack: tuple[int, int, int] | None = None


def train_members(session: Session, learners: Sequence[Learner], blaming: Blaming) -> dict[int, Learnt]:
    """Train all members, and return by trial the results of those that did not fail."""
    learnt: dict[int, Learnt] = {}
    for group in _of_one_shape(learners):
        for part in _within_memory(session, group):
            together = _trained_together(session, part, blaming)
            learnt |= _trained_in_turn(session, part, blaming) if together is None else together
    return learnt


def _of_one_shape(learners: Sequence[Learner]) -> Iterator[list[Learner]]:
    """Yield the learners that could train as one computation; each alone that could not."""
    groups: dict[Hashable, list[Learner]] = {}
    for learner in learners:
        key = stack_key(learner.live) if isinstance(learner.live, TorchTrial) else learner.order.trial_id
        groups.setdefault(key, []).append(learner)
    yield from groups.values()


def _within_memory(session: Session, group: Sequence[Learner]) -> Iterator[list[Learner]]:
    """Cut a group into parts whose numbers and rows fit into the memory of the slot."""
    first, part, held = group[0], list[Learner](), dict[int, int]()
    n_most = _n_within_memory(first)
    for learner in group:
        number = learner.order.partition_number
        held.setdefault(number, _rows(session, learner).nbytes)
        if part and (len(part) == n_most or sum(held.values()) > TENSOR_BYTES):
            yield part
            part, held = [], {number: held[number]}
        part.append(learner)
    yield part


def _n_within_memory(learner: Learner) -> int:
    """Return how many trials like this one have place for a second copy of their numbers."""
    if not isinstance(learner.live, TorchTrial):
        return 1
    spec, blueprint = learner.context.trial, learner.live.blueprint
    needed = needed_bytes(blueprint.architecture, blueprint.task, blueprint.config, spec.train_rows)
    return max(1, int(SHARE_OF_MEMORY * device_bytes(learner.context.device)) // (COPIES * max(needed, 1)))


def _trained_together(session: Session, part: Sequence[Learner], blaming: Blaming) -> dict[int, Learnt] | None:
    """Train trials of one shape as one computation; return None, and leave them unchanged, if that is impossible or
    slower than one after another.
    """
    trials = [learner.live for learner in part if isinstance(learner.live, TorchTrial)]
    if len(trials) < max(len(part), 2):
        return None
    rows = [_rows(session, learner) for learner in part]
    passes = [Pass(data.inputs, data.targets, learner.order.seed) for data, learner in zip(rows, part, strict=True)]
    session.commit()
    started, n_steps = time.perf_counter(), n_common_steps(trials, passes)
    try:
        if not session.kept(GAINS).pays(trials, passes):
            return None
        done = train_stacked(trials, passes, n_steps, SessionPause(session))
    except (NotStackable, MemoryError, RuntimeError):  # trained alone, only the trial at fault fails
        return None
    seconds = (time.perf_counter() - started) / len(part)
    learnt = {}
    for place, (learner, training) in enumerate(zip(part, done, strict=True)):
        with blaming(learner.order.trial_id):
            if isinstance(training, TrialFailed):
                raise training
            facts = training_facts(training, seconds, learner.read_bytes)
            learnt[learner.order.trial_id] = Learnt(facts, learner.live.dump(), (len(part), place, n_steps))
    return learnt


def _trained_in_turn(session: Session, part: Sequence[Learner], blaming: Blaming) -> dict[int, Learnt]:
    """Train one trial after another, each as in a unit of its own."""
    learnt = {}
    for learner in part:
        with blaming(learner.order.trial_id):
            rows = _rows(session, learner)
            session.commit()
            learnt[learner.order.trial_id] = Learnt(
                *trained(session, learner.live, rows, learner.order.seed, learner.read_bytes)
            )
    return learnt


def _rows(session: Session, learner: Learner) -> PartitionRows:
    spec = learner.context.trial
    return datasets.partition_rows(
        session, spec.dataset_id, spec.training_split, learner.order.partition_number, spec.view
    )
