"""Seconds of a whole run, relative to two plain PyTorch processes that share the same trials.

Eight configs (learning rates), three epochs, four partitions, two slots of one thread. The other side has all data in
memory, validates after each epoch and tests the best state of each trial, as the run does. Both are warm: sessions and
processes have started, have PyTorch loaded and the data decoded. 1 is equal; below 1 the run is faster.
The bound holds where a unit lasts half a second or more; shorter units are reported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from statistics import median

import plain_torch
import torch
from comparison.measuring import Row, seconds_of, take_turns
from workload import N_PARTITIONS, N_SLOTS, Session, Workload, run_seconds, start_run, tensors

RATES = [3e-4, 5e-4, 7e-4, 1e-3, 1.4e-3, 2e-3, 2.8e-3, 4e-3]
MAX_EPOCHS = 3
COMBINATIONS = (("mlp", 256, 5), ("mlp", 32, 3), ("lenet", 256, 2), ("lenet", 32, 2))  # network, batch, pairs
SHORTEST_UNIT_SECONDS = 0.5


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for each network and batch size."""
    dataset = workload.dataset()
    with (
        workload.session() as session,
        tempfile.TemporaryDirectory() as folder,
        workload.coordinator(),
        get_context("spawn").Pool(
            N_SLOTS, plain_torch.load, (saved(session, dataset, Path(folder)), list(plain_torch.NETWORKS))
        ) as pool,
    ):
        pool.map(plain_torch.is_ready, range(N_SLOTS), chunksize=1)
        for architecture in plain_torch.NETWORKS:  # warm: every slot has met every partition and the network
            run_seconds(session, start_run(session, dataset, architecture, 256, rates=RATES, max_epochs=1))
        for architecture, batch_size, n_pairs in COMBINATIONS:
            yield from _measure(session, pool, dataset, architecture, batch_size, workload.repeats(n_pairs))


def saved(session: Session, dataset: str, folder: Path) -> str:
    """Path of a file with all rows by split."""
    data = {}
    for split in ("train", "validation", "test"):
        parts = [tensors(session, dataset, split, number) for number in range(N_PARTITIONS)]
        data[split] = tuple(map(torch.cat, zip(*parts, strict=True)))
    path = str(folder / "data.pt")
    torch.save(data, path)
    return path


def _measure(
    session: Session, pool: Pool, dataset: str, architecture: str, batch_size: int, n_pairs: int
) -> Iterator[Row]:
    trials = [plain_torch.PlainTrial(architecture, rate, batch_size, MAX_EPOCHS) for rate in RATES]
    runs = []

    def ours() -> float:
        runs.append(start_run(session, dataset, architecture, batch_size, rates=RATES, max_epochs=MAX_EPOCHS))
        return run_seconds(session, runs[-1])

    def theirs() -> float:
        return seconds_of(lambda: pool.map(plain_torch.run_trial, trials, chunksize=1))

    pairs = take_turns(n_pairs, ours, theirs)
    unit = session.execute(
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - started_at))::float8 AS s,"
        " max(n_rows) AS n FROM easeml.training_units WHERE run_id = ANY (%s)",
        [runs],
    ).fetchall()[0]
    bound = 1.05 if unit["s"] >= SHORTEST_UNIT_SECONDS else None
    setting = (
        f"{architecture}, batch {batch_size}, {N_PARTITIONS} x {unit['n']} rows, {unit['s']:.2f} s a unit,"
        f" {median(pairs.ours):.1f} s against {median(pairs.theirs):.1f} s, {n_pairs} pairs"
    )
    yield Row("whole run / two plain PyTorch processes", setting, pairs.ratio, "x time", at_most=bound)
