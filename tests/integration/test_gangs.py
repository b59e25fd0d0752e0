"""Gangs: several sessions train one trial together, record it once, and end together."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.coordinator.ports.messages import Member, Order
from easeml_db.postgres.executor import GANG_CALLS
from easeml_db.postgres.gang_call import order_json
from easeml_db.words.training_unit import unit_at, unit_seed
from easeml_db.words.trial import Trial
from easeml_loaders import bundled_source, load_table

if TYPE_CHECKING:
    from tests.conftest import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

N_PARTITIONS, MAX_EPOCHS = 4, 2
AT_ONCE_SECONDS = 20.0  # on a loaded machine; the library would wait for 60
RUN = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => 2, seed => 5,
    search_space => '{"hidden_units": [[32]], "learning_rate": [0.01], "batch_size": [16], "dropout": [0.1]}')
"""
UNITS = """
SELECT epoch, position, partition_number, slot_id, n_slots, started_at, n_rows, loss, state_sha256
FROM easeml.training_timeline WHERE kind = 'train' ORDER BY epoch, position
"""


class Crew:
    """The sessions of slots 1 and 2, without a coordinator."""

    def __init__(self, database: Session) -> None:
        self.database = database
        self.sessions = [database.again(), database.again()]
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
        call = GANG_CALLS[order.unit.kind]

        def run(rank: int) -> Any:
            text = order_json(order, rank, self.token, 60.0)
            row = self.sessions[rank].execute(call, [text]).fetchone()  # type: ignore[call-overload]
            return row["result"]

        return [self.pool.submit(run, rank) for rank in range(2)]

    def run(self, step: int) -> Any:
        """Run a gang to its end."""
        return [answer.result(60) for answer in self.start(self.order(step))]


def prepare(database: Session, n_partitions: int = N_PARTITIONS) -> None:
    load_table(database.dsn, bundled_source("digits"), "digits")
    database.execute(
        "SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label', n_partitions => %s)", [n_partitions]
    )


@pytest.fixture
def crew(database: Session) -> Iterator[Crew]:
    """Two sessions and a run of one trial."""
    prepare(database)
    database.execute(RUN)
    crew = Crew(database)
    yield crew
    crew.pool.shutdown()


@pytest.fixture
def long_crew(database: Session) -> Iterator[Crew]:
    """Like `crew`, whose gangs train for seconds."""
    prepare(database)
    database.execute(RUN.replace("[[32]]", "[[512, 512]]").replace('"batch_size": [16]', '"batch_size": [1]'))
    crew = Crew(database)
    yield crew
    crew.pool.shutdown()


# What is recorded


def test_a_gang_records_its_units_once_with_one_state(crew: Crew) -> None:
    first, second = crew.run(0)
    assert first == second
    units = crew.database.rows(UNITS)
    assert [(u["epoch"], u["position"], u["partition_number"], u["slot_id"], u["n_slots"]) for u in units] == [
        (1, 0, 1, 1, 2),
        (1, 1, 2, 2, 2),
    ]
    assert len({(u["started_at"], u["state_sha256"]) for u in units}) == 1
    assert first["n_rows"] == sum(u["n_rows"] for u in units)
    assert crew.database.value("SELECT n_steps_done FROM easeml.trials") == 2
    assert crew.database.value("SELECT count(*) FROM easeml.checkpoints") == 1
    assert crew.database.values("SELECT n_units_done FROM easeml.slots") == [1, 1]
    assert crew.database.value("SELECT bytes_stored = largest_state_bytes FROM easeml.run_traffic")


def test_a_whole_life_in_gangs_learns_and_is_the_same_bytes_again(crew: Crew) -> None:
    def live(crew: Crew) -> list[str]:
        for step in range(0, N_PARTITIONS * (2 * MAX_EPOCHS + 1), 2):
            crew.run(step)
        return [u["state_sha256"] for u in crew.database.rows(UNITS)]

    states = live(crew)
    (board,) = crew.database.rows("SELECT * FROM easeml.leaderboard")
    assert board["state"] == "finished"
    assert board["validation_metric"] > 0.7
    assert board["test_metric"] > 0.7
    assert crew.database.value("SELECT count(*) FROM easeml.evaluations WHERE n_slots = 2") == 3 * N_PARTITIONS
    # Every rank still had the trial: no state was read to train on.
    assert crew.database.value("SELECT sum(read_bytes) FROM easeml.training_units") == 0

    crew.database.execute("SELECT easeml.drop_run(%s)", [crew.trial.run_id])
    crew.database.execute(RUN)
    again = Crew(crew.database)
    assert live(again) == states
    again.pool.shutdown()


def test_a_fresh_pair_of_sessions_goes_on_from_the_stored_state(crew: Crew) -> None:
    crew.run(0)
    for session in crew.sessions:
        session.close()
    crew.sessions = [crew.database.again(), crew.database.again()]
    crew.token = secrets.token_hex(16)
    crew.run(2)
    read = crew.database.values("SELECT read_bytes > 0 FROM easeml.training_units ORDER BY position")
    assert read == [False, False, True, True]


def test_a_pilot_of_a_gang_records_nothing(crew: Crew) -> None:
    first, second = (answer.result(60) for answer in crew.start(pilot(crew.order(0))))
    assert first == second
    assert 0 < first["train_seconds"] < 60
    assert crew.database.value("SELECT count(*) FROM easeml.training_units") == 0
    assert crew.database.value("SELECT count(*) FROM easeml.slots WHERE unit_started_at IS NOT NULL") == 0
    crew.run(0)


def pilot(order: Order) -> Order:
    members = tuple(replace(member, unit=replace(member.unit, kind="pilot")) for member in order.members)
    return replace(order, unit=replace(order.unit, kind="pilot"), members=members)


# What goes wrong


def busy_pid(crew: Crew, slot_id: int) -> int:
    """The process of a slot, once it has joined the gang and trains."""
    deadline = time.monotonic() + 30
    while True:
        rows = crew.database.rows(
            "SELECT backend_pid FROM easeml.slots WHERE unit_started_at IS NOT NULL ORDER BY slot_id"
        )
        if len(rows) == 2:
            return int(rows[slot_id - 1]["backend_pid"])
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(("action", "slot_id"), [("pg_terminate_backend", 1), ("pg_cancel_backend", 2)])
def test_a_lost_rank_ends_the_gang_at_once_and_nothing_is_recorded(long_crew: Crew, action: str, slot_id: int) -> None:
    crew = long_crew
    answers = crew.start(crew.order(0))
    pid = busy_pid(crew, slot_id)
    time.sleep(1.0)
    crew.database.execute(f"SELECT {action}(%s)", [pid])
    lost = time.monotonic()
    errors = [answer.exception(60) for answer in answers]
    assert time.monotonic() - lost < AT_ONCE_SECONDS
    assert isinstance(errors[slot_id - 1], psycopg.Error)
    assert getattr(errors[slot_id - 1], "sqlstate", None) == {"pg_cancel_backend": "57014"}.get(action, "57P01")
    assert getattr(errors[2 - slot_id], "sqlstate", None) == "ML011"
    assert crew.database.value("SELECT count(*) FROM easeml.training_units") == 0


def test_a_rank_whose_peer_never_comes_can_be_cancelled(crew: Crew) -> None:
    order = crew.order(0)
    text = order_json(order, 0, crew.token, 60.0)
    answer = crew.pool.submit(crew.sessions[0].execute, GANG_CALLS["train"].encode(), [text])
    time.sleep(1.0)
    crew.sessions[0].cancel_safe()
    cancelled = time.monotonic()
    error = answer.exception(60)
    assert isinstance(error, psycopg.errors.QueryCanceled)
    assert time.monotonic() - cancelled < AT_ONCE_SECONDS


def test_a_gang_of_an_old_lease_or_of_a_step_that_is_not_due_is_refused(crew: Crew) -> None:
    order = crew.order(0)
    crew.run(0)
    errors = [answer.exception(60) for answer in crew.start(order)]
    assert [getattr(error, "sqlstate", None) for error in errors] == ["ML006", "ML006"]
    crew.database.execute("UPDATE easeml.coordinator_lease SET lease_number = lease_number + 1")
    stale = replace(crew.order(2), lease_number=order.lease_number)
    errors = [answer.exception(60) for answer in crew.start(stale)]
    assert [getattr(error, "sqlstate", None) for error in errors] == ["ML006", "ML011"]
    assert crew.database.value("SELECT count(*) FROM easeml.training_units") == 2


def test_a_gang_is_refused_where_one_of_its_slots_was_given_up_meanwhile(long_crew: Crew) -> None:
    crew = long_crew
    answers = crew.start(crew.order(0))
    busy_pid(crew, 2)
    crew.database.execute("UPDATE easeml.slots SET state = 'lost', lost_at = now() WHERE slot_id = 2")
    errors = [answer.exception(120) for answer in answers]
    assert [getattr(error, "sqlstate", None) for error in errors] == ["ML006", "ML011"]
    assert crew.database.value("SELECT n_steps_done FROM easeml.trials") == 0


def test_what_a_gang_has_trained_cannot_be_replayed(crew: Crew) -> None:
    crew.run(0)
    with pytest.raises(psycopg.Error, match="trained by several slots at once") as refused:
        crew.database.execute("CALL easeml.replay(%s)", [crew.trial.trial_id])
    assert refused.value.sqlstate == "ML004"


# Under a coordinator

PARALLEL = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => 3, seed => 5,
    allocation => 'data_parallel',
    search_space => '{"hidden_units": [[256, 256]], "learning_rate": [0.01, 0.003], "batch_size": [32]}')
"""
GANGS = """
SELECT trial_id, epoch, started_at, array_agg(slot_id ORDER BY slot_id) AS slots,
    array_agg(position ORDER BY position) AS positions
FROM easeml.training_units WHERE n_slots = 2 GROUP BY trial_id, epoch, started_at
"""


def wait_for_end(database: Session) -> None:
    deadline = time.monotonic() + 120
    while database.value("SELECT state IN ('queued', 'running') FROM easeml.runs"):
        assert time.monotonic() < deadline, database.rows("TABLE easeml.run_events")
        time.sleep(0.02)
    assert database.value("SELECT state FROM easeml.runs") == "finished", database.rows("TABLE easeml.events")


def check_recorded_once(database: Session) -> None:
    """Every unit is there once, though the tables would hold a second one back anyway."""
    n_trials = database.value("SELECT count(*) FROM easeml.trials WHERE state = 'finished'")
    assert n_trials == 2
    assert database.value("SELECT count(*) FROM easeml.training_units") == n_trials * 3 * N_PARTITIONS
    assert database.value("SELECT count(*) FROM easeml.evaluations") == n_trials * 4 * N_PARTITIONS
    assert database.value("SELECT count(*) FROM easeml.epoch_metrics") == n_trials * 4


def test_a_data_parallel_run_trains_one_trial_after_another_on_all_slots(
    database: Session, coordinator: Coordinator
) -> None:
    prepare(database)
    with coordinator(database):
        database.execute(PARALLEL)
        wait_for_end(database)
    check_recorded_once(database)
    gangs = database.rows(GANGS)
    assert {tuple(gang["slots"]) for gang in gangs} == {(1, 2)}
    assert {tuple(gang["positions"]) for gang in gangs} <= {(0, 1), (1, 2), (2, 3)}
    assert sum(len(gang["slots"]) for gang in gangs) >= 2 * 3 * N_PARTITIONS - 4  # a slot may be ready before the other
    first, second = database.rows(
        "SELECT min(started_at) AS start, max(finished_at) AS stop"
        " FROM easeml.training_timeline GROUP BY trial_id ORDER BY 1"
    )
    assert first["stop"] <= second["start"]
    assert min(database.values("SELECT test_metric FROM easeml.leaderboard")) > 0.8


def test_a_disturbed_gang_is_tried_again_and_the_run_ends(database: Session, coordinator: Coordinator) -> None:
    prepare(database)
    with coordinator(database):
        database.execute(PARALLEL.replace("[32]", "[4]"))
        for slot_id, action in ((1, "pg_terminate_backend"), (2, "pg_cancel_backend")):
            busy = "SELECT count(*) = 2 FROM easeml.slots WHERE unit_started_at IS NOT NULL AND kind = 'train'"
            while not database.value(busy):
                time.sleep(0.005)
            n_retries = len(database.rows("SELECT FROM easeml.run_events WHERE kind = 'retry'"))
            database.execute(f"SELECT {action}(backend_pid) FROM easeml.slots WHERE slot_id = %s", [slot_id])
            disturbed = time.monotonic()
            while len(database.rows("SELECT FROM easeml.run_events WHERE kind = 'retry'")) == n_retries:
                assert time.monotonic() - disturbed < AT_ONCE_SECONDS
                time.sleep(0.01)
        wait_for_end(database)
    check_recorded_once(database)
    assert database.value("SELECT max(attempt) FROM easeml.training_units") > 1


def test_a_slot_removed_from_a_gang_whose_other_rank_is_stopped_leaves_that_one_in_service(
    database: Session, coordinator: Coordinator
) -> None:
    prepare(database)
    with coordinator(database):
        database.execute(PARALLEL.replace("[32]", "[4]"))
        busy = "SELECT count(*) = 2 FROM easeml.slots WHERE unit_started_at < clock_timestamp() - interval '0.2 s'"
        while not database.value(f"{busy} AND kind = 'train'"):
            time.sleep(0.01)
        pid = database.value("SELECT backend_pid FROM easeml.slots WHERE slot_id = 1")
        os.kill(pid, signal.SIGSTOP)  # it takes no notice of the cancel for longer than the coordinator waits
        try:
            database.execute("SELECT easeml.remove_slot(2)")
            deadline = time.monotonic() + 60
            while not database.rows("SELECT FROM easeml.run_events WHERE kind = 'retry'"):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for_end(database)
    check_recorded_once(database)
