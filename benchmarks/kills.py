"""Fifty kills of the coordinator and fifty of random backends: every run must end in the bytes of an undisturbed one.

Each time a fresh run of a small grid search (cyclic order, default scheduler) is disturbed once, at a time drawn
uniformly over what is left of the undisturbed run after its first unit; then a coordinator serves it to its end. A kill
of the coordinator has hit if the run was open after it, the end of a backend if the run lost an attempt or a slot. What
has not hit is drawn again, and counts only where the bytes differ.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from comparison.measuring import Row
from psycopg.conninfo import make_conninfo
from workload import Workload, has_dataset

from easeml_db.local.preparation import SERVICE_ROLE
from easeml_db.local.processes import server_environment
from easeml_db.local.server import Embedded
from easeml_loaders import bundled_source, load_table

N_DISTURBANCES, N_QUICK, SEED = 50, 2, 2026
MOST_DRAWS = 8  # for each hit: about two in five ends of a backend hit
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
BACKENDS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'easeml slot%%' AND state = 'active' ORDER BY pid"
)
HAS_LOST = "SELECT FROM easeml.run_events WHERE run_id = %s AND kind IN ('retry', 'slot lost') LIMIT 1"
Session = Any


@dataclass(frozen=True)
class Disturbed:
    """What a run ended in, and whether the disturbance met anything."""

    outcome: list[Any]
    has_hit: bool


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
            found = list(_disturbed(n, lambda: disturb(server, session, rng.uniform(0.0, seconds), rng)))  # noqa: B023
            n_hits = sum(each.has_hit for each in found)
            n_others = sum(each.outcome != expected for each in found)
            setting = f"{n_hits} hits in {len(found)} runs of {len(expected) - 1} training units, seed {SEED}"
            yield Row(f"{name}: runs with the same bytes", setting, n_hits - n_others, f"of {n}", at_least=n)


def _disturbed(n_hits: int, disturb: Callable[[], Disturbed]) -> Iterator[Disturbed]:
    """Disturb a run after the other until so many disturbances have hit."""
    n_left = n_hits
    for _ in range(MOST_DRAWS * n_hits):
        if not n_left:
            return
        yield (each := disturb())
        n_left -= each.has_hit


def _undisturbed(server: Embedded, session: Session) -> tuple[list[Any], float]:
    """Return what a run ends in, and the seconds from its first unit to its end."""
    with _coordinator(server):
        _finish(session, _start(session))  # sessions are warm, caches filled
        run_id = _start(session)
        _wait_for_first_unit(session, run_id)
        started = time.monotonic()
        return _finish(session, run_id), time.monotonic() - started


def _kill_coordinator(server: Embedded, session: Session, after_seconds: float, rng: random.Random) -> Disturbed:
    run_id = _start(session)
    with _coordinator(server) as process:
        _wait_for_first_unit(session, run_id)
        time.sleep(after_seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    has_hit = not _is_over(session, run_id)
    with _coordinator(server):
        return Disturbed(_finish(session, run_id), has_hit)


def _end_backend(server: Embedded, session: Session, after_seconds: float, rng: random.Random) -> Disturbed:
    """Cancel or terminate a slot that is busy at that time, or the first that is busy afterwards."""
    run_id = _start(session)
    with _coordinator(server):
        _wait_for_first_unit(session, run_id)
        time.sleep(after_seconds)
        while not (backends := session.execute(BACKENDS).fetchall()) and not _is_over(session, run_id):
            pass
        if backends:
            action = rng.choice(["pg_terminate_backend", "pg_cancel_backend"])
            session.execute(f"SELECT {action}(%s)", [rng.choice(backends)["pid"]])
        _wait_for_end(session, run_id)
        has_hit = bool(session.execute(HAS_LOST, [run_id]).fetchall())
        return Disturbed(_finish(session, run_id), has_hit)


def _start(session: Session) -> int:
    return int(session.execute(RUN).fetchall()[0]["run_id"])


def _wait_for_first_unit(session: Session, run_id: int) -> None:
    sql = "SELECT count(*) > 0 AS has_begun FROM easeml.training_units WHERE run_id = %s"
    while not session.execute(sql, [run_id]).fetchall()[0]["has_begun"]:
        time.sleep(0.01)


def _is_over(session: Session, run_id: int) -> bool:
    return bool(session.execute(IS_OVER, [run_id]).fetchall()[0]["is_over"])


def _wait_for_end(session: Session, run_id: int) -> None:
    while not _is_over(session, run_id):
        time.sleep(0.02)


def _finish(session: Session, run_id: int) -> list[Any]:
    """Wait for the end; return what must not depend on anything that happened."""
    _wait_for_end(session, run_id)
    row = session.execute(IS_OVER, [run_id]).fetchall()[0]
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
