"""An evaluation unit: one trial, frozen, over the validation or test rows of one partition."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from . import cache, units
from .cancellation import Pause
from .metrics import METRICS, combine, is_better, measure, values
from .session import entry_point, query

Json = dict[str, Any]
ROWS_AT_ONCE = 4096


@entry_point
def evaluate_unit(plpy: Any, GD: Json, unit: str, result: str | None) -> tuple[str]:
    """Measure and record the sums; the split's last partition makes the metrics and settles the best epoch.

    Returns JSON {"n_rows", "metrics", "pruned_bytes"}; metrics is null until the split is complete.
    """
    order, context = units.open_unit(plpy, GD, unit)
    split, epoch, checkpoint_id = evaluated_state(order, context)
    data = cache.dataset(plpy, GD, context["dataset_id"])
    rows = cache.rows_of(plpy, GD, context["dataset_id"], split, order.partition_number)
    live, read_bytes = units.blamed_on_trial(plpy, lambda: units.live_trial(plpy, GD, order, context, checkpoint_id))
    plpy.commit()

    outputs = units.blamed_on_trial(plpy, lambda: outputs_of(live, rows.inputs, Pause(plpy)))
    statistics = measure(data.task, data.raw(outputs), rows.raw_targets)

    parts = record_evaluation(plpy, GD, unit, context, epoch, split, statistics, read_bytes)
    found = complete_split(plpy, GD, order, context, epoch, split, checkpoint_id, parts)
    plpy.commit()
    units.keep_live(GD, order, context, checkpoint_id, live)
    return (json.dumps({"n_rows": statistics["n_rows"], **found}),)


def evaluated_state(order: units.Unit, context: Json) -> tuple[str, int, int]:
    """Return (split, epoch, checkpoint): validation measures the newest state, test that of the best epoch."""
    is_best = order.kind == "test" and context["best_checkpoint_id"] is not None
    split = "test" if order.kind == "test" else "validation"
    if is_best:
        return split, context["best_epoch"], context["best_checkpoint_id"]
    return split, order.epoch, context["checkpoint_id"]


def record_evaluation(
    plpy: Any, GD: Json, unit: str, context: Json, epoch: int, split: str, statistics: Json, read_bytes: int
) -> list[Json] | None:
    """Record the sums of a partition; return those of all partitions once the split is complete, else None."""
    recorded = query(
        plpy,
        GD,
        "SELECT easeml.record_evaluation($1, $2, $3, $4, $5, $6) AS parts",
        ["jsonb", "timestamptz", "int4", "text", "jsonb", "int8"],
        [unit, context["started_at"], epoch, split, json.dumps(statistics), read_bytes],
    )
    parts = recorded[0]["parts"]
    return None if parts is None else list(json.loads(parts))


def complete_split(
    plpy: Any,
    GD: Json,
    order: units.Unit,
    context: Json,
    epoch: int,
    split: str,
    checkpoint_id: int,
    parts: list[Json] | None,
) -> Json:
    """Return {"metrics", "pruned_bytes"} of what is recorded; nothing is measured while partitions are missing."""
    if parts is None:
        return {"metrics": None, "pruned_bytes": 0}
    metrics, pruned_bytes = _complete(plpy, GD, order, context, epoch, split, checkpoint_id, parts)
    return {"metrics": metrics, "pruned_bytes": pruned_bytes}


def outputs_of(live: Any, inputs: Any, pause: Pause) -> np.ndarray[Any, Any]:
    """Outputs of all rows, float32 (n, n_outputs), with a pause after every batch."""
    parts = []
    for start in range(0, max(len(inputs), 1), ROWS_AT_ONCE):
        parts.append(live.outputs(inputs[start : start + ROWS_AT_ONCE]))
        pause()
    return np.concatenate(parts)


def _complete(
    plpy: Any, GD: Json, order: units.Unit, context: Json, epoch: int, split: str, checkpoint_id: int, parts: list[Json]
) -> tuple[Json, int]:
    """Make the metrics of a whole split; after a validation this state may become the trial's best.

    Returns the metrics, and the bytes of the state that was best before.
    """
    task = cache.dataset(plpy, GD, context["dataset_id"]).task
    total = combine(parts)
    # No rows, no number: NaN would sort above every number in SQL.
    metrics = {name: value for name, value in values(task, total).items() if np.isfinite(value)}
    value, best = metrics.get(context["metric"]), context["best_metric_value"]
    is_first = context["best_checkpoint_id"] is None
    is_best = split == "validation" and (is_first or is_better(METRICS[context["metric"]], value, best))
    recorded = query(
        plpy,
        GD,
        "SELECT easeml.record_metrics($1, $2, $3, $4, $5, $6) AS pruned_bytes",
        ["jsonb", "int4", "text", "int8", "jsonb", "int8"],
        [order.text, epoch, split, total["n_rows"], json.dumps(metrics), checkpoint_id if is_best else None],
    )
    return metrics, recorded[0]["pruned_bytes"] or 0
