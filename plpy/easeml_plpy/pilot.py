"""A pilot: a few mini-batches of a fresh trial, timed and thrown away, so that runs can be planned before they start.

What Cerebro (VLDB 2020, section 4.3) asks its schedulers to be given. Nothing of it shows in any state: seeds are those
of units, and a unit sets its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from . import cache, units
from .cancellation import Pause
from .laps import MemoryMeter, laps
from .session import entry_point, query

Json = dict[str, Any]
FIRST_ROWS = 256
ENOUGH_SECONDS = 0.05
UNIT_OVERHEAD_SECONDS = 0.01  # opening and recording a unit, whatever its size
MEAN_ROWS = """
SELECT avg(n_train_rows)::float8 AS train, avg(n_validation_rows)::float8 AS evaluate
FROM easeml.partitions WHERE dataset_id = $1
"""


@entry_point
def pilot_unit(plpy: Any, GD: Json, unit: str, result: str | None) -> tuple[str]:
    """Time a fresh trial on rows of one partition and record what its units are going to take.

    Returns JSON {"train_seconds", "evaluate_seconds"}, for a partition of mean size, and with `measured_seconds` also
    "sample" (laps.py). Raises TrialFailed, StaleLease.
    """
    order, context = units.open_unit(plpy, GD, unit)
    opened, memory = time.perf_counter(), MemoryMeter(context["device"])
    rows = cache.rows_of(plpy, GD, context["dataset_id"], "train", order.partition_number)
    mean_rows = query(plpy, GD, MEAN_ROWS, ["int8"], [context["dataset_id"]])[0]
    live, _ = units.blamed_on_trial(plpy, lambda: units.live_trial(plpy, GD, order, context, None))
    open_seconds = time.perf_counter() - opened
    plpy.commit()
    pause = Pause(plpy)

    def train(n: int) -> object:
        return live.train(rows.inputs[:n], rows.targets[:n], seed=order.seed, pause=pause)

    def evaluate(n: int) -> object:
        return live.outputs(rows.inputs[:n])

    n_rows = len(rows.inputs)
    train_rate = units.blamed_on_trial(plpy, lambda: seconds_per_row(train, n_rows))
    evaluate_rate = units.blamed_on_trial(plpy, lambda: seconds_per_row(evaluate, n_rows))
    found: Json = {
        "train_seconds": UNIT_OVERHEAD_SECONDS + train_rate * mean_rows["train"],
        "evaluate_seconds": UNIT_OVERHEAD_SECONDS + evaluate_rate * mean_rows["evaluate"],
    }
    if order.measured_seconds:
        measured = units.blamed_on_trial(plpy, lambda: laps(train, n_rows, train_rate, order.measured_seconds))
        found["sample"] = {**measured, "open_seconds": open_seconds, **memory.read()}
    sql = "SELECT easeml.record_pilot($1, $2, $3)"
    query(plpy, GD, sql, ["jsonb", "float8", "float8"], [unit, found["train_seconds"], found["evaluate_seconds"]])
    plpy.commit()
    return (json.dumps(found),)


def seconds_per_row(work: Callable[[int], object], n_rows: int) -> float:
    """Seconds that a row takes, after one round of work that warms up; 0 where there are no rows."""
    n = min(n_rows, FIRST_ROWS)
    if n == 0:
        return 0.0
    work(n)
    while True:
        started = time.perf_counter()
        work(n)
        seconds = time.perf_counter() - started
        if seconds >= ENOUGH_SECONDS or n == n_rows:
            return seconds / n
        n = min(n_rows, 4 * n)
