"""Batches: units of several trials of one run on one slot, opened together and recorded in one transaction.

Each member goes through the steps of a unit (training.py, evaluation.py). Members of one shape train as one computation
if that is faster (batch_training.py). A member that cannot be opened, trained or recorded fails alone, and the others
continue. Whatever ends the call, such as a cancel or a lost connection, ends it for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypedDict

from easeml_plpy.metrics.metrics import measure
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import RowsHeld
from easeml_plpy.server.failures import is_fault, told_by
from easeml_plpy.server.session import Session
from easeml_plpy.trainers.contract import LiveTrial
from easeml_plpy.units.batch_training import Learner, Learnt, train_members
from easeml_plpy.units.folds import answers_for
from easeml_plpy.units.live_trials import keep_live, live_trial
from easeml_plpy.units.recording import EvaluationFacts, evaluated_state, record_evaluation, record_training
from easeml_plpy.units.training import refuse_part
from easeml_plpy.units.units import Unit, UnitContext, open_unit, trial_to_blame

HELD = "55P03"
"""SQLSTATE of rows that an open transaction has locked."""
ToldError = dict[str, str | None]


class BatchRecorded(TypedDict):
    """The result of a batch: bytes of pruned states, and the errors of members that are not recorded, by trial."""

    pruned_bytes: int
    failures: dict[int, ToldError]


@dataclass(frozen=True)
class Member:
    """A unit that has been opened, with its trial."""

    order: Unit
    context: UnitContext
    live: LiveTrial
    read_bytes: int


@entry_point(is_pinned=True)
def train_batch(session: Session, batch: str, result: str | None) -> tuple[str]:
    """Train every member over its own partition, then record states, units and losses in one fenced transaction.

    Returns JSON {"pruned_bytes", "failures": {trial: error}}.
    """
    work = _Batch(session)
    members = [member for order in orders_of(batch) if (member := work.opened_for_training(order)) is not None]
    session.commit()
    learners = [Learner(member.order, member.context, member.live, member.read_bytes) for member in members]
    learnt = train_members(session, learners, work.blaming)
    return (work.record([member for member in members if member.order.trial_id in learnt], learnt),)


@entry_point(is_pinned=True)
def evaluate_batch(session: Session, batch: str, result: str | None) -> tuple[str]:
    """Measure every member on the rows of its own partition, and record the sums in one fenced transaction.

    Returns what `train_batch` returns.
    """
    work = _Batch(session)
    members = [member for order in orders_of(batch) if (member := work.opened_for_evaluation(order)) is not None]
    session.commit()
    facts = {member.order.trial_id: work.measured(member) for member in members}
    return (work.record_sums([member for member in members if facts[member.order.trial_id]], facts),)


def orders_of(batch: str) -> list[Unit]:
    """Return the units of a batch, each with its place among them.

    They are ordered by trial: every transaction that changes several trials locks them in this order
    (easeml.lock_trials), so that none deadlock.
    """
    members = sorted(json.loads(batch)["batch"], key=lambda member: member["trial_id"])
    places = [{"batch": {"rank": rank, "n_members": len(members)}} for rank in range(len(members))]
    return [Unit(text=json.dumps(member | place), **member) for member, place in zip(members, places, strict=True)]


class _Batch:
    """The work of a batch in a session, and the members that failed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pause = SessionPause(session)
        self._failures: dict[int, ToldError] = {}

    @contextmanager
    def blaming(self, trial_id: int) -> Iterator[None]:
        """Record the error of one member, so that the others continue; let an error pass that is no member's fault."""
        try:
            yield
        except Exception as error:
            failure = _told_of_member(error)
            if failure is None:
                raise
            self._failures[trial_id] = failure

    @contextmanager
    def _apart(self, order: Unit) -> Iterator[None]:
        """Undo the effects of the statements in here for one member if they fail."""
        with self.blaming(order.trial_id), self._session.subtransaction():
            yield

    # Before

    def opened_for_training(self, order: Unit) -> Member | None:
        """Open a unit, and take its trial as of its newest state."""
        with self._apart(order):
            context = open_unit(self._session, order)
            refuse_part(context)
            return self._member(order, context, context.checkpoint_id)
        return None

    def opened_for_evaluation(self, order: Unit) -> Member | None:
        """Open a unit, and take its trial as of the state that is measured."""
        with self._apart(order):
            context = open_unit(self._session, order)
            return self._member(order, context, evaluated_state(order, context).checkpoint_id)
        return None

    def _member(self, order: Unit, context: UnitContext, checkpoint_id: int | None) -> Member:
        live, read_bytes = live_trial(self._session, order, context, checkpoint_id, order.seed)
        return Member(order, context, live, read_bytes)

    def measured(self, member: Member) -> EvaluationFacts | None:
        """Return the sums of a member over its partition; None if it failed."""
        session, context = self._session, member.context
        with self.blaming(member.order.trial_id):
            data = datasets.dataset(session, context.trial.dataset_id)
            split = evaluated_state(member.order, context).split
            rows = datasets.partition_rows(
                session, context.trial.dataset_id, split, member.order.partition_number, context.trial.view
            )
            session.commit()
            with trial_to_blame(session):
                outputs = answers_for(member.live, rows, self._pause)
            statistics = measure(data.task(), data.raw(outputs), rows.raw_targets)
            return {"statistics": statistics, "read_bytes": member.read_bytes}
        return None

    # After

    def record(self, members: Sequence[Member], learnt: dict[int, Learnt]) -> str:
        """Record the training of the members, commit, and keep their trials."""
        kept, pruned_bytes = [], 0
        for member in members:
            training = learnt[member.order.trial_id]
            with self._apart(member.order):
                text = _with_stack(member.order.text, training.stack)
                recorded = record_training(self._session, text, member.context, training.facts, training.state)
                pruned_bytes += recorded["pruned_bytes"]
                kept.append((member, recorded["checkpoint_id"]))
        return self._end(kept, pruned_bytes)

    def record_sums(self, members: Sequence[Member], facts: dict[int, EvaluationFacts | None]) -> str:
        """Record the evaluations, commit, and keep the trials."""
        kept, pruned_bytes = [], 0
        for member in members:
            evaluation, measured = facts[member.order.trial_id], evaluated_state(member.order, member.context)
            if evaluation is not None:
                with self._apart(member.order):
                    recorded = record_evaluation(self._session, member.order.text, member.context, measured, evaluation)
                    pruned_bytes += recorded["pruned_bytes"]
                    kept.append((member, measured.checkpoint_id))
        return self._end(kept, pruned_bytes)

    def _end(self, kept: Sequence[tuple[Member, int]], pruned_bytes: int) -> str:
        self._session.commit()
        for member, checkpoint_id in kept:
            keep_live(self._session, member.order, member.context, checkpoint_id, member.live)
        recorded: BatchRecorded = {"pruned_bytes": pruned_bytes, "failures": self._failures}
        return json.dumps(recorded)


def _with_stack(text: str, stack: Sequence[int] | None) -> str:
    """Return an order that says how many trained together, at which place, for how many steps."""
    return text if stack is None else json.dumps(json.loads(text) | {"stack": list(stack)})


def _told_of_member(error: Exception) -> ToldError | None:
    """Return the report of an error of class ML, or of locked rows; None for any other error, a value that nobody
    expected included, which ends the whole batch.
    """
    failure = None if is_fault(error) else told_by(error)
    if failure is None or failure["sqlstate"] == HELD:
        return failure and {**failure, "sqlstate": RowsHeld.sqlstate}
    return failure if str(failure["sqlstate"]).startswith("ML") else None
