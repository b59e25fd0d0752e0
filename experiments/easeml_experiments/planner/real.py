"""Eight jobs that are planned and train for real on this machine's slots: how long each was to take, and took.

Before a job its architectures train a few trials for two epochs: the pilot from which everything is predicted, besides
the jobs before. Some jobs have a deadline that the fastest plan keeps easily, so that slots come and go; the others get
the fastest plan. After a tenth of its time a job is forecast again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from statistics import median
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from easeml_experiments.contract import Measure, Options, at_least, at_most
from easeml_experiments.experiment_server import Session, private_server, wait_until_ended
from easeml_experiments.planner.real_jobs import JOBS, RealJob, statements

Row = dict[str, Any]
N_SLOTS = 2
POLL_SECONDS = 1.0
TENTH = 0.1
PILOT = {"n_configs": 4, "max_epochs": 2}
MUCH = 1e6  # for which the fastest plan is made
SLACK = 1.25  # of a deadline, as a multiple of what the fastest plan takes at most
SAID = "{job}: planned {start_seconds:.1f} s, {start_latest:.1f} s at most; took {actual_seconds:.1f} s"
PLAN = """
SELECT extract(epoch FROM made_at)::float8 AS made, extract(epoch FROM end_expected_at)::float8 AS expected,
    extract(epoch FROM end_p95_at)::float8 AS latest, n_slots
FROM easeml.plan_revisions WHERE run_id = %s AND revision = 1
"""


def train(options: Options) -> list[Row]:
    """Train all jobs one after another on a private server; return a row for each."""
    jobs, n_rows = (JOBS[:1], 3_000) if options.is_quick else (JOBS, 24_000)
    with private_server(options.n_slots or N_SLOTS) as server, server.coordinator(), server.session() as session:
        for statement in statements(n_rows):
            session.execute(statement.encode())
        rows = []
        for job in jobs:
            rows.append(_train(session, job, options.seed))
            options.say("real: " + SAID.format(**rows[-1]))
    return rows


def _train(session: Session, job: RealJob, seed: int) -> Row:
    arguments = {**job.arguments, "seed": seed}
    for architecture in job.architectures:
        wait_until_ended(session, _start(session, replace(job, architectures=(architecture,)), {**PILOT, "seed": seed}))
    run_id = _start(session, job, {**arguments, **_limits(session, job, arguments)})
    forecasts = [found for found in _forecasts(session, run_id) if found["seconds_left"] is not None]
    ended = wait_until_ended(session, run_id)
    (plan,) = session.execute(PLAN, [run_id]).fetchall()
    return job_row(job.name, plan, float(ended["finished"]), forecasts)


def _limits(session: Session, job: RealJob, arguments: Mapping[str, Any]) -> Row:
    """Return the limits with which a job is asked for."""
    if not job.has_deadline:
        return {"max_cost": MUCH}
    rows = _call(session, "plan", job, {**arguments, "max_cost": MUCH})
    most = next(row["seconds_p95"] for row in rows if row["plan"] == "planned" and row["stage"] is None)
    return {"deadline": timedelta(seconds=SLACK * most)}


def _start(session: Session, job: RealJob, arguments: Mapping[str, Any]) -> int:
    return int(_call(session, "select_models", job, arguments)[0]["select_models"])


def _call(session: Session, function: str, job: RealJob, arguments: Mapping[str, Any]) -> list[Row]:
    """Call a function on the table of a job."""
    given = {"architectures": list(job.architectures), **arguments}
    if job.search_space is not None:
        given["search_space"] = Jsonb(job.search_space)
    named = sql.SQL("").join(sql.SQL(", {} => %s").format(sql.Identifier(name)) for name in given)
    statement = sql.SQL("SELECT * FROM easeml.{}(%s{})").format(sql.Identifier(function), named)
    return session.execute(statement, [job.table, *given.values()]).fetchall()


def _forecasts(session: Session, run_id: int) -> Iterator[Row]:
    """Yield forecasts until the run has ended, each with the time at which it was made."""
    query = (
        "SELECT seconds_left, extract(epoch FROM eta_earliest_at)::float8 AS earliest,"
        " extract(epoch FROM eta_p95_at)::float8 AS latest, note FROM easeml.forecast(%s)"
    )
    while found := session.execute(query, [run_id]).fetchall():
        yield found[0] | {"made": time.time()}
        time.sleep(POLL_SECONDS)


def job_row(name: str, plan: Row, ended: float, forecasts: Sequence[Row]) -> Row:
    """Return what was planned of a job when it was asked for, and forecast after a tenth of its time, beside what
    happened."""
    asked = plan["made"]
    actual = ended - asked
    later = [found for found in forecasts if found["made"] >= asked + TENTH * actual]
    row: Row = {
        "job": name, "n_slots": plan["n_slots"], "actual_seconds": actual,
        **_told("start", plan["expected"] - asked, plan["latest"] - asked, actual),
    }  # fmt: skip
    if not later:
        return row | dict.fromkeys(f"tenth_{each}" for each in ("seconds", "latest", "error", "in_time"))
    found = later[0]
    return row | _told("tenth", found["made"] - asked + found["seconds_left"], found["latest"] - asked, actual)


def _told(when: str, seconds: float, latest: float, actual: float) -> Row:
    return {
        f"{when}_seconds": seconds, f"{when}_latest": latest, f"{when}_error": abs(seconds / actual - 1),
        f"{when}_in_time": actual <= latest,
    }  # fmt: skip


def measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """The median error, and how many jobs ended by the time that 95 of 100 keep, as planned and after a tenth."""
    for label, when in (("start", "as planned when asked for"), ("tenth", "after a tenth of the time")):
        known = [row for row in rows if row[f"{label}_error"] is not None]
        where = f"{len(known)} of {len(rows)} jobs on {N_SLOTS} slots, {when}"
        if not known:
            continue
        error = median(row[f"{label}_error"] for row in known)
        in_time = sum(row[f"{label}_in_time"] for row in known)
        yield at_most("time predicted, median relative error", where, "0.01 to 0.08", error, 0.08)
        yield at_least("jobs that ended by the time that 95 of 100 keep", where, None, in_time, 7 * len(rows) // 8)
