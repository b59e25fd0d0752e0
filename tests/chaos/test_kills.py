"""Things die half-way; what was recorded stays, nothing is recorded twice, and the end is the same bytes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.local.server import Embedded
from easeml_loaders import bundled_source, load_table
from tests.fixtures.coordinators import BATCHES_AT_ANY_SPEED

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_KILLS = 2
RUN = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => 3, seed => 5,
    search_space => '{"hidden_units": [[64], [32]], "learning_rate": [0.01, 0.001], "dropout": 0.2}')
"""
FREE_RUN = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => 3, seed => 5,
    visit_order => 'free', search_space => '{"hidden_units": [[64], [32], [16]], "dropout": 0.2}')
"""
# So many for each slot are several times faster together: a few are not always, beside other load.
N_BATCHED = 20
BATCHED_RUN = f"""
SELECT easeml.select_models('digits', '{{mlp}}', procedure => 'grid', max_epochs => 1, seed => 5,
    allocation => 'batched', search_space => '{{"hidden_units": [[16]], "batch_size": 4,
        "learning_rate": {[round(0.0005 * k, 4) for k in range(1, N_BATCHED + 1)]}}}')
"""
STATES = """
SELECT trial_number, epoch, position, partition_number, seed, n_rows, loss, state_sha256
FROM easeml.training_units JOIN easeml.trials USING (trial_id) ORDER BY trial_number, epoch, position
"""
LEADERBOARD = """
SELECT rank, trial_number, validation_metric, test_metric, best_epoch, status FROM easeml.leaderboard ORDER BY 1, 2
"""


def start_run(session: Session, statement: str = RUN) -> None:
    load_table(session.dsn, bundled_source("digits"), "digits")
    session.execute("SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label')")
    session.execute(statement)


def wait_for_units(session: Session, n_units: int) -> None:
    """Wait until that many units are recorded, or the run has ended."""
    is_over = "(SELECT status IN ('finished', 'failed') FROM easeml.runs)"
    session.wait_until(f"SELECT sum(n_steps_done) >= %s OR {is_over} FROM easeml.trials", n_units)


def outcome(session: Session) -> tuple[list[Any], list[Any]]:
    assert session.value("SELECT status FROM easeml.runs") == "finished", session.rows("SELECT * FROM easeml.events")
    return session.rows(STATES), session.rows(LEADERBOARD)


@pytest.fixture(scope="module")
def undisturbed(module_database: Session, coordinator: Coordinator) -> tuple[list[Any], list[Any]]:
    """States and leaderboard of the run when nothing happens to it."""
    start_run(module_database)
    with coordinator(module_database):
        wait_for_units(module_database, 10**6)
    return outcome(module_database)


def kill_coordinators(session: Session, coordinator: Coordinator, rng: random.Random) -> None:
    """Kill the coordinator with -9 at several instants of the run; another is started each time, and the last stood by
    already."""
    total = session.value("SELECT sum((2 * max_epochs + 1) * 4) FROM easeml.trials")
    # Of the first half: a kill must not come when the run is over.
    *instants, last = sorted(rng.sample(range(1, total // 2), N_KILLS))
    for n_units in instants:
        with coordinator(session) as process:
            wait_for_units(session, n_units)
            time.sleep(rng.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            process.wait()
    with coordinator(session), coordinator(session):
        session.wait_until("SELECT count(*) = %s FROM easeml.coordinators", N_KILLS)
        wait_for_units(session, last)
        holder = "SELECT process_id FROM easeml.coordinators ORDER BY lease_number DESC LIMIT 1"
        os.kill(session.value(holder), signal.SIGKILL)
        session.wait_until("SELECT count(*) = %s FROM easeml.coordinators", N_KILLS + 1)
        wait_for_units(session, 10**6)


def disturb_backends(session: Session, coordinator: Coordinator, rng: random.Random) -> None:
    """Terminate and cancel slots' sessions while a coordinator serves the run."""
    slots = "FROM pg_stat_activity WHERE application_name LIKE 'easeml slot%%' AND state = 'active' LIMIT 1"
    with coordinator(session):
        for n_units, action in ((5, "pg_terminate_backend"), (45, "pg_cancel_backend"), (90, "pg_terminate_backend")):
            wait_for_units(session, n_units + rng.randrange(10))
            session.execute(f"SELECT {action}(pid) {slots}")
        wait_for_units(session, 10**6)


@pytest.mark.parametrize("disturb", [kill_coordinators, disturb_backends])
def test_a_disturbed_run_ends_in_the_same_bytes(
    database: Session,
    coordinator: Coordinator,
    undisturbed: tuple[list[Any], list[Any]],
    disturb: Callable[[Session, Coordinator, random.Random], None],
) -> None:
    start_run(database)
    disturb(database, coordinator, random.Random(11))
    states, leaderboard = outcome(database)
    assert states == undisturbed[0]
    assert leaderboard == undisturbed[1]


def test_a_killed_run_in_free_order_is_proved_by_replay(database: Session, coordinator: Coordinator) -> None:
    start_run(database, FREE_RUN)
    with coordinator(database) as process:
        wait_for_units(database, 40)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with coordinator(database):
        wait_for_units(database, 10**6)
    outcome(database)
    for trial_id in database.values("SELECT trial_id FROM easeml.trials"):
        (replayed,) = database.rows("CALL easeml.replay(%s)", trial_id)
        assert replayed["result"]["is_identical"], replayed


def test_killed_and_terminated_in_batches_nothing_is_lost_or_doubled(
    database: Session, coordinator: Coordinator
) -> None:
    start_run(database, BATCHED_RUN)
    with coordinator(database, prelude=BATCHES_AT_ANY_SPEED) as process:
        wait_for_units(database, 30)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with coordinator(database, prelude=BATCHES_AT_ANY_SPEED):
        wait_for_units(database, 60)
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'easeml slot%%' AND state = 'active' LIMIT 1"
        )
        wait_for_units(database, 10**6)
    states, _ = outcome(database)
    assert len(states) == N_BATCHED * 4
    assert database.value("SELECT max(n_stacked) FROM easeml.training_timeline") > 1
    assert database.value("SELECT bool_and(n_steps_done = 4 * (2 + 1)) FROM easeml.trials")
    for trial_id in database.values("SELECT trial_id FROM easeml.trials WHERE trial_number IN (1, 6)"):
        (replayed,) = database.rows("CALL easeml.replay(%s)", trial_id)
        assert replayed["result"]["is_identical"], replayed


def test_a_stale_lease_cannot_record(database: Session) -> None:
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


def test_a_run_survives_a_restart_of_the_server(
    private_server: Embedded, database: Session, coordinator: Coordinator, undisturbed: tuple[list[Any], list[Any]]
) -> None:
    start_run(database)
    with coordinator(database) as process:
        wait_for_units(database, 20)
        private_server.restart()
        with database.open(database.dsn) as session:
            wait_for_units(session, 10**6)
            assert outcome(session) == undisturbed
        assert process.poll() is None
