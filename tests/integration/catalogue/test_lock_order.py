"""Locks of several trials: whoever changes them takes them by their numbers, as a batch records them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from easeml_db.postgres.sessions import slot_session
from easeml_db.postgres.stores import store_session

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

RUN = """
SELECT easeml.create_dataset('points', 'points', '{a}', 'y');
SELECT easeml.select_models('points', '{mlp}', procedure => 'random', n_configs => 3, max_epochs => 1)
"""
MOVED = "UPDATE easeml.trials SET slot_seconds = slot_seconds WHERE trial_number = 1"
IS_WAITING = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
LAST_FREE = "SELECT 1 FROM easeml.trials WHERE run_id = %s ORDER BY trial_id DESC LIMIT 1 FOR NO KEY UPDATE NOWAIT"


@pytest.fixture
def run_id(database: Session) -> int:
    """A queued run, whose first trial lies behind the others in its table."""
    database.execute("CREATE TABLE points AS SELECT sin(i) AS a, sin(i) > 0.3 AS y FROM generate_series(1, 300) i")
    database.execute(RUN)
    run_id: int = database.value("SELECT run_id FROM easeml.runs")
    database.execute(MOVED)
    return run_id


@pytest.mark.parametrize("change", ["cancel", "resume", "drop_run"])
def test_who_waits_for_a_trial_holds_none_of_a_higher_number(database: Session, run_id: int, change: str) -> None:
    if change == "resume":
        database.execute("SELECT easeml.cancel(%s)", [run_id])
        database.execute(MOVED)
    other = database.again()
    other.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")  # an index would have them in order
    with ThreadPoolExecutor(1) as pool, database.transaction():
        database.execute(
            "SELECT FROM easeml.trials WHERE run_id = %s ORDER BY trial_id LIMIT 1 FOR NO KEY UPDATE", [run_id]
        )
        changed = pool.submit(other.execute, f"SELECT easeml.{change}(%s)", [run_id])
        with database.again() as watcher:
            watcher.wait_until(IS_WAITING, other.info.backend_pid)
        assert database.value(LAST_FREE, run_id) == 1
    changed.result()


@pytest.mark.parametrize("change", ["cancel", "resume", "drop_run"])
def test_who_waits_for_a_run_holds_none_of_its_trials(database: Session, run_id: int, change: str) -> None:
    """Whoever drops or prunes a run has its row first, and then wants its trials."""
    if change == "resume":
        database.execute("SELECT easeml.cancel(%s)", [run_id])
    other = database.again()
    with ThreadPoolExecutor(1) as pool, database.transaction():
        database.execute("SELECT FROM easeml.runs WHERE run_id = %s FOR UPDATE", [run_id])
        changed = pool.submit(other.execute, f"SELECT easeml.{change}(%s)", [run_id])
        with database.again() as watcher:
            watcher.wait_until(IS_WAITING, other.info.backend_pid)
        n_free = "SELECT count(*) FROM (SELECT FROM easeml.trials WHERE run_id = %s FOR UPDATE SKIP LOCKED) t"
        assert database.value(n_free, run_id) == 3
    changed.result()


def test_the_service_gives_way_before_the_server_looks_for_circles(database: Session) -> None:
    """Of two that wait for each other the server ends the one that looks first, which might be a tenant."""
    milliseconds = "SELECT setting::integer FROM pg_settings WHERE name = 'deadlock_timeout'"
    at_once = database.value(milliseconds)
    for settings in (slot_session.SETTINGS, store_session.SETTINGS):
        database.execute("SELECT set_config('lock_timeout', %s, false)", [settings["lock_timeout"]])
        assert 0 < database.value(milliseconds.replace("deadlock", "lock")) < at_once
    database.execute("RESET lock_timeout")
    pruning = (
        "SELECT substring(s FROM '[0-9]+')::integer FROM pg_proc, unnest(proconfig) s"
        " WHERE oid = 'easeml.prune_batch'::regproc AND s LIKE 'lock_timeout=%%ms'"
    )
    assert 0 < database.value(pruning) < at_once


def test_two_who_resume_a_run_at_once_resume_it_once(database: Session, run_id: int) -> None:
    database.execute("SELECT easeml.cancel(%s)", [run_id])
    other = database.again()
    with ThreadPoolExecutor(1) as pool:
        with database.transaction():
            database.execute("SELECT easeml.resume(%s)", [run_id])
            second = pool.submit(other.execute, "SELECT easeml.resume(%s)", [run_id])
            with database.again() as watcher:
                watcher.wait_until(IS_WAITING, other.info.backend_pid)
        with pytest.raises(psycopg.Error, match="only a cancelled or failed run can be resumed"):
            second.result()
    assert database.value("SELECT n_resumes FROM easeml.runs WHERE run_id = %s", run_id) == 1
