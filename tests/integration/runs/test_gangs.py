"""Gangs: several sessions train one trial together, record it once, and end together."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.coordinator.ports.messages import Member, Order
from easeml_db.postgres.sessions.gang_call import GANG_CALLS, order_json
from easeml_db.words.training_unit import unit_at, unit_seed
from easeml_db.words.trial import Trial
from easeml_loaders import bundled_source, load_table

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_PARTITIONS, MAX_EPOCHS = 4, 2
PATIENCE_SECONDS = 300.0
RUN = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => 2, seed => 5,
    search_space => '{"hidden_units": [[32]], "learning_rate": [0.01], "batch_size": [16], "dropout": [0.1]}')
"""
UNITS = """
SELECT epoch, position, partition_number, slot_id, n_slots, started_at, n_rows, loss, state_sha256
FROM easeml.training_timeline WHERE kind = 'train' ORDER BY epoch, position
"""


def call_of(kind: str) -> bytes:
    """The statement that calls the procedure of a kind of unit."""
    return f"CALL easeml.{GANG_CALLS[kind]}(%s::jsonb, NULL)".encode()


class GangUnderTest:
    """The sessions of slots 1 and 2, without a coordinator, and the only trial of the only run."""

    def __init__(self, database: Session, sessions: list[Session]) -> None:
        self.database, self.sessions = database, sessions
        self.token = secrets.token_hex(16)
        self.pool = ThreadPoolExecutor(2)
        (row,) = database.rows("SELECT * FROM easeml.trials")
        self.trial = Trial(row["trial_id"], row["run_id"], 1, N_PARTITIONS, MAX_EPOCHS, 0, "waiting")

    def order(self, step: int) -> Order:
        """The gang of two steps."""
        units = [unit_at(self.trial, step + rank) for rank in range(2)]
        seeds = [unit_seed(5, 1, unit.epoch, unit.partition_number) for unit in units]
        (lease,) = self.database.values("SELECT lease_number FROM easeml.coordinator_lease")
        return Order(units[0], seeds[0], 1, lease, 1, (Member(units[1], seeds[1], 2),))

    def start(self, order: Order) -> list[Future[Any]]:
        """Begin a gang; what its ranks answer comes later."""
        call = call_of(order.unit.kind)

        def run(rank: int) -> Any:
            text = order_json(order, rank, self.token, 2 * PATIENCE_SECONDS)
            row = self.sessions[rank].execute(call, [text]).fetchone()
            return row["result"]

        return [self.pool.submit(run, rank) for rank in range(2)]

    def run(self, step: int) -> Any:
        """Run a gang to its end."""
        return [answer.result(PATIENCE_SECONDS) for answer in self.start(self.order(step))]


def prepare(database: Session, n_partitions: int = N_PARTITIONS) -> None:
    load_table(database.dsn, bundled_source("digits"), "digits")
    database.execute(
        "SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label', n_partitions => %s)", [n_partitions]
    )


@pytest.fixture(scope="module")
def digits(module_database: Session) -> Session:
    """A database with a dataset and without a coordinator."""
    prepare(module_database)
    return module_database


@pytest.fixture(scope="module")
def warm_sessions(digits: Session) -> list[Session]:
    """Sessions of two slots that go from test to test: the first unit of a fresh one imports for seconds."""
    return [digits.again(), digits.again()]


@contextmanager
def new_gang(digits: Session, sessions: list[Session], run: str = RUN) -> Iterator[GangUnderTest]:
    """A gang with a new run, over sessions of which those that a test has lost are replaced."""
    sessions[:] = [digits.again() if session.closed else session for session in sessions]
    digits.execute(
        "UPDATE easeml.slots SET status = 'active', lost_at = NULL, unit_started_at = NULL, n_units_done = 0"
    )
    digits.execute(run)  # type: ignore[arg-type]
    gang = GangUnderTest(digits, sessions)
    yield gang
    pids = [session.info.backend_pid for session in sessions if not session.closed]
    # What a failed test has left waiting ends with its session.
    digits.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY (%s) AND state = 'active'", [pids]
    )
    gang.pool.shutdown()
    digits.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")


@pytest.fixture
def gang(digits: Session, warm_sessions: list[Session]) -> Iterator[GangUnderTest]:
    """Two sessions and a run of one trial."""
    with new_gang(digits, warm_sessions) as gang:
        yield gang


@pytest.fixture
def long_gang(digits: Session, warm_sessions: list[Session]) -> Iterator[GangUnderTest]:
    """Like `gang`, whose gangs train for minutes: nothing but what a test does ends them."""
    endless = RUN.replace("[[32]]", "[[2048, 2048, 2048]]").replace('"batch_size": [16]', '"batch_size": [1]')
    with new_gang(digits, warm_sessions, endless) as gang:
        yield gang


# What is recorded


def test_a_gang_records_its_units_once_with_one_state(gang: GangUnderTest) -> None:
    first, second = gang.run(0)
    assert first == second
    units = gang.database.rows(UNITS)
    assert [(u["epoch"], u["position"], u["partition_number"], u["slot_id"], u["n_slots"]) for u in units] == [
        (1, 0, 1, 1, 2),
        (1, 1, 2, 2, 2),
    ]
    assert len({(u["started_at"], u["state_sha256"]) for u in units}) == 1
    assert first["n_rows"] == sum(u["n_rows"] for u in units)
    assert gang.database.value("SELECT n_steps_done FROM easeml.trials") == 2
    assert gang.database.value("SELECT count(*) FROM easeml.checkpoints") == 1
    assert gang.database.values("SELECT n_units_done FROM easeml.slots") == [1, 1]
    assert gang.database.value("SELECT bytes_stored = largest_state_bytes FROM easeml.run_traffic")


def test_a_whole_life_in_gangs_learns_and_is_the_same_bytes_again(gang: GangUnderTest) -> None:
    def live(gang: GangUnderTest) -> list[str]:
        for step in range(0, N_PARTITIONS * (2 * MAX_EPOCHS + 1), 2):
            gang.run(step)
        return [u["state_sha256"] for u in gang.database.rows(UNITS)]

    states = live(gang)
    (board,) = gang.database.rows("SELECT * FROM easeml.leaderboard")
    assert board["status"] == "finished"
    assert board["validation_metric"] > 0.7
    assert board["test_metric"] > 0.7
    assert gang.database.value("SELECT count(*) FROM easeml.evaluations WHERE n_slots = 2") == 3 * N_PARTITIONS
    # Every rank still had the trial: no state was read to train on.
    assert gang.database.value("SELECT sum(read_bytes) FROM easeml.training_units") == 0

    gang.database.execute("SELECT easeml.drop_run(%s, force => true)", [gang.trial.run_id])
    with new_gang(gang.database, gang.sessions) as again:
        assert live(again) == states


def test_a_fresh_pair_of_sessions_goes_on_from_the_stored_state(gang: GangUnderTest) -> None:
    gang.run(0)
    for session in gang.sessions:
        session.close()
    gang.sessions[:] = [gang.database.again(), gang.database.again()]
    gang.token = secrets.token_hex(16)
    gang.run(2)
    read = gang.database.values("SELECT read_bytes > 0 FROM easeml.training_units ORDER BY position")
    assert read == [False, False, True, True]


def test_a_pilot_of_a_gang_records_nothing(gang: GangUnderTest) -> None:
    first, second = (answer.result(PATIENCE_SECONDS) for answer in gang.start(pilot(gang.order(0))))
    assert first == second
    assert first["train_seconds"] > 0
    assert gang.database.value("SELECT count(*) FROM easeml.training_units") == 0
    assert gang.database.value("SELECT count(*) FROM easeml.slots WHERE unit_started_at IS NOT NULL") == 0
    gang.run(0)


def pilot(order: Order) -> Order:
    members = tuple(replace(member, unit=replace(member.unit, kind="pilot")) for member in order.members)
    return replace(order, unit=replace(order.unit, kind="pilot"), members=members)


# What goes wrong


def busy_pid(gang: GangUnderTest, slot_id: int) -> int:
    """The process of a slot, once both have joined the gang and train."""
    busy = "FROM easeml.slots WHERE unit_started_at IS NOT NULL"
    gang.database.wait_until(f"SELECT count(*) = 2 {busy}")
    return int(gang.database.value(f"SELECT backend_pid {busy} AND slot_id = %s", slot_id))


@pytest.mark.parametrize(("action", "slot_id"), [("pg_terminate_backend", 1), ("pg_cancel_backend", 2)])
def test_a_lost_rank_ends_the_gang_at_once_and_nothing_is_recorded(
    long_gang: GangUnderTest, action: str, slot_id: int
) -> None:
    gang = long_gang
    answers = gang.start(gang.order(0))
    gang.database.execute(f"SELECT {action}(%s)", [busy_pid(gang, slot_id)])
    errors = [answer.exception(PATIENCE_SECONDS) for answer in answers]  # the library would wait for far longer
    assert isinstance(errors[slot_id - 1], psycopg.Error)
    assert getattr(errors[slot_id - 1], "sqlstate", None) == {"pg_cancel_backend": "57014"}.get(action, "57P01")
    assert getattr(errors[2 - slot_id], "sqlstate", None) == "ML011"
    assert gang.database.value("SELECT count(*) FROM easeml.training_units") == 0


def test_a_rank_whose_peer_never_comes_can_be_cancelled(gang: GangUnderTest) -> None:
    order = gang.order(0)
    text = order_json(order, 0, gang.token, 2 * PATIENCE_SECONDS)
    answer = gang.pool.submit(gang.sessions[0].execute, call_of("train"), [text])
    pid = gang.sessions[0].info.backend_pid
    gang.database.wait_until("SELECT state = 'active' FROM pg_stat_activity WHERE pid = %s", pid)
    gang.sessions[0].cancel_safe()
    error = answer.exception(PATIENCE_SECONDS)
    assert isinstance(error, psycopg.errors.QueryCanceled)


def test_a_gang_of_an_old_lease_or_of_a_step_that_is_not_due_is_refused(gang: GangUnderTest) -> None:
    order = gang.order(0)
    gang.run(0)
    errors = [answer.exception(PATIENCE_SECONDS) for answer in gang.start(order)]
    assert [getattr(error, "sqlstate", None) for error in errors] == ["ML006", "ML006"]
    gang.database.execute("UPDATE easeml.coordinator_lease SET lease_number = lease_number + 1")
    stale = replace(gang.order(2), lease_number=order.lease_number)
    errors = [answer.exception(PATIENCE_SECONDS) for answer in gang.start(stale)]
    assert [getattr(error, "sqlstate", None) for error in errors] == ["ML006", "ML011"]
    assert gang.database.value("SELECT count(*) FROM easeml.training_units") == 2


def test_a_gang_is_refused_where_one_of_its_slots_was_given_up_meanwhile(
    digits: Session, warm_sessions: list[Session]
) -> None:
    slow = RUN.replace("[[32]]", "[[256, 256]]").replace('"batch_size": [16]', '"batch_size": [1]')
    with new_gang(digits, warm_sessions, slow) as gang:  # of seconds: it is to end
        answers = gang.start(gang.order(0))
        busy_pid(gang, 2)
        digits.execute("UPDATE easeml.slots SET status = 'lost', lost_at = now() WHERE slot_id = 2")
        errors = [answer.exception(PATIENCE_SECONDS) for answer in answers]
        assert [getattr(error, "sqlstate", None) for error in errors] == ["ML006", "ML011"]
        assert digits.value("SELECT n_steps_done FROM easeml.trials") == 0


def test_what_a_gang_has_trained_cannot_be_replayed(gang: GangUnderTest) -> None:
    gang.run(0)
    with pytest.raises(psycopg.Error, match="trained by several slots at once") as refused:
        gang.database.execute("CALL easeml.replay(%s)", [gang.trial.trial_id])
    assert refused.value.sqlstate == "ML004"
