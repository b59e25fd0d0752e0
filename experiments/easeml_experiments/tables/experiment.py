"""The whole experiment: table after table, seed after seed, the rivals and ours by turns on the same cores.

What is kept in the folder of results is not run again, so a run that was cut short goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from easeml_db.errors import TrialFailed
from easeml_experiments.contract import Options, Result
from easeml_experiments.experiment_server import ExperimentServer, Session, private_server
from easeml_experiments.tables import comparable, comparison, loading, ours, splitting
from easeml_experiments.tables.kept import OURS, Kept
from easeml_experiments.tables.plan import TablesPlan, plan_of
from easeml_experiments.tables.plots import plots
from easeml_experiments.tables.splitting import Loaded
from easeml_experiments.tables.table import Table

LOG_LINES = 15


def run(options: Options) -> Result:
    """Run what is missing, compare all that is known."""
    plan = plan_of(options)
    found: list[Mapping[str, Any]] = []
    left_out: list[str] = []
    with _results_folder(options) as folder, Runner(plan, Kept(folder)) as runner:
        for table, seed in ((table, seed) for table in plan.tables for seed in plan.seeds):
            runner.run(table, seed)
            compared, objections = comparable.sifted(runner.kept.of(table.name, seed))
            options.say(f"{table.name}, seed {seed}: {comparison.in_words(compared, objections)}")
            found, left_out = [*found, *compared], [*left_out, *objections]
    return Result(comparison.measures(found), comparison.why(found, left_out), comparison.tables(found), plots(found))


@contextmanager
def _results_folder(options: Options) -> Iterator[Path]:
    """Open the folder that keeps results; the quick form keeps none."""
    if not options.is_quick:
        yield Path(options.values.get("results") or "tables-results").resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


class Runner:
    """Runs what is missing. The server starts when it is first needed."""

    def __init__(self, plan: TablesPlan, kept: Kept) -> None:
        self.plan, self.kept = plan, kept
        self._stack = ExitStack()
        self._server: ExperimentServer | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def run(self, table: Table, seed: int) -> None:
        """Run what is missing of a table with a seed."""
        splits = self.kept.split(table.name, seed)
        if self.plan.has_ours and (self.plan.is_again or not self._has_ours(table, seed, splits)):
            self._run_ours(table, seed)
        elif splits is None:
            with self._loaded(table, seed):
                pass  # which keeps the split
        self._run_rivals(table, seed)

    def _has_ours(self, table: Table, seed: int, splits: NDArray[np.str_] | None) -> bool:
        """Return whether ours is known, and of the split that is kept: a run cut short may leave a newer one."""
        known = self.kept.result(table.name, seed, OURS)
        return known is not None and (splits is None or known["split"] == splitting.digest_of(splits))

    def _run_ours(self, table: Table, seed: int) -> None:
        with self._loaded(table, seed) as loaded:
            asked = ours.arguments(seconds=self.plan.seconds, seed=seed, is_quick=self.plan.is_quick)
            self.kept.keep(table.name, seed, OURS, ours.run(self.server(), loaded, asked))

    def server(self) -> ExperimentServer:
        """Return the private server, started at the first call."""
        if self._server is None:
            self._server = self._stack.enter_context(private_server(self.plan.n_slots))
        return self._server

    @contextmanager
    def _loaded(self, table: Table, seed: int) -> Iterator[Loaded]:
        """Load a table into the database, its split kept; gone at the end."""
        frame = table.frame()
        with self.server().session() as session:
            loading.load(session, table, frame)
            try:
                splits = splitting.split_of(session, table, table.inputs(frame), seed)
                self.kept.keep_split(table.name, seed, splits)
                yield Loaded(table, table.inputs(frame), seed, splits)
            finally:
                _drop(session, table)

    def _run_rivals(self, table: Table, seed: int) -> None:
        """Run the missing rivals one after the other, in a process of their own."""
        splits = self.kept.split(table.name, seed)
        if splits is None:
            return
        missing = [
            rival.name
            for rival in self.plan.rivals
            if (table.texts or not rival.for_texts)
            and not self.kept.holds(table.name, seed, rival, splits, self.plan.seconds)
        ]
        if missing:
            values = (self.kept.folder, table.name, seed, self.plan.n_slots, self.plan.seconds, *missing)
            _in_a_process([str(value) for value in values], self.plan.n_slots)


def _drop(session: Session, table: Table) -> None:
    """Drop a loaded table, its dataset with all runs, and what was made of them."""
    if session.execute("SELECT FROM easeml.dataset_info WHERE dataset_name = %s", [table.name]).fetchall():
        session.execute("SELECT easeml.drop_dataset(%s, cascade => true)", [table.name])
    names = (table.name, f"{table.name}_test_places", f"{table.name}_predicted")
    session.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(sql.SQL(", ").join(map(sql.Identifier, names))))


def _in_a_process(arguments: list[str], n_threads: int) -> None:
    """Run rivals with so many threads. Raises TrialFailed with the end of what they printed."""
    command = [sys.executable, "-m", "easeml_experiments.tables", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).splitlines()[-LOG_LINES:]
        raise TrialFailed(f"rivals on {arguments[1]} ended with status {done.returncode}", detail="\n".join(tail))
