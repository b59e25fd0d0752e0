"""Task parallel, in plain processes: each holds all rows, and takes one whole trial after another.

`replay` is the same with each trial visiting the partitions as the database had it visit them: sequential training,
whose states must be those of model hopping, byte for byte. The processes are forked from one that has imported torch
and done nothing with it: importing it again in each takes longer than a small experiment trains.
"""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from easeml_experiments.peers import workload
from easeml_experiments.peers.launch import in_own_session
from easeml_experiments.peers.record import Record, from_outcomes
from easeml_experiments.peers.training import Outcome, WholeTrial
from easeml_plpy.server.memory import keep_freed_memory

_held: dict[str, Any] = {}


def run(folder: Path) -> Record:
    """Train them all on shuffled rows."""
    return _run(folder, "tasks")


def replay(folder: Path) -> Record:
    """Train them all in the order of visits that model hopping has."""
    return _run(folder, "replay")


def begin(folder: Path, method: str) -> int:
    """Start of a process of its own; returns the bytes of the rows to train on."""
    in_own_session()
    return hold(folder, method)


def hold(folder: Path, method: str) -> int:
    """Start of a process: a slot's thread and allocator, all rows in memory; returns the bytes of those to train on."""
    torch.set_num_threads(1)
    keep_freed_memory()
    work = workload.load(folder)
    if method == "replay":
        parts = [workload.partition(folder, "train", number) for number in range(work.n_workers)]
    else:
        parts = [workload.all_rows(folder, "train", work.n_workers)]
    _held.update(work=work, parts=parts, validation=workload.all_rows(folder, "validation", work.n_workers))
    return held_bytes()


def held_bytes(_: int = 0) -> int:
    """Return bytes of the rows to train on that this process holds."""
    return workload.n_bytes(*_held["parts"])


def trial(number: int) -> WholeTrial:
    """Train a trial over the rows that this process holds."""
    return WholeTrial(_held["work"], number, _held["parts"], _held["validation"])


def _run(folder: Path, method: str) -> Record:
    work = workload.load(folder)
    with get_context("fork").Pool(work.n_workers, begin, (folder, method)) as pool:
        outcomes = pool.map(_train, work.numbers, chunksize=1)
        (held,) = pool.map(held_bytes, range(1))
    return from_outcomes(method, outcomes, n_workers=work.n_workers, held_bytes=held)


def _train(number: int) -> Outcome:
    return trial(number).train_all()
