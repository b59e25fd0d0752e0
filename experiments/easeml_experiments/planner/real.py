"""Eight jobs that are planned and train for real on this machine's slots: how long each was to take, and took.

Before a job its architectures train a few trials for two epochs, boosters for six: the pilot from which everything is
predicted, besides the jobs before. Each job gets the fastest plan. What the coordinator forecast of it on the way is
read when it has ended: who asks for forecasts meanwhile takes time from a machine whose slots keep all cores at work.

A run with a deadline gives slots back when it is ahead of its plan, and so takes what time there is. Some jobs train
once more with a deadline that the fastest plan keeps easily: whether they keep it is what counts there.
"""

from __future__ import annotations

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
TENTH = 0.1
PILOT_CONFIGS = 4
MUCH = 1e6  # for which the fastest plan is made
SLACK = 1.25  # of a deadline, as a multiple of what the fastest plan takes at most
SAID = "{job}: planned {start_seconds:.1f} s, {start_latest:.1f} s at most; took {actual_seconds:.1f} s"
PLAN = """
SELECT extract(epoch FROM made_at)::float8 AS made, extract(epoch FROM end_expected_at)::float8 AS expected,
    extract(epoch FROM end_p95_at)::float8 AS latest, n_slots
FROM easeml.plan_revisions WHERE run_id = %s AND revision = 1
"""
KEPT = "{job}, with a deadline of {deadline_seconds:.1f} s: took {actual_seconds:.1f} s"
FORECASTS = """
SELECT extract(epoch FROM made_at)::float8 AS made, extract(epoch FROM eta_at - made_at)::float8 AS seconds_left,
    extract(epoch FROM eta_p95_at)::float8 AS latest
FROM easeml.run_forecasts WHERE run_id = %s AND eta_at IS NOT NULL ORDER BY made_at
"""


def train(options: Options) -> list[Row]:
    """Train all jobs one after another on a private server; return a row for each."""
    jobs, n_rows = (JOBS[:1], 3_000) if options.is_quick else (JOBS, 72_000)
    with private_server(options.n_slots or N_SLOTS) as server, server.coordinator(), server.session() as session:
        for statement in statements(n_rows):
            session.execute(statement.encode())
        rows = []
        for job in jobs:
            rows.append(_train(session, job, options.seed))
            options.say("real: " + SAID.format(**rows[-1]))
            if job.has_deadline:
                rows.append(_train_by_deadline(session, job, options.seed, rows[-1]["start_latest"]))
                options.say("real: " + KEPT.format(**rows[-1]))
    return rows


def _train(session: Session, job: RealJob, seed: int) -> Row:
    pilot = {"n_configs": PILOT_CONFIGS, "max_epochs": job.n_pilot_epochs, "seed": seed}
    for architecture in job.architectures:
        wait_until_ended(session, _start(session, replace(job, architectures=(architecture,)), pilot))
    run_id = _start(session, job, {**job.arguments, "seed": seed, "max_cost": MUCH})
    ended = wait_until_ended(session, run_id)
    (plan,) = session.execute(PLAN, [run_id]).fetchall()
    return job_row(job.name, plan, float(ended["finished"]), session.execute(FORECASTS, [run_id]).fetchall())


def _train_by_deadline(session: Session, job: RealJob, seed: int, latest: float) -> Row:
    """Train a job once more, with a deadline; `latest`: within which its fastest plan was to end."""
    seconds = SLACK * latest
    limits = {"seed": seed, "deadline": timedelta(seconds=seconds)}
    run_id = _start(session, job, {**job.arguments, **limits})
    ended = wait_until_ended(session, run_id)
    (plan,) = session.execute(PLAN, [run_id]).fetchall()
    return deadline_row(job.name, plan, float(ended["finished"]), seconds)


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


def job_row(name: str, plan: Row, ended: float, forecasts: Sequence[Row]) -> Row:
    """Return what was planned of a job when it was asked for, and forecast after a tenth of its time, beside what
    happened."""
    asked = plan["made"]
    actual = ended - asked
    later = [found for found in forecasts if found["made"] >= asked + TENTH * actual]
    row: Row = {
        "job": name, "n_slots": plan["n_slots"], "actual_seconds": actual, "deadline_seconds": None, "is_kept": None,
        **_told("start", plan["expected"] - asked, plan["latest"] - asked, actual),
    }  # fmt: skip
    if not later:
        return row | dict.fromkeys(f"tenth_{each}" for each in ("seconds", "latest", "error", "in_time"))
    found = later[0]
    return row | _told("tenth", found["made"] - asked + found["seconds_left"], found["latest"] - asked, actual)


def deadline_row(name: str, plan: Row, ended: float, deadline_seconds: float) -> Row:
    """Return how long a job took that had a deadline; nothing of it was predicted but that it keeps this."""
    actual = ended - plan["made"]
    told = {f"{when}_{each}": None for when in ("start", "tenth") for each in ("seconds", "latest", "error", "in_time")}
    return {
        "job": name, "n_slots": plan["n_slots"], "actual_seconds": actual, **told,
        "deadline_seconds": deadline_seconds, "is_kept": actual <= deadline_seconds,
    }  # fmt: skip


def _told(when: str, seconds: float, latest: float, actual: float) -> Row:
    return {
        f"{when}_seconds": seconds, f"{when}_latest": latest, f"{when}_error": abs(seconds / actual - 1),
        f"{when}_in_time": actual <= latest,
    }  # fmt: skip


def measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """Yield the median error, and how many jobs ended by the time that 95 of 100 keep, as planned and after a tenth;
    and how many deadlines were kept.
    """
    jobs = [row for row in rows if row["deadline_seconds"] is None]
    for label, when in (("start", "as planned when asked for"), ("tenth", "after a tenth of the time")):
        known = [row for row in jobs if row[f"{label}_error"] is not None]
        where = f"{len(known)} of {len(jobs)} jobs on {N_SLOTS} slots, {when}"
        if not known:
            continue
        error = median(row[f"{label}_error"] for row in known)
        in_time = sum(row[f"{label}_in_time"] for row in known)
        yield at_most("time predicted, median relative error", where, "0.01 to 0.08", error, 0.08)
        yield at_least("jobs that ended by the time that 95 of 100 keep", where, None, in_time, 7 * len(jobs) // 8)
    due = [row for row in rows if row["deadline_seconds"] is not None]
    if due:
        kept = sum(row["is_kept"] for row in due)
        yield at_least("deadlines kept", f"{len(due)} jobs on {N_SLOTS} slots, once more", None, kept, len(due))
