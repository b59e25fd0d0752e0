"""Fifty kills of the coordinator and fifty of random backends: every run must end in the bytes of an undisturbed one.

Each time a fresh run of a small grid search (cyclic order, default scheduler) is disturbed once, at a time drawn
uniformly over the length of the undisturbed run; then a coordinator serves it to its end.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from measuring import Row
from psycopg.conninfo import make_conninfo
from workload import Workload, has_dataset

from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.processes import server_environment
from easeml_db.local.server import Embedded
from easeml_loaders import bundled_source, load_table

N_DISTURBANCES, N_QUICK, SEED = 50, 2, 2026
RUN = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => 3, seed => 5,
    search_space => '{"hidden_units": [[128], [64]], "learning_rate": [0.01, 0.001], "batch_size": 8}') AS run_id
"""
OUTCOME = """
SELECT t.trial_number, t.status, t.best_epoch, t.best_metric_value,
    u.epoch, u.position, u.partition_number, u.state_sha256
FROM easeml.training_units u JOIN easeml.trials t USING (trial_id) WHERE u.run_id = %s ORDER BY 1, 5, 6
"""
IS_OVER = "SELECT status NOT IN ('queued', 'running') AS is_over, status FROM easeml.runs WHERE run_id = %s"
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'easeml slot%%' AND state = 'active'"
Session = Any


def measure(workload: Workload) -> Iterator[Row]:
    """Disturb, compare, count."""
    rng, n = random.Random(SEED), N_QUICK if workload.is_quick else N_DISTURBANCES
    server = workload.server
    with workload.session("postgres") as session:
        if not has_dataset(session, "digits"):
            load_table(server.dsn(), bundled_source("digits"), "digits")
            session.execute("SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label')")
        expected, seconds = _undisturbed(server, session)
        for name, disturb in (("kill -9 of the coordinator", _kill_coordinator), ("end of a backend", _end_backend)):
            outcomes = [disturb(server, session, rng.uniform(0.0, seconds), rng) for _ in range(n)]
            setting = f"{n} runs of {len(expected) - 1} training units, one disturbance each, seed {SEED}"
            same = sum(outcome == expected for outcome in outcomes)
            yield Row(f"{name}: runs with the same bytes", setting, same, f"of {n}", at_least=n)


def _undisturbed(server: Embedded, session: Session) -> tuple[list[Any], float]:
    with _coordinator(server):
        _finish(session, _start(session))  # sessions are warm, caches filled
        run_id, started = _start(session), time.monotonic()
        return _finish(session, run_id), time.monotonic() - started


def _kill_coordinator(server: Embedded, session: Session, after_seconds: float, rng: random.Random) -> list[Any]:
    run_id = _start(session)
    with _coordinator(server) as process:
        _wait_for_first_unit(session, run_id)
        time.sleep(after_seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with _coordinator(server):
        return _finish(session, run_id)


def _end_backend(server: Embedded, session: Session, after_seconds: float, rng: random.Random) -> list[Any]:
    """Cancel or terminate whatever slot is busy at that time."""
    run_id = _start(session)
    with _coordinator(server):
        _wait_for_first_unit(session, run_id)
        time.sleep(after_seconds)
        for row in session.execute(BACKENDS).fetchall()[:1]:
            action = rng.choice(["pg_terminate_backend", "pg_cancel_backend"])
            session.execute(f"SELECT {action}(%s)", [row["pid"]])
        return _finish(session, run_id)


def _start(session: Session) -> int:
    return int(session.execute(RUN).fetchall()[0]["run_id"])


def _wait_for_first_unit(session: Session, run_id: int) -> None:
    sql = "SELECT count(*) > 0 AS has_begun FROM easeml.training_units WHERE run_id = %s"
    while not session.execute(sql, [run_id]).fetchall()[0]["has_begun"]:
        time.sleep(0.01)


def _finish(session: Session, run_id: int) -> list[Any]:
    """Wait for the end; return what must not depend on anything that happened."""
    while not (row := session.execute(IS_OVER, [run_id]).fetchall()[0])["is_over"]:
        time.sleep(0.02)
    outcome = [row["status"], *(tuple(unit.values()) for unit in session.execute(OUTCOME, [run_id]).fetchall())]
    session.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    return outcome


@contextmanager
def _coordinator(server: Embedded) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "easeml_db", "coordinator", "--dsn"]
    dsn = make_conninfo(server.dsn(), user=SERVICE_ROLE)
    process = subprocess.Popen(
        [*command, dsn], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", env=server_environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
