"""Eight jobs that train for real on this machine's slots: how long each was forecast to take, and how long it took.

Before a job its architectures train one trial for two epochs: the pilot that everything is forecast from. The first
forecast is made when the job is asked for, a second one after a tenth of its time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from easeml_experiments.contract import Measure, Options, at_least, at_most
from easeml_experiments.experiment_server import Session, private_server, wait_until_ended

Row = dict[str, Any]
N_SLOTS = 2
POLL_SECONDS = 1.0
TENTH = 0.1
PILOT_EPOCHS = 2
TABLE = """
CREATE TABLE points AS SELECT i AS id, sin(i * 0.37) AS a, cos(i * 0.11) AS b, sin(i * 1.7) * cos(i * 0.3) AS c,
    (i % 97) / 97.0 AS d,
    (i * 7919 % 1009) / 1009.0 AS e, sin(i * 0.013) AS f,
    CASE WHEN sin(i * 0.37) * cos(i * 0.11) + sin(i * 0.013) > 0.1 THEN 'yes' ELSE 'no' END AS label
FROM generate_series(1, {n_rows}) i
"""


@dataclass(frozen=True)
class RealJob:
    """What a job asks for: architectures, and further arguments of easeml.select_models."""

    name: str
    architectures: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)


JOBS = (
    RealJob("random, mlp", ("mlp",), {"procedure": "random", "n_configs": 6, "max_epochs": 6}),
    RealJob("random, linear", ("linear",), {"procedure": "random", "n_configs": 12, "max_epochs": 8}),
    RealJob("random, two architectures", ("mlp", "linear"), {"procedure": "random", "n_configs": 5, "max_epochs": 5}),
    RealJob("halving", ("mlp",), {"procedure": "successive_halving", "n_configs": 9, "max_epochs": 18}),
    RealJob("hyperband", ("mlp",), {"procedure": "hyperband", "max_epochs": 9}),
    RealJob("asha", ("mlp",), {"procedure": "asha", "n_configs": 12, "max_epochs": 9}),
    RealJob("all slots for a trial", ("mlp",), {"n_configs": 4, "max_epochs": 8, "allocation": "data_parallel"}),
    RealJob("trees", ("lightgbm",), {"procedure": "random", "n_configs": 4, "max_epochs": 12}),
)


def train(options: Options) -> list[Row]:
    """Train all jobs one after another on a private server; return a row for each."""
    jobs, n_rows = (JOBS[:1], 2_000) if options.is_quick else (JOBS, 8_000)
    with private_server(options.n_slots or N_SLOTS) as server, server.coordinator(), server.session() as session:
        session.execute(TABLE.format(n_rows=n_rows).encode())
        session.execute("SELECT easeml.create_dataset('points', 'points', '{a,b,c,d,e,f}', 'label', n_partitions => 4)")
        rows = []
        for job in jobs:
            options.say(f"real: {job.name}")
            rows.append(_train(session, job, options.seed))
    return rows


def _train(session: Session, job: RealJob, seed: int) -> Row:
    for architecture in job.architectures:
        arguments = {"n_configs": 1, "max_epochs": PILOT_EPOCHS, "seed": seed + 1}
        wait_until_ended(session, _start(session, (architecture,), arguments))
    run_id = _start(session, job.architectures, {**job.arguments, "seed": seed})
    asked = time.time()
    forecasts = [found for found in _forecasts(session, run_id) if found["seconds_left"] is not None]
    ended = wait_until_ended(session, run_id)
    return forecast_row(job.name, asked, float(ended["finished"]), forecasts)


def _start(session: Session, architectures: Sequence[str], arguments: Mapping[str, Any]) -> int:
    named = "".join(f", {name} => %s" for name in arguments)
    statement = f"SELECT easeml.select_models('points', %s{named}) AS run_id"
    values = [json.dumps(value) if isinstance(value, dict) else value for value in arguments.values()]
    return int(session.execute(statement.encode(), [list(architectures), *values]).fetchall()[0]["run_id"])


def _forecasts(session: Session, run_id: int) -> Iterator[Row]:
    """Yield forecasts until the run has ended, each with the time at which it was made."""
    query = (
        "SELECT seconds_left, extract(epoch FROM eta_earliest_at)::float8 AS earliest,"
        " extract(epoch FROM eta_p95_at)::float8 AS latest, note FROM easeml.forecast(%s)"
    )
    while found := session.execute(query, [run_id]).fetchall():
        yield found[0] | {"made": time.time()}
        time.sleep(POLL_SECONDS)


def forecast_row(name: str, asked: float, ended: float, forecasts: Sequence[Row]) -> Row:
    """Return what was forecast of a job when it was asked for, and after a tenth of its time, beside what happened."""
    actual = ended - asked
    row: Row = {"job": name, "actual_seconds": actual}
    later = [found for found in forecasts if found["made"] >= asked + TENTH * actual]
    for label, some in (("start", forecasts), ("tenth", later)):
        found = some[0] if some else None
        predicted = None if found is None else found["made"] - asked + found["seconds_left"]
        row |= {
            f"{label}_seconds": predicted,
            f"{label}_error": None if predicted is None else abs(predicted / actual - 1),
            f"{label}_holds": None if found is None else found["earliest"] <= ended <= found["latest"],
            f"{label}_in_time": None if found is None else ended <= found["latest"],
        }
    return row


def measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """The median error, and in how many jobs the interval holds, at the start and after a tenth."""
    for label, when in (("start", "when asked for"), ("tenth", "after a tenth of the time")):
        known = [row for row in rows if row[f"{label}_error"] is not None]
        where = f"{len(known)} of {len(rows)} jobs on {N_SLOTS} slots, {when}"
        if not known:
            continue
        error = median(row[f"{label}_error"] for row in known)
        in_time, holds = (sum(row[f"{label}_{name}"] for row in known) for name in ("in_time", "holds"))
        yield at_most("time forecast, median relative error", where, "0.01 to 0.08", error, 0.08)
        yield at_least("jobs that ended by eta_p95_at", where, None, in_time, 7 * len(rows) // 8)
        yield Measure("jobs that ended between both ends of the interval", where, None, holds)
