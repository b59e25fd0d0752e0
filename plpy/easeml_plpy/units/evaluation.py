"""An evaluation unit: one trial, frozen, over the validation or test rows of one partition."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from easeml_plpy.metrics.metrics import measure
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Session
from easeml_plpy.units.folds import answers_for
from easeml_plpy.units.live_trials import keep_live, live_trial
from easeml_plpy.units.recording import (
    EvaluatedState,
    EvaluationFacts,
    RecordedEvaluation,
    evaluated_state,
    record_evaluation,
)
from easeml_plpy.units.units import Unit, UnitContext, open_unit, trial_to_blame

T = TypeVar("T")


@entry_point(is_pinned=True)
def evaluate_unit(session: Session, unit: str, result: str | None) -> tuple[str]:
    """Measure and record the sums; the split's last partition makes the metrics and settles the best epoch.

    Returns JSON {"n_rows", "metrics", "pruned_bytes"}; metrics is null until the split is complete.
    """
    order = Unit.from_text(unit)
    context = open_unit(session, order)

    def record(measured: EvaluatedState, facts: EvaluationFacts) -> RecordedEvaluation:
        return record_evaluation(session, order.text, context, measured, facts)

    n_rows, recorded = evaluate_opened(session, order, context, record)
    return (json.dumps({"n_rows": n_rows, **recorded}),)


def evaluate_opened(
    session: Session, order: Unit, context: UnitContext, record: Callable[[EvaluatedState, EvaluationFacts], T]
) -> tuple[int, T]:
    """Evaluate in an opened unit and record the sums; return the number of rows, and the result."""
    measured = evaluated_state(order, context)
    data = datasets.dataset(session, context.trial.dataset_id)
    rows = datasets.partition_rows(
        session, context.trial.dataset_id, measured.split, order.partition_number, context.trial.view
    )
    live, read_bytes = live_trial(session, order, context, measured.checkpoint_id, order.seed)
    session.commit()

    with trial_to_blame(session):
        outputs = answers_for(live, rows, SessionPause(session))
    statistics = measure(data.task(), data.raw(outputs), rows.raw_targets)

    facts: EvaluationFacts = {"statistics": statistics, "read_bytes": read_bytes}
    recorded = record(measured, facts)
    session.let_go()
    keep_live(session, order, context, measured.checkpoint_id, live)
    return int(statistics["n_rows"]), recorded
