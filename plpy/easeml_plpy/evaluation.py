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
SPLITS = {"validate": "validation", "test": "test"}
COLUMNS = ("accuracy", "balanced_accuracy", "macro_f1", "log_loss", "rmse", "mae", "r2")


@entry_point
def evaluate_unit(plpy: Any, GD: Json, unit: str, result: str | None) -> tuple[str]:  # noqa: N803
    """Measure and record the sums; the split's last partition makes the metrics and settles the best epoch.

    Returns JSON {"n_rows", "metric_value"}; metric_value is null until the split is complete.
    """
    order, context = units.open_unit(plpy, GD, unit)
    split = SPLITS[order.kind]
    epoch = order.epoch if order.kind == "validate" else context["best_epoch"] or order.epoch
    checkpoint_id = (
        context["checkpoint_id"]
        if order.kind == "validate"
        else context["best_checkpoint_id"] or context["checkpoint_id"]
    )
    data = cache.dataset(plpy, GD, context["dataset_id"])
    rows = cache.rows_of(plpy, GD, context["dataset_id"], split, order.partition_number)
    live = units.blamed_on_trial(plpy, lambda: units.live_trial(plpy, GD, order, context, checkpoint_id))
    plpy.commit()
    outputs = units.blamed_on_trial(plpy, lambda: outputs_in_batches(live, rows.inputs, Pause(plpy)))
    statistics = measure(data.task, data.raw(outputs), rows.raw_targets)
    metric_value = _record(plpy, GD, order, context, split, epoch, checkpoint_id, data.task, statistics)
    plpy.commit()
    units.keep_live(GD, order, checkpoint_id, live)
    return (json.dumps({"n_rows": statistics["n_rows"], "metric_value": metric_value}),)


def outputs_in_batches(live: Any, inputs: Any, pause: Any) -> np.ndarray[Any, Any]:
    """Outputs of all rows, float32 (n, n_outputs), with a pause after every batch."""
    parts = []
    for start in range(0, max(len(inputs), 1), ROWS_AT_ONCE):
        parts.append(live.outputs(inputs[start : start + ROWS_AT_ONCE]))
        pause()
    return np.concatenate(parts)


def _record(
    plpy: Any,
    GD: Json,
    order: units.Unit,
    context: Json,
    split: str,
    epoch: int,
    checkpoint_id: int,
    task: Any,
    statistics: Json,  # noqa: N803
) -> float | None:
    units.fence(plpy, GD, order)
    query(
        plpy, GD,
        "INSERT INTO easeml.evaluations (trial_id, run_id, owner, epoch, split, partition_number, slot_id, attempt, lease_number, started_at, finished_at, statistics)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::timestamptz, clock_timestamp(), $11)",
        ["int8", "int8", "name", "int4", "text", "int4", "int4", "int4", "int8", "text", "jsonb"],
        [order.trial_id, context["run_id"], context["owner"], epoch, split, order.partition_number, order.slot_id, order.attempt, order.lease_number,
         context["started_at"], json.dumps(statistics)],
    )  # fmt: skip
    if order.position + 1 < context["n_partitions"]:
        units.advance(plpy, GD, order, context, "", [], [])
        return None
    metric_value = _complete_split(plpy, GD, order, context, split, epoch, task)
    _settle_best(plpy, GD, order, context, split, epoch, checkpoint_id, metric_value)
    return metric_value


def _complete_split(
    plpy: Any, GD: Json, order: units.Unit, context: Json, split: str, epoch: int, task: Any
) -> float | None:  # noqa: N803
    """Combine the sums of all partitions into one row of metrics; return the run's own metric."""
    sql = "SELECT statistics FROM easeml.evaluations WHERE trial_id = $1 AND epoch = $2 AND split = $3 ORDER BY partition_number"
    parts = [
        json.loads(row["statistics"])
        for row in query(plpy, GD, sql, ["int8", "int4", "text"], [order.trial_id, epoch, split])
    ]
    total = combine(parts)
    # No rows, no number: NaN would sort above every number in SQL.
    measured = {name: value for name, value in values(task, total).items() if np.isfinite(value)}
    metric_value = measured.get(context["metric"])
    query(
        plpy, GD,
        f"INSERT INTO easeml.epoch_metrics (trial_id, run_id, owner, epoch, split, n_rows, metric_value, {', '.join(COLUMNS)})"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        ["int8", "int8", "name", "int4", "text", "int8", *["float8"] * 8],
        [order.trial_id, context["run_id"], context["owner"], epoch, split, total["n_rows"], metric_value, *(measured.get(name) for name in COLUMNS)],
    )  # fmt: skip
    return metric_value


def _settle_best(
    plpy: Any,
    GD: Json,
    order: units.Unit,
    context: Json,
    split: str,
    epoch: int,
    checkpoint_id: int,
    metric_value: float | None,  # noqa: N803
) -> None:
    """After a validation: make this epoch the best if it is, and prune the state of the one that was."""
    is_new_best = split == "validation" and (
        context["best_checkpoint_id"] is None
        or is_better(METRICS[context["metric"]], metric_value, context["best_metric_value"])
    )
    if not is_new_best:
        units.advance(plpy, GD, order, context, "", [], [])
        return
    units.advance(
        plpy, GD, order, context, ", best_epoch = $3, best_metric_value = $4, best_checkpoint_id = $5",
        ["int4", "float8", "int8"], [epoch, metric_value, checkpoint_id],
    )  # fmt: skip
    query(plpy, GD, "DELETE FROM easeml.checkpoints WHERE checkpoint_id = $1 AND checkpoint_id <> $2", ["int8", "int8"],
          [context["best_checkpoint_id"], checkpoint_id])  # fmt: skip
