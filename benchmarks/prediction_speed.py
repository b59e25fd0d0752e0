"""Rows per second of easeml.predict_table, relative to the library's own prediction of the same rows already in memory.

predict_table reads a table, prepares its rows, predicts, and writes keys, labels and probabilities to a logged table,
with one thread. The other side has its numbers at hand and only computes: PyTorch labels from float32 tensors, LightGBM
margins from an array of float64. 1 is equal speed.

Then the cost of one row: the first of a session, which imports all that it needs, and a further one in a LATERAL join.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from statistics import median
from typing import Any

import lightgbm
import numpy as np
import plain_torch
import torch
from comparison.measuring import Pairs, Row, seconds_of, take_turns
from workload import N_PARTITIONS, Life, Workload, has_dataset, run_seconds, start_run, tensors

from easeml_plpy.states import checkpoint

N_PAIRS = 7
N_LATERAL = 1000
AT_LEAST = {
    ("bytea", "mlp"): 0.7,
    ("bytea", "lenet"): 0.8,
    ("smallint", "mlp"): 0.3,
    ("smallint", "lenet"): 0.3,
}
N_COLUMNS, N_TABLE_ROWS, N_EPOCHS = 20, 100_000, 4
TABLE = "measurements"
TREES = {
    "learning_rate": 0.1, "num_leaves": 31, "min_data_in_leaf": 20, "feature_fraction": 1.0, "bagging_fraction": 1.0,
    "lambda_l2": 1e-3, "cat_smooth": 10.0,
}  # fmt: skip
ARGUMENTS = {"images_bytea": "r.image", TABLE: "to_jsonb(r)"}
"""What a row is given as, by the table that it is in."""


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for each kind of image and network, for trees, and for single rows."""
    for (kind, architecture), bound in AT_LEAST.items():
        yield _measure(workload, kind, architecture, bound)
    dataset, trees = _table(workload), _grown(workload)
    yield _measure_trees(workload, trees)
    images = workload.dataset("bytea")
    yield from _rows_alone(workload, "images_bytea", images, "mlp", _train(workload, images, "mlp"))
    yield from _rows_alone(workload, TABLE, dataset, "mlp", _train(workload, dataset, "mlp"))
    yield from _rows_alone(workload, TABLE, dataset, "tabm", _train(workload, dataset, "tabm"))
    yield from _rows_alone(workload, TABLE, dataset, "lightgbm", trees)


def _measure(workload: Workload, kind: str, architecture: str, bound: float) -> Row:
    source, dataset = workload.images(kind), workload.dataset(kind)
    trial_id = _train(workload, dataset, architecture)
    with workload.session() as session:
        splits = ("train", "validation", "test")
        parts = [tensors(session, dataset, split, n)[0] for split in splits for n in range(N_PARTITIONS)]
    inputs = torch.cat(parts)
    network = plain_torch.NETWORKS[architecture]()
    pairs = _pairs(workload, (dataset, source), trial_id, lambda: plain_torch.predict(network, inputs))
    column = "bytea" if kind == "bytea" else "smallint[]"
    return _row("plain PyTorch", f"{architecture}, {column}", len(inputs), pairs, bound)


def _measure_trees(workload: Workload, trial_id: int) -> Row:
    with workload.session("postgres") as session:
        columns = ", ".join(f"x{k}" for k in range(N_COLUMNS))
        found = session.execute(f"SELECT ARRAY[{columns}] AS row FROM {TABLE}", binary=True).fetchall()
        sql = (
            "SELECT c.state FROM easeml.checkpoints c JOIN easeml.trials t ON t.best_checkpoint_id = c.checkpoint_id"
            " WHERE t.trial_id = %s"
        )
        state = session.execute(sql, [trial_id], binary=True).fetchall()[0]["state"]
    rows = np.array([each["row"] for each in found])
    texts = checkpoint.load(state).arrays
    boosters = [lightgbm.Booster(model_str=texts[name].tobytes().decode()) for name in sorted(texts)]

    def theirs() -> None:
        for booster in boosters:
            booster.predict(rows, raw_score=True, num_threads=1)

    pairs = _pairs(workload, (TABLE, TABLE), trial_id, theirs)
    n_trees = sum(booster.num_trees() for booster in boosters)
    return _row("LightGBM", f"{n_trees} trees of {N_COLUMNS} columns", len(rows), pairs, 0.5)


def _pairs(workload: Workload, names: tuple[str, str], trial_id: int, theirs: Callable[[], Any]) -> Pairs:
    """Measure a whole table by turns; `names` are those of the dataset and of the source."""
    numbers = count(1)
    workload.settle()
    with workload.session() as session:

        def ours() -> float:
            output = f"predicted_{next(numbers)}"
            arguments = [*names, output, trial_id]
            seconds = seconds_of(lambda: session.execute("SELECT easeml.predict_table(%s, %s, %s, %s)", arguments))
            session.execute(f"DROP TABLE {output}")
            return seconds

        ours(), theirs()
        return take_turns(workload.repeats(N_PAIRS), ours, lambda: seconds_of(theirs))


def _row(library: str, what: str, n_rows: int, pairs: Pairs, bound: float) -> Row:
    setting = (
        f"{what}, {n_rows} rows, {n_rows / median(pairs.ours):,.0f} rows/s against"
        f" {n_rows / median(pairs.theirs):,.0f}, {len(pairs.ours)} pairs"
    )
    return Row(f"predict_table / {library} in memory", setting, pairs.inverse, "x speed", at_least=bound)


def _rows_alone(workload: Workload, source: str, dataset: str, architecture: str, trial_id: int) -> Iterator[Row]:
    """Yield the seconds of a session's first prediction, and the milliseconds of a row in a LATERAL join."""
    sql = (
        f"SELECT count(p.label) FROM (SELECT * FROM {source} LIMIT %s) r,"
        f" LATERAL easeml.predict_row(%s, {ARGUMENTS[source]}, %s) p"
    )
    firsts, rows = [], []
    workload.settle()
    for _ in range(workload.repeats(N_PAIRS)):
        with workload.session() as session:
            firsts.append(seconds_of(lambda: session.execute(sql, [1, dataset, trial_id])))
            rows.append(seconds_of(lambda: session.execute(sql, [N_LATERAL, dataset, trial_id])) / N_LATERAL)
    setting = f"{architecture}, {'bytea' if source != TABLE else f'{N_COLUMNS} columns as jsonb'}, {len(rows)} sessions"
    yield Row("first prediction of a session", setting, median(firsts), "s", at_most=0.3)
    yield Row("a row in a LATERAL join", f"{setting}, {N_LATERAL} rows each", 1000 * median(rows), "ms", at_most=0.1)


def _table(workload: Workload) -> str:
    """Return the name of a table of numbers and a dataset of it, made at their first use."""
    names = [f"x{k}" for k in range(N_COLUMNS)]
    numbers = ", ".join(f"random() AS {name}" for name in names)
    n_rows = min(N_TABLE_ROWS, workload.n_rows)
    with workload.session() as session:
        if has_dataset(session, TABLE):
            return TABLE
        session.execute(
            f"CREATE TABLE {TABLE} AS SELECT *, (x0 + x1 * x2 + x3 ^ 2 > 0.9)::text AS label"
            f" FROM (SELECT id, {numbers} FROM generate_series(1, {n_rows}) id) q"
        )
        session.execute(f"ALTER TABLE {TABLE} ADD PRIMARY KEY (id)")
        session.execute(
            "SELECT easeml.create_dataset(%s, %s, inputs => %s, target => 'label', n_partitions => %s)",
            [TABLE, TABLE, names, N_PARTITIONS],
        )
    return TABLE


def _grown(workload: Workload) -> int:
    """Grow trees for the table; return the trial's number."""
    with workload.session() as session, workload.coordinator():
        space = {name: [value] for name, value in TREES.items()}
        sql = (
            "SELECT easeml.select_models(%s, '{lightgbm}', %s::jsonb, procedure => 'grid', n_configs => 1,"
            " max_epochs => %s) AS run_id"
        )
        run_id = session.execute(sql, [TABLE, json.dumps(space), N_EPOCHS]).fetchall()[0]["run_id"]
        run_seconds(session, run_id)
        found = session.execute("SELECT trial_id FROM easeml.trials WHERE run_id = %s", [run_id]).fetchall()
    return int(found[0]["trial_id"])


def _train(workload: Workload, dataset: str, architecture: str) -> int:
    """Train one trial for one epoch; return its number."""
    with workload.session() as session, workload.slot(1) as slot:
        run_id = start_run(session, dataset, architecture, 256, rates=[1e-3], max_epochs=1)
        for order in Life(session, run_id).orders():
            slot.call(order)
    return order.unit.trial_id
