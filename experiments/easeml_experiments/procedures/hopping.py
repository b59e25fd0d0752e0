"""Procedures on model hopping: a run inside PostgreSQL, asked for through SQL."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from easeml_experiments.experiment_server import (
    ExperimentServer,
    Row,
    Session,
    learning_curves,
    row_bytes,
    start_run,
    start_search,
    timeline,
    wait_for_run,
    wait_until_ended,
)
from easeml_experiments.peers.launch import Measured
from easeml_experiments.peers.record import Record
from easeml_experiments.peers.usage import Usage
from easeml_experiments.procedures.comparison_setup import SPACE
from easeml_experiments.procedures.search_job import SearchJob
from easeml_experiments.procedures.slot_time import seconds_by_activity


@contextmanager
def opened(server: ExperimentServer, dataset: str, job: SearchJob) -> Iterator[Callable[[SearchJob], Measured]]:
    """Start the server (which does not run) and its coordinator, and warm the slots up with trials like those of the
    job; the block gets a function that searches, and counts the start with each search. Stop all at the end."""
    begun = time.time()
    with _started(server), server.session() as session, Usage(server.roots) as usage, server.coordinator():
        _warm_up(session, dataset, job)
        start_seconds = time.time() - begun

        def search(job: SearchJob) -> Measured:
            launched = time.time() - start_seconds
            run_id = start_search(session, dataset, job.search, max_seconds=job.max_seconds)
            row = wait_until_ended(session, run_id)
            seen = usage.sampled()
            return Measured(_record(session, run_id, row, job), launched, *seen, timeline(session, run_id))

        yield search


@contextmanager
def _started(server: ExperimentServer) -> Iterator[None]:
    server.embedded.start()
    try:
        yield
    finally:
        server.embedded.stop()


def _warm_up(session: Session, dataset: str, job: SearchJob) -> None:
    """Let as many trials as slots train for an epoch."""
    space = json.loads(job.search.search_space_json or "{}")
    first = {name: values[:1] if isinstance(values, list) else values for name, values in SPACE.items()}
    rates = [1e-3 / (number + 1) for number in range(job.work.n_workers)]
    grid = {**space, **first, "learning_rate": rates}
    run_id = start_run(session, dataset, job.work.architecture, grid, max_epochs=1, seed=0)
    wait_for_run(session, run_id)


def _record(session: Session, run_id: int, row: Row, job: SearchJob) -> Record:
    units, held = timeline(session, run_id), row_bytes(session, run_id, job.work.task.n_features)
    trials = session.execute(
        "SELECT trial_number, architecture, config FROM easeml.trials WHERE run_id = %s ORDER BY trial_number", [run_id]
    ).fetchall()
    trained = [unit for unit in units if unit["kind"] == "train"]
    record = Record(
        "mop",
        job.work.n_workers,
        started=row["created"],
        finished=row["finished"],
        hashes={unit["trial_number"]: unit["state_sha256"] for unit in trained},
        held_bytes=held // job.work.n_workers,
        loaded_bytes=held,
        handed_bytes=sum(unit["state_bytes"] for unit in trained),
        configs={each["trial_number"]: {"architecture": each["architecture"], **each["config"]} for each in trials},
    )
    for curve in learning_curves(session, run_id):
        record.errors.setdefault(curve["trial_number"], []).append(1.0 - curve["accuracy"])
        record.measured_at.setdefault(curve["trial_number"], []).append(curve["measured"])
    times = {"started": record.started, "finished": record.finished}
    record.spent_seconds = seconds_by_activity(units, **times, n_slots=record.n_workers)
    return record
