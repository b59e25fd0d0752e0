"""Model hopping inside PostgreSQL: the product itself, asked through SQL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from easeml_db.errors import InvalidData
from easeml_experiments.experiment_server import (
    ExperimentServer,
    Row,
    Session,
    row_bytes,
    start_run,
    training_units,
    validation_errors,
    wait_for_run,
)
from easeml_experiments.peers.launch import Measured
from easeml_experiments.peers.record import Record
from easeml_experiments.peers.usage import Usage
from easeml_experiments.peers.workload import Workload


def run(server: ExperimentServer, work: Workload, dataset: str, space: Mapping[str, Any]) -> Measured:
    """Start the server (which does not run), its coordinator and a run over the space's grid; stop all at the end."""
    launched = time.time()
    server.embedded.start()
    try:
        with Usage(server.roots) as usage, server.coordinator(), server.session() as session:
            run_id = start_run(session, dataset, work.architecture, space, max_epochs=work.max_epochs, seed=work.seed)
            row = wait_for_run(session, run_id)
        with server.session() as session:
            return _measured(session, run_id, row, work, launched, usage)
    finally:
        server.embedded.stop()


def _measured(session: Session, run_id: int, row: Row, work: Workload, launched: float, usage: Usage) -> Measured:
    _check_configs(session, run_id, work)
    units = training_units(session, run_id)
    hops = [
        after["state_bytes"]
        for before, after in pairwise(units)
        if before["trial_number"] == after["trial_number"] and before["slot_id"] != after["slot_id"]
    ]
    held_bytes = row_bytes(session, run_id, work.task.n_features)
    record = Record(
        "mop",
        work.n_workers,
        started=row["started"],
        finished=row["finished"],
        errors=validation_errors(session, run_id),
        hashes={unit["trial_number"]: unit["state_sha256"] for unit in units},
        held_bytes=held_bytes // work.n_workers,
        loaded_bytes=held_bytes,
        handed_bytes=sum(unit["state_bytes"] for unit in units),
    )
    seen = usage.peak_memory_bytes, usage.processor_seconds
    return Measured(record, launched, *seen, units, len(hops), sum(hops))


def _check_configs(session: Session, run_id: int, work: Workload) -> None:
    """Raise InvalidData unless the database tries what the others try."""
    rows = session.execute(
        "SELECT config FROM easeml.trials WHERE run_id = %s ORDER BY trial_number", [run_id]
    ).fetchall()
    for row, config in zip(rows, work.configs, strict=True):
        different = {name for name, value in config.items() if row["config"].get(name) != value}
        if different:
            raise InvalidData(f"the run's trials differ from the others' in {', '.join(sorted(different))}")
