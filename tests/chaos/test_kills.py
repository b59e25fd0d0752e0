"""Things die half-way; what was recorded stays, nothing is recorded twice, and the end is the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from easeml_db.local.processes import server_environment
from easeml_db.local.server import Embedded
from easeml_loaders import bundled_source, load_table

N_KILLS = 6
RUN = """
SELECT easeml.select_models('digits', '{mlp,gaussian_nb}', procedure => 'grid', max_epochs => 4, seed => 5,
    search_space => '{"mlp": {"hidden_units": [[64], [32]], "learning_rate": [0.01, 0.001], "dropout": 0.2}}')
"""
STATES = """
SELECT trial_number, epoch, position, partition_number, seed, n_rows, loss, state_sha256
FROM easeml.training_units JOIN easeml.trials USING (trial_id) ORDER BY trial_number, epoch, position
"""
LEADERBOARD = """
SELECT rank, trial_number, validation_metric, test_metric, best_epoch, state FROM easeml.leaderboard ORDER BY 1, 2
"""


@contextmanager
def coordinator(dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    """A coordinator process, killed at the end if it still runs."""
    command = [sys.executable, "-m", "easeml_db", "coordinator", "--dsn", make_conninfo(dsn, user="easeml_service")]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", env=server_environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def start_run(session: Any, statement: str = RUN) -> None:
    load_table(session.dsn, bundled_source("digits"), "digits")
    session.execute("SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label')")
    session.execute(statement)


def wait_for_units(session: Any, n_units: int, timeout_seconds: float = 60.0) -> None:
    """Wait until that many units are recorded, or the run has ended."""
    deadline = time.monotonic() + timeout_seconds
    sql = (
        "SELECT sum(n_steps_done) >= %s OR (SELECT state IN ('finished', 'failed') FROM easeml.runs) FROM easeml.trials"
    )
    while not session.value(sql, n_units):
        assert time.monotonic() < deadline, session.rows("SELECT * FROM easeml.run_status")
        time.sleep(0.005)


def outcome(session: Any) -> tuple[list[Any], list[Any]]:
    assert session.value("SELECT state FROM easeml.runs") == "finished", session.rows("SELECT * FROM easeml.events")
    return session.rows(STATES), session.rows(LEADERBOARD)


@pytest.fixture(scope="module")
def undisturbed(module_database: Any) -> tuple[list[Any], list[Any]]:
    """States and leaderboard of the run when nothing happens to it."""
    start_run(module_database)
    with coordinator(module_database.dsn):
        wait_for_units(module_database, 10**6)
    return outcome(module_database)


def kill_coordinators(session: Any, rng: random.Random) -> None:
    """Kill the coordinator with -9 at several instants of the run, and start another each time."""
    total = session.value("SELECT sum((2 * max_epochs + 1) * 4) FROM easeml.trials")
    for n_units in sorted(rng.sample(range(1, total), N_KILLS)):
        with coordinator(session.dsn) as process:
            wait_for_units(session, n_units)
            time.sleep(rng.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            process.wait()


def disturb_backends(session: Any, rng: random.Random) -> None:
    """Terminate and cancel slots' sessions while a coordinator serves the run."""
    slots = "FROM pg_stat_activity WHERE application_name LIKE 'easeml slot%%' AND state = 'active' LIMIT 1"
    with coordinator(session.dsn):
        for n_units, action in ((5, "pg_terminate_backend"), (60, "pg_cancel_backend"), (110, "pg_terminate_backend")):
            wait_for_units(session, n_units + rng.randrange(10))
            session.execute(f"SELECT {action}(pid) {slots}")
        wait_for_units(session, 10**6)


@pytest.mark.parametrize("disturb", [kill_coordinators, disturb_backends])
def test_a_disturbed_run_ends_in_the_same_bytes(
    database: Any, undisturbed: tuple[list[Any], list[Any]], disturb: Callable[[Any, random.Random], None]
) -> None:
    start_run(database)
    disturb(database, random.Random(11))
    with coordinator(database.dsn):
        wait_for_units(database, 10**6)
    states, leaderboard = outcome(database)
    assert states == undisturbed[0]
    assert leaderboard == undisturbed[1]


def test_a_killed_run_in_free_order_is_proved_by_replay(database: Any) -> None:
    start_run(database, RUN.replace("seed => 5,", "seed => 5, visit_order => 'free',"))
    for n_units in (30, 90):
        with coordinator(database.dsn) as process:
            wait_for_units(database, n_units)
            process.send_signal(signal.SIGKILL)
            process.wait()
    with coordinator(database.dsn):
        wait_for_units(database, 10**6)
    outcome(database)
    for trial_id in database.values("SELECT trial_id FROM easeml.trials"):
        (replayed,) = database.rows("CALL easeml.replay(%s)", trial_id)
        assert replayed["result"]["is_identical"], replayed


def test_a_second_coordinator_stands_by_and_takes_over(database: Any, undisturbed: tuple[list[Any], list[Any]]) -> None:
    start_run(database)
    with coordinator(database.dsn), coordinator(database.dsn):
        wait_for_units(database, 20)
        os.kill(database.value("SELECT process_id FROM easeml.coordinators"), signal.SIGKILL)
        wait_for_units(database, 10**6)
    assert database.value("SELECT count(*) FROM easeml.coordinators") == 2
    assert outcome(database) == undisturbed


def test_a_stale_lease_cannot_record(database: Any) -> None:
    start_run(database)
    database.execute("UPDATE easeml.coordinator_lease SET lease_number = 7")
    trial_id = database.value("SELECT min(trial_id) FROM easeml.trials")
    unit = {"trial_id": trial_id, "step": 0, "kind": "train", "epoch": 1, "position": 0, "partition_number": 1,
            "seed": 1, "slot_id": 1, "lease_number": 6, "attempt": 1}  # fmt: skip
    with pytest.raises(psycopg.Error, match="lease 6 is over, 7 holds") as caught:
        database.execute("CALL easeml.train_unit(%s, NULL)", [psycopg.types.json.Jsonb(unit)])
    assert caught.value.sqlstate == "ML006"
    assert database.value("SELECT count(*) FROM easeml.training_units") == 0
    assert database.value("SELECT count(*) FROM easeml.checkpoints") == 0
    assert database.value("SELECT n_steps_done FROM easeml.trials WHERE trial_id = %s", trial_id) == 0


def test_a_run_survives_a_restart_of_the_server(undisturbed: tuple[list[Any], list[Any]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="easeml-test-", dir="/var/tmp"))
    os.chmod(folder, 0o755)
    server = Embedded(folder)
    try:
        server.start()
        server.prepare(n_slots=2)
        with psycopg.connect(server.dsn(), autocommit=True) as session:
            load_table(server.dsn(), bundled_source("digits"), "digits")
            session.execute("SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label')")
            session.execute(RUN)
        server.start_coordinator()
        time.sleep(3)
        server.restart()
        deadline = time.monotonic() + 60
        with psycopg.connect(server.dsn(), autocommit=True, row_factory=psycopg.rows.dict_row) as session:
            while session.execute("SELECT state FROM easeml.runs").fetchone() != {"state": "finished"}:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert session.execute(STATES).fetchall() == undisturbed[0]
    finally:
        server.remove()
