"""The last transaction of a unit: one fenced call that records all its results, for the caller to commit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypedDict

from easeml_plpy.metrics import METRICS
from easeml_plpy.metrics.metrics import Statistics, classes_seen, combine, is_better, mean_over_folds, values
from easeml_plpy.row_forms.datasets import dataset
from easeml_plpy.server.errors import NotReady
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import JSON
from easeml_plpy.states.checkpoint import digest
from easeml_plpy.states.states import store_chunks
from easeml_plpy.units.units import Unit, UnitContext


class TrainingFacts(TypedDict):
    """The result of a training unit: rows, mean loss, seconds, the bytes of state that it had to read, and the members
    that an ensemble has chosen.
    """

    n_rows: int
    loss: float | None
    training_seconds: float
    read_bytes: int
    members: Sequence[Mapping[str, JSON]] | None


class RecordedTraining(TypedDict):
    """The result of recording: the new checkpoint, its size, and the bytes of the state that it replaced."""

    checkpoint_id: int
    state_bytes: int
    pruned_bytes: int


class RecordedEvaluation(TypedDict):
    """The metrics of the split once all its partitions are measured, and the bytes of the state pruned then."""

    metrics: dict[str, float] | None
    pruned_bytes: int


class EvaluatedState(NamedTuple):
    """The subject of an evaluation unit: the state of an epoch on a split."""

    split: str
    epoch: int
    checkpoint_id: int


class EvaluationFacts(TypedDict):
    """The measurements of a unit on a partition, and the bytes of state that it had to read."""

    statistics: Statistics
    read_bytes: int


class _Recorded(NamedTuple):
    new_checkpoint_id: int
    pruned_bytes: int | None


RECORD_TRAINING = Statement(
    "SELECT * FROM easeml.record_training($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    ("jsonb", "timestamptz", "float8", "int8", "float8", "int8", "text", "bytea", "int8"),
    _Recorded,
)
RECORD_EVALUATION: Statement[str | None] = Statement(
    "SELECT easeml.record_evaluation($1, $2, $3, $4, $5, $6) AS parts",
    ("jsonb", "timestamptz", "int4", "text", "jsonb", "int8"),
    only_column,
)
RECORD_METRICS: Statement[int | None] = Statement(
    "SELECT easeml.record_metrics($1, $2, $3, $4, $5, $6) AS pruned_bytes",
    ("jsonb", "int4", "text", "int8", "jsonb", "int8"),
    only_column,
)


def evaluated_state(unit: Unit, context: UnitContext) -> EvaluatedState:
    """Return what to measure: validation measures the newest state, test that of the best epoch."""
    split = "test" if unit.kind == "test" else "validation"
    if unit.kind == "test" and context.best_checkpoint_id is not None and context.best_epoch is not None:
        return EvaluatedState(split, context.best_epoch, context.best_checkpoint_id)
    if context.checkpoint_id is None:
        raise NotReady(f"trial {unit.trial_id} has no state to measure yet")
    return EvaluatedState(split, unit.epoch, context.checkpoint_id)


def record_training(
    session: Session, order: str, context: UnitContext, facts: TrainingFacts, state: bytes
) -> RecordedTraining:
    """Record a state and what led to it. `order` is the unit's, or a gang's with the facts of all members."""
    sha256 = digest(state)
    if facts["members"] is not None:
        order = json.dumps(json.loads(order) | {"members": facts["members"]})
    # Chunks go first: what easeml.record_training locks is locked until the commit.
    chunked_id = store_chunks(session, order, state, sha256)
    recorded = session.row(
        RECORD_TRAINING,
        order,
        context.started_at,
        facts["training_seconds"],
        facts["n_rows"],
        facts["loss"],
        facts["read_bytes"],
        sha256,
        state if chunked_id is None else None,
        chunked_id,
    )
    return {
        "checkpoint_id": recorded.new_checkpoint_id,
        "state_bytes": len(state),
        "pruned_bytes": recorded.pruned_bytes or 0,
    }


def record_evaluation(
    session: Session, order: str, context: UnitContext, measured: EvaluatedState, facts: EvaluationFacts
) -> RecordedEvaluation:
    """Record the sums of a partition; the split's last one makes its metrics and may make this state the best."""
    statistics = json.dumps(facts["statistics"])
    read_bytes = facts["read_bytes"]
    parts = session.row(
        RECORD_EVALUATION, order, context.started_at, measured.epoch, measured.split, statistics, read_bytes
    )
    if parts is None:
        return {"metrics": None, "pruned_bytes": 0}
    return _record_metrics(session, order, context, measured, json.loads(parts))


def _record_metrics(
    session: Session, order: str, context: UnitContext, measured: EvaluatedState, parts: Sequence[Statistics]
) -> RecordedEvaluation:
    """Make the metrics of a whole split; after a validation this state may become the trial's best."""
    data, total, errors = dataset(session, context.trial.dataset_id), combine(parts), {}
    metric_values = values(data.task(), total)
    if data.encoder.n_folds and measured.split == "validation":
        of_folds = mean_over_folds(data.task(), parts)
        metric_values, errors = ({name: both[k] for name, both in of_folds.items()} for k in (0, 1))
    # No rows, no number: NaN would sort above every number in SQL.
    metrics = {name: value for name, value in metric_values.items() if math.isfinite(value)}
    is_first = context.best_checkpoint_id is None
    improves = is_better(METRICS[context.metric], metrics, context.best_metric_value, context.best_loss)
    is_best = measured.split == "validation" and (is_first or improves)
    best_checkpoint_id = measured.checkpoint_id if is_best else None
    pruned_bytes = session.row(
        RECORD_METRICS,
        order,
        measured.epoch,
        measured.split,
        total["n_rows"],
        json.dumps(metrics | {"n_classes": classes_seen(total), "metric_error": _finite(errors.get(context.metric))}),
        best_checkpoint_id,
    )
    return {"metrics": metrics, "pruned_bytes": pruned_bytes or 0}


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
