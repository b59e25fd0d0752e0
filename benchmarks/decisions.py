"""Milliseconds for which a procedure that decides keeps the coordinator's loop from all other work.

A run has 10,000 trials with a result each, or a search by TPE 1,000: statements make their rows. Then one more result
comes at a time, and the coordinator's own part decides, with its real stores on PostgreSQL: it reads what has
changed, asks the procedure, records what follows and looks at the run again. Between two of these steps the loop
serves others. The measure is the longest step in a decision, in processor time of the loop's thread, which other load
does not lengthen; the work of a procedure in its own thread does not count. The first decision after a start reads
all trials, and is reported by itself.
"""

from __future__ import annotations

import asyncio
import gc
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from unittest import mock

import psycopg
from comparison.measuring import Row
from psycopg.rows import dict_row
from workload import Session, Workload, private_server

from easeml_db.coordinator.effects import HandleMessages
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.procedure_runner import ProcedureRunner
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.service import QueueInbox, WallClock
from easeml_db.postgres.ports import postgres_ports

N_DECISIONS, N_AT_ONCE = 10, 2
# A procedure, its trials with a result, and the epochs after which it asks again.
CASES = (("asha", 10_000, 1), ("successive_halving", 10_000, 1), ("tpe", 10_000, 9), ("tpe", 1_000, 9))
LONGEST = "longest step of the loop in a decision"
PREPARE = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 60) i;
SELECT easeml.create_dataset('points', 'points', '{x}', 'y', n_partitions => 2)
"""
ASK = "SELECT easeml.select_models('points', '{linear}', procedure => %s, n_configs => %s, max_epochs => 9) AS run_id"
OPEN = "UPDATE easeml.arms SET opening = 1, opened_at = now() WHERE run_id = %s"
# The trials that a search would have by now, as copies of its first with learning rates of their own.
FILL = """
INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs, target_epochs)
SELECT run_id, arm_id, tenant, n, architecture, config || jsonb_build_object('learning_rate', 0.001 + n / 1e6),
    max_epochs, target_epochs
FROM easeml.trials, generate_series(2, %(n)s) n WHERE run_id = %(run)s AND trial_number = 1
ON CONFLICT (run_id, trial_number) DO NOTHING
"""
RESULT = """
WITH ended AS (
    UPDATE easeml.trials SET status = CASE WHEN %(epochs)s = max_epochs THEN 'finished' ELSE 'paused' END,
        n_steps_done = 2 * (2 * %(epochs)s + CASE WHEN %(epochs)s = max_epochs THEN 1 ELSE 0 END)
    WHERE run_id = %(run)s AND trial_number BETWEEN %(first)s AND %(last)s RETURNING *
)
INSERT INTO easeml.epoch_metrics (trial_id, run_id, tenant, epoch, split, n_rows, metric_value)
SELECT trial_id, run_id, tenant, epoch, 'validation', 20, random() FROM ended, generate_series(1, %(epochs)s) epoch
ON CONFLICT DO NOTHING
"""


class Steps:
    """What the loop does between two looks at others: the longest step, in processor time and on the clock."""

    def __init__(self) -> None:
        self.seconds = self.wall_seconds = 0.0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Time all steps of the loop in the block."""
        run = Handle._run

        def timed(handle: Handle) -> None:
            began, wall_began = time.thread_time(), time.perf_counter()
            run(handle)
            self.seconds = max(self.seconds, time.thread_time() - began)
            self.wall_seconds = max(self.wall_seconds, time.perf_counter() - wall_began)

        with mock.patch.object(Handle, "_run", timed):
            yield


def measure(workload: Workload) -> Iterator[Row]:
    """Use a private server of its own."""
    with private_server() as server, psycopg.connect(server.dsn(), autocommit=True, row_factory=dict_row) as owner:
        owner.execute(PREPARE)
        gc.freeze()  # as the coordinator's command does
        for procedure, n_trials, n_epochs in CASES:
            n_trials //= 10 if workload.is_quick else 1
            run_id = _searching(owner, procedure, n_trials, n_epochs)
            first, later = asyncio.run(_decide(server.dsn(SERVICE_ROLE), owner, run_id, n_epochs))
            setting = f"{procedure}, {n_trials:,} trials with a result"
            longest = max(steps.seconds for steps in later) * 1e3
            yield Row(LONGEST, f"{setting}, {len(later)} decisions", longest, "ms", at_most=10)
            wall = median(steps.wall_seconds for steps in later) * 1e3
            yield Row("the same on the clock, median", setting, wall, "ms")
            yield Row("the same in the first decision after a start", setting, first.seconds * 1e3, "ms")
            owner.execute("SELECT easeml.cancel(%s)", [run_id])


def _searching(owner: Session, procedure: str, n_trials: int, n_epochs: int) -> int:
    """Ask for a run, and give all of its trials but two a result, as if others were still to be drawn; return its
    number."""
    (row,) = owner.execute(ASK, [procedure, n_trials]).fetchall()
    run_id = int(row["run_id"])
    owner.execute(OPEN, [run_id])
    n_drawn = n_trials if procedure == "successive_halving" else n_trials - 2 * N_DECISIONS
    owner.execute(FILL, {"run": run_id, "n": n_drawn})
    _give_results(owner, run_id, 1, n_drawn - N_AT_ONCE, n_epochs)
    owner.execute("ANALYZE easeml.trials, easeml.epoch_metrics")
    return run_id


def _give_results(owner: Session, run_id: int, first: int, last: int, n_epochs: int) -> None:
    with owner.transaction():
        owner.execute("SET LOCAL session_replication_role = replica")  # no trigger follows how they came about
        owner.execute(RESULT, {"run": run_id, "first": first, "last": last, "epochs": n_epochs})


async def _decide(dsn: str, owner: Session, run_id: int, n_epochs: int) -> tuple[Steps, list[Steps]]:
    """Decide after each further result; return the steps of the first decision and of the others."""
    dispatcher, inbox = Dispatcher(), QueueInbox()

    async with postgres_ports(dsn, inbox, WallClock()) as ports:
        lease = Lease(ports.lease)
        await lease.acquire()
        runner = ProcedureRunner(ports.searches, ports.runs, lease, dispatcher)
        run = await ports.runs.read(run_id)
        assert run is not None
        dispatcher.put_run(run)
        runner.put_run(run)
        found = []
        for _ in range(1 + N_DECISIONS):
            if found:
                due = [t for t in dispatcher.runs[run_id].run.trials if t.status == "waiting"][:1]
                for trial in due:
                    _give_results(owner, run_id, trial.trial_number, trial.trial_number, n_epochs)
                    runner.trial_changed(run_id, trial.trial_id)
            steps = Steps()
            with steps.taken():
                await asyncio.sleep(0)  # what this benchmark does itself is no step of a decision
                async for effect in runner.decide(time.time()):
                    if isinstance(effect, HandleMessages):
                        await inbox.next(effect.wait_seconds)
                await asyncio.sleep(0)
            found.append(steps)
        await ports.executor.close()
    return found[0], found[1:]
