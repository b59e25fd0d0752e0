"""One trial after another in one process, with a thread for each core."""

from __future__ import annotations

from pathlib import Path

import torch

from easeml_experiments.peers import workload
from easeml_experiments.peers.record import Record, from_outcomes
from easeml_experiments.peers.training import WholeTrial
from easeml_plpy.server.memory import keep_freed_memory


def run(folder: Path) -> Record:
    """Train them all."""
    work = workload.load(folder)
    torch.set_num_threads(work.n_workers)
    keep_freed_memory()  # as slots do
    rows, validation = (workload.all_rows(folder, split, work.n_workers) for split in ("train", "validation"))
    outcomes = [WholeTrial(work, number, [rows], validation).train_all() for number in work.numbers]
    return from_outcomes("sequential", outcomes, n_workers=1, held_bytes=workload.n_bytes(rows))
