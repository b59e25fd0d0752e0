"""Rows per second of easeml.predict_table, relative to plain PyTorch on the same rows already in memory.

predict_table reads a table, standardises, runs the network, and writes keys, labels and probabilities to a logged
table, with one thread. The other side has float32 tensors at hand and only computes labels. 1 is equal speed.

Then what one row costs: the first of a session, which imports all that answers, and a further one in a LATERAL join.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from statistics import median

import plain_torch
import torch
from measuring import Row, seconds_of, take_turns
from workload import N_PARTITIONS, Life, Workload, start_run, tensors

N_PAIRS = 7
N_LATERAL = 1000
AT_LEAST = {"bytea": 0.5, "smallint": 0.3}


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for each kind of image and network."""
    for kind, bound in AT_LEAST.items():
        for architecture in plain_torch.NETWORKS:
            yield _measure(workload, kind, architecture, bound)
    yield from _rows_alone(workload)


def _measure(workload: Workload, kind: str, architecture: str, bound: float) -> Row:
    source, dataset = workload.images(kind), workload.dataset(kind)
    numbers = count(1)
    with workload.session() as session:
        trial_id = _train(workload, dataset, architecture)
        splits = ("train", "validation", "test")
        parts = [tensors(session, dataset, split, n)[0] for split in splits for n in range(N_PARTITIONS)]
        inputs = torch.cat(parts)
        network = plain_torch.NETWORKS[architecture]()

        def ours() -> float:
            name = f"predicted_{next(numbers)}"
            arguments = [dataset, source, name, trial_id]
            seconds = seconds_of(lambda: session.execute("SELECT easeml.predict_table(%s, %s, %s, %s)", arguments))
            session.execute(f"DROP TABLE {name}")
            return seconds

        def theirs() -> float:
            return seconds_of(lambda: plain_torch.predict(network, inputs))

        ours(), theirs()
        pairs = take_turns(workload.repeats(N_PAIRS), ours, theirs)
    column = "bytea" if kind == "bytea" else "smallint[]"
    setting = (
        f"{architecture}, {column}, {len(inputs)} rows, {len(inputs) / median(pairs.ours):,.0f} rows/s against"
        f" {len(inputs) / median(pairs.theirs):,.0f}, {len(pairs.ours)} pairs"
    )
    return Row("predict_table / plain PyTorch in memory", setting, pairs.inverse, "x speed", at_least=bound)


def _rows_alone(workload: Workload) -> Iterator[Row]:
    """Yield the seconds of a session's first prediction, and the milliseconds of a row in a LATERAL join."""
    source, dataset = workload.images("bytea"), workload.dataset("bytea")
    trial_id = _train(workload, dataset, "mlp")
    sql = (
        f"SELECT count(p.label) FROM (SELECT * FROM {source} LIMIT %s) r, LATERAL easeml.predict_row(%s, r.image, %s) p"
    )
    firsts, rows = [], []
    for _ in range(workload.repeats(N_PAIRS)):
        with workload.session() as session:
            firsts.append(seconds_of(lambda: session.execute(sql, [1, dataset, trial_id])))
            rows.append(seconds_of(lambda: session.execute(sql, [N_LATERAL, dataset, trial_id])) / N_LATERAL)
    setting = f"mlp, bytea, {len(rows)} sessions"
    yield Row("first prediction of a session", setting, median(firsts), "s", at_most=0.3)
    yield Row("a row in a LATERAL join", f"{setting}, {N_LATERAL} rows each", 1000 * median(rows), "ms", at_most=0.1)


def _train(workload: Workload, dataset: str, architecture: str) -> int:
    """Train one trial for one epoch; return its number."""
    with workload.session() as session, workload.slot(1) as slot:
        run_id = start_run(session, dataset, architecture, 256, rates=[1e-3], max_epochs=1)
        for order in Life(session, run_id).orders():
            slot.call(order)
    return order.unit.trial_id
