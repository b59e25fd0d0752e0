"""A pilot: a few mini-batches of a fresh trial, timed and thrown away, so that runs can be planned before they start.

Cerebro's schedulers need these times (VLDB 2020, section 4.3). A pilot leaves no trace in any state: it uses the seeds
of units, and each unit sets its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from easeml_plpy.row_forms.datasets import PartitionRows, partition_rows
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Command, Session, Statement
from easeml_plpy.server.value_types import Pause
from easeml_plpy.trainers import trainer_of
from easeml_plpy.trainers.contract import LiveTrial
from easeml_plpy.units.iterations import MemoryMeter, repeat_iterations
from easeml_plpy.units.live_trials import live_trial
from easeml_plpy.units.units import Unit, UnitContext, open_unit, trial_to_blame

FIRST_ROWS = 256
ENOUGH_SECONDS = 0.05
UNIT_OVERHEAD_SECONDS = 0.01  # opening and recording a unit, whatever its size

Stopwatch = Callable[[Callable[[int], object], int], float]
"""Does work over so many rows and returns the seconds that it took."""


class MeanRows(NamedTuple):
    """Rows of a partition of mean size."""

    train: float
    evaluate: float


@dataclass(frozen=True)
class PilotTimes:
    """Seconds that units over a partition of mean size are going to take."""

    train_seconds: float
    evaluate_seconds: float


MEAN_ROWS = Statement(
    "SELECT avg(n_train_rows)::float8 AS train,"
    " avg(CASE n_validation_rows WHEN 0 THEN n_train_rows ELSE n_validation_rows END)::float8 AS evaluate"
    " FROM easeml.partitions WHERE dataset_id = $1",
    ("int8",),
    MeanRows,
)
RECORD_PILOT = Command("SELECT easeml.record_pilot($1, $2, $3)", ("jsonb", "float8", "float8"))


@entry_point(is_pinned=True)
def pilot_unit(session: Session, unit: str, result: str | None) -> tuple[str]:
    """Time a fresh trial on rows of one partition and record what its units are going to take.

    Returns JSON {"train_seconds", "evaluate_seconds"}, and with `measured_seconds` also "sample": what iterations.py
    measures, and "open_seconds". Raises TrialFailed, StaleLease.
    """
    order = Unit.from_text(unit)
    context = open_unit(session, order)
    mean_rows = session.row(MEAN_ROWS, context.trial.dataset_id)

    def record(times: PilotTimes) -> None:
        session.run(RECORD_PILOT, order.text, times.train_seconds, times.evaluate_seconds)

    return (pilot_opened(session, order, context, mean_rows, record),)


def pilot_opened(
    session: Session, order: Unit, context: UnitContext, mean_rows: MeanRows, record: Callable[[PilotTimes], None]
) -> str:
    """Time a trial in a unit that was opened, and have the times recorded; return what `pilot_unit` returns."""
    trainer = trainer_of(context.trial.architecture)
    trainer.prepare()
    started, memory = time.perf_counter(), MemoryMeter(context.device)
    rows = partition_rows(session, context.trial.dataset_id, "train", order.partition_number, context.trial.view)
    live, _ = live_trial(session, order, context, None, order.seed)
    open_seconds = time.perf_counter() - started
    session.commit()

    def begin() -> LiveTrial:
        """Return the trial, or a fresh one if each epoch adds to the work of the next."""
        return live_trial(session, order, context, None, order.seed)[0] if trainer.takes_all_partitions else live

    trained = _Repeated(begin, rows, order.seed, SessionPause(session))
    with trial_to_blame(session):
        if trainer.takes_all_partitions:  # what trees cost hardly depends on the rows where these are few
            train_rate = stopwatch(trained.train, len(rows.inputs)) / max(1, len(rows.inputs))
        else:
            train_rate = seconds_per_row(trained.train, len(rows.inputs), stopwatch)
        times = pilot_times(train_rate, seconds_per_row(trained.evaluate, len(rows.inputs), stopwatch), mean_rows)
        iterations = None
        if order.measured_seconds:
            iterations = repeat_iterations(trained.train, len(rows.inputs), train_rate, order.measured_seconds)

    record(times)
    session.commit()
    sample = {} if iterations is None else {"sample": {**iterations, "open_seconds": open_seconds, **memory.read()}}
    return json.dumps({**vars(times), **sample})


class _Repeated:
    """Work over the first rows of a partition, again and again."""

    def __init__(self, begin: Callable[[], LiveTrial], rows: PartitionRows, seed: int, pause: Pause) -> None:
        self._begin, self._rows, self._seed, self._pause = begin, rows, seed, pause
        self._live = begin()

    def train(self, n: int) -> object:
        """Train on n rows."""
        self._live = self._begin()
        return self._live.train(self._rows.inputs[:n], self._rows.targets[:n], seed=self._seed, pause=self._pause)

    def evaluate(self, n: int) -> object:
        """Compute the outputs of n rows."""
        return self._live.outputs(self._rows.inputs[:n])


def pilot_times(train_rate: float, evaluate_rate: float, mean_rows: MeanRows) -> PilotTimes:
    """Return the seconds of units from seconds a row."""
    return PilotTimes(
        UNIT_OVERHEAD_SECONDS + train_rate * mean_rows.train,
        UNIT_OVERHEAD_SECONDS + evaluate_rate * mean_rows.evaluate,
    )


def stopwatch(work: Callable[[int], object], n: int) -> float:
    """Do work over n rows; return the seconds that it took."""
    started = time.perf_counter()
    work(n)
    return time.perf_counter() - started


def seconds_per_row(work: Callable[[int], object], n_rows: int, timed: Stopwatch) -> float:
    """Return the seconds per row, after one warm-up round; 0 if there are no rows."""
    n = min(n_rows, FIRST_ROWS)
    if n == 0:
        return 0.0
    work(n)
    while True:
        seconds = timed(work, n)
        if seconds >= ENOUGH_SECONDS or n == n_rows:
            return seconds / n
        n = min(n_rows, 4 * n)
