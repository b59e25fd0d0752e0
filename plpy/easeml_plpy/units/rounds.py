"""A whole round of a trial in one unit: all partitions at once, in one session, for architectures that need all rows.

It is recorded as a gang with one rank: each partition has its row, and all of them are recorded or none. Training rows
come in the order of the partitions, so the visit order changes no byte. Otherwise it goes through the steps of a unit
(training.py), also on nodes (node_units.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from easeml_plpy.metrics.metrics import measure
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Session
from easeml_plpy.units.folds import answers_for
from easeml_plpy.units.gang_rank import gang_of
from easeml_plpy.units.live_trials import keep_live, live_trial
from easeml_plpy.units.outputs import measurable_on
from easeml_plpy.units.recording import (
    EvaluatedState,
    EvaluationFacts,
    RecordedEvaluation,
    RecordedTraining,
    TrainingFacts,
    evaluated_state,
    record_evaluation,
    record_training,
)
from easeml_plpy.units.round_rows import round_rows
from easeml_plpy.units.training import trained, training_report
from easeml_plpy.units.units import Unit, UnitContext, open_unit, trial_to_blame

T = TypeVar("T")


@entry_point(is_pinned=True)
def train_round(session: Session, unit: str, result: str | None) -> tuple[str]:
    """Train over all partitions, then record the state, all units of the round and the loss in one fenced transaction.

    Returns what `train_unit` returns. Raises TrialFailed, StaleLease, CorruptCheckpoint; a cancel passes through and
    records nothing.
    """
    order = Unit.from_text(unit)
    context = open_unit(session, order)

    def record(parts: Sequence[TrainingFacts], state: bytes) -> RecordedTraining:
        return record_training(session, order_with(order, parts), context, parts[0], state)

    facts, recorded = train_opened_round(session, order, context, record)
    return (training_report(facts, recorded),)


def train_opened_round(
    session: Session,
    order: Unit,
    context: UnitContext,
    record: Callable[[Sequence[TrainingFacts], bytes], RecordedTraining],
) -> tuple[TrainingFacts, RecordedTraining]:
    """Train a round that was opened, and have its state recorded in the transaction that is committed then.

    `record` takes the facts of each member of the order; what was read counts for the first.
    """
    rows = round_rows(session, context.trial, context.trial.training_split)
    live, read_bytes = live_trial(session, order, context, context.checkpoint_id, order.seed)
    session.commit()

    facts, state = trained(session, live, rows, order.seed, read_bytes)
    parts = _parts_of(facts, [rows.n_rows[member.partition_number] for member in gang_of(order).members])
    recorded = record([{**parts[0], "read_bytes": read_bytes, "members": facts["members"]}, *parts[1:]], state)
    session.commit()
    keep_live(session, order, context, recorded["checkpoint_id"], live)
    return facts, recorded


@entry_point(is_pinned=True)
def evaluate_round(session: Session, unit: str, result: str | None) -> tuple[str]:
    """Measure the rows of all partitions, record the sums of each, and settle the best epoch.

    Returns what `evaluate_unit` returns.
    """
    order = Unit.from_text(unit)
    context = open_unit(session, order)

    def record(measured: EvaluatedState, parts: Sequence[EvaluationFacts]) -> RecordedEvaluation:
        return record_evaluation(session, order_with(order, parts), context, measured, parts[0])

    n_rows, recorded = evaluate_opened_round(session, order, context, record)
    return (json.dumps({"n_rows": n_rows, **recorded}),)


def evaluate_opened_round(
    session: Session,
    order: Unit,
    context: UnitContext,
    record: Callable[[EvaluatedState, Sequence[EvaluationFacts]], T],
) -> tuple[int, T]:
    """Evaluate in an opened round and record the sums; return the number of rows, and the result. `record` takes the
    facts of each member of the order; the bytes read count for the first.
    """
    measured = evaluated_state(order, context)
    data = datasets.dataset(session, context.trial.dataset_id)
    rows = round_rows(session, context.trial, measured.split)
    live, read_bytes = live_trial(session, order, context, measured.checkpoint_id, order.seed)
    session.commit()

    with trial_to_blame(session):
        outputs = data.raw(answers_for(measurable_on(measured.split, live), rows, SessionPause(session)))
    starts = np.cumsum([0, *rows.n_rows])
    parts: list[EvaluationFacts] = []
    for member in gang_of(order).members:
        places = slice(starts[member.partition_number], starts[member.partition_number + 1])
        task = data.task(context.trial.view)
        parts.append({"statistics": measure(task, outputs[places], rows.raw_targets[places]), "read_bytes": 0})

    parts[0] = {**parts[0], "read_bytes": read_bytes}
    recorded = record(measured, parts)
    session.commit()
    keep_live(session, order, context, measured.checkpoint_id, live)
    return int(starts[-1]), recorded


def _parts_of(facts: TrainingFacts, n_rows: Sequence[int]) -> list[TrainingFacts]:
    """Return what is recorded of each partition: its rows, an equal share of the time, the loss of all."""
    seconds = facts["training_seconds"] / len(n_rows)
    return [{**facts, "n_rows": n, "training_seconds": seconds, "read_bytes": 0, "members": None} for n in n_rows]


def order_with(order: Unit, parts: Sequence[Mapping[str, object]]) -> str:
    """Return the order in recorded form: one rank, and the work on each further partition."""
    members = zip(gang_of(order).members, parts, strict=True)
    others = [{**member._asdict(), **facts} for member, facts in members][1:]
    return json.dumps(json.loads(order.text) | {"gang": {"n_ranks": 1, "others": others}})
