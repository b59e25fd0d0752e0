"""Accuracy that a task of pictures reaches by itself in ten minutes, beside runs of `mlp` and of `lenet` alone.

Fashion-MNIST is fed to a declarative task, whose run tries all architectures of its kind on two slots. Then the task
runs with one architecture only, each for the same time. Accuracy is measured on the test rows of the task's own split,
which are the same in all three runs and chose nothing; the standard error is that of a share of so many rows.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from math import sqrt
from typing import Any

from comparison.measuring import Row
from psycopg.types.json import Jsonb
from workload import ANALYST, Session, Workload

SECONDS = 600
TASK = """
SELECT easeml.create_task('clothes', 'Input = [28,28,1]  Output = [10]', schema => 'pictures',
    classes => ARRAY(SELECT DISTINCT label FROM {source} ORDER BY 1),
    run_after_examples => NULL, run_after_minutes => NULL)
"""
FEED = "INSERT INTO pictures.clothes (input, output) SELECT image, label FROM {source}"
RUN = "SELECT easeml.alter_task('clothes', NULL, NULL, %s)"
RUNS = """
SELECT r.run_id, r.status FROM easeml.runs r JOIN easeml.datasets d USING (dataset_id)
WHERE d.dataset_name = 'clothes' ORDER BY r.run_id DESC LIMIT 1
"""
BEST = """
SELECT l.architecture, l.test_metric, (SELECT count(*) FROM easeml.trials t WHERE t.run_id = l.run_id) AS n_trials,
    d.n_test_rows
FROM easeml.leaderboard l JOIN easeml.runs r USING (run_id) JOIN easeml.dataset_info d USING (dataset_id)
WHERE l.run_id = %s AND l.rank = 1
"""
TRIED = """
SELECT string_agg(architecture || ' ' || round(best::numeric, 4), ', ' ORDER BY best DESC) AS told
FROM (SELECT architecture, max(validation_metric) AS best FROM easeml.leaderboard
    WHERE run_id = %s GROUP BY architecture) each
"""


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for the whole task and for each architecture alone, then the differences."""
    seconds = 20 if workload.is_quick else SECONDS
    source = workload.images("bytea")
    with workload.session("postgres") as owner:
        owner.execute("DROP SCHEMA IF EXISTS pictures CASCADE")
        owner.execute(f"CREATE SCHEMA pictures; GRANT USAGE, CREATE ON SCHEMA pictures TO {ANALYST}".encode())
    with workload.session() as session, workload.coordinator():
        if session.execute("SELECT FROM easeml.tasks WHERE task_name = 'clothes'").fetchall():  # of an earlier round
            session.execute("SELECT easeml.drop_task('clothes', cascade => true)")
        session.execute(TASK.format(source=source).encode())
        session.execute(FEED.format(source=source).encode())
        whole, _ = yield from _rows(session, "all architectures", {"max_seconds": seconds})
        for architecture in ("mlp", "lenet"):
            asked = {"max_seconds": seconds, "architectures": [architecture]}
            alone, error = yield from _rows(session, f"{architecture} alone", asked)
            setting = f"standard error of one of them {error:.4f}"
            yield Row(f"test accuracy, all - {architecture} alone", setting, whole - alone, at_least=0.0)


def _rows(session: Session, label: str, options: Mapping[str, Any]) -> Generator[Row, None, tuple[float, float]]:
    """Run the task; yield the test accuracy of its best trial, and return it with its standard error."""
    run_id = _ended(session, options)
    (best,) = session.execute(BEST, [run_id]).fetchall()
    (tried,) = session.execute(TRIED, [run_id]).fetchall()
    share, n_rows = best["test_metric"], best["n_test_rows"]
    setting = (
        f"{label}, {options['max_seconds']} s, {n_rows} test rows: {best['architecture']}, the best of"
        f" {best['n_trials']} trials; validation accuracies {tried['told']}"
    )
    yield Row("test accuracy of a task's best model", setting, share)
    return share, sqrt(share * (1 - share) / n_rows)


def _ended(session: Session, options: Mapping[str, Any]) -> int:
    """Have a run of the task begin, and wait until it has ended."""
    known = session.execute(RUNS).fetchall()
    session.execute(RUN, [Jsonb(options)])
    session.execute("SELECT easeml.run_task('clothes')")
    while True:
        found = session.execute(RUNS).fetchall()
        if found and found != known and found[0]["status"] not in ("queued", "running"):
            return int(found[0]["run_id"])
        time.sleep(0.5)
