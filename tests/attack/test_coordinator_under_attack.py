"""Tenants and roles without any grant do what they can to the coordinator; another tenant's progress is the measure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

POINTS = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 120) i;
GRANT SELECT ON points TO PUBLIC
"""
DATASET = "SELECT easeml.create_dataset('labels', 'points', '{x}', 'y', n_partitions => 2)"
RUN = """
SELECT easeml.select_models('labels', '{linear}', procedure => 'grid', max_epochs => %s,
    search_space => '{"learning_rate": [0.1, 0.2]}')
"""
OLD_KEY = 7_202_011_708_307  # the advisory lock by which coordinators once excluded one another


@pytest.fixture(scope="module")
def served(module_coordinated: Session) -> Session:
    """A database with a coordinator, and a table that everybody may read."""
    module_coordinated.execute(POINTS)
    return module_coordinated


def tenant(served: Session, role: str) -> Session:
    """A tenant with a dataset."""
    session = served.as_role(role, "easeml_tenant")
    session.execute(DATASET)
    return session


@pytest.fixture(scope="module")
def vera(served: Session) -> Session:
    """The tenant that just wants to train."""
    return tenant(served, "vera")


@pytest.fixture(scope="module")
def mallory(served: Session) -> Session:
    """The tenant that the others suffer from."""
    return tenant(served, "mallory")


def train(vera: Session, max_epochs: int = 2) -> None:
    """Ask for a run, and wait until it has finished."""
    run_id = vera.value(RUN, max_epochs)
    vera.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)


def memory_megabytes(served: Session) -> float:
    """Resident memory of the coordinator's process."""
    pid = served.value("SELECT process_id FROM easeml.coordinators ORDER BY lease_number DESC LIMIT 1")
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@contextmanager
def repeated(session: Session, statement: str) -> Iterator[None]:
    """A session that executes a statement again and again for as long as the block lasts."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            session.execute(statement.encode())

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


# Notifications and advisory locks, which need no grant at all

FLOOD = "SELECT pg_notify('easeml_{}', i::text) FROM generate_series(1, {}) i"


def test_floods_of_notifications_neither_fill_the_coordinator_nor_keep_it_busy(served: Session, vera: Session) -> None:
    nobody = served.as_role("nobody_at_all")
    train(vera)
    before = memory_megabytes(served)
    lease = served.value("SELECT lease_number FROM easeml.coordinator_lease")
    nobody.execute(FLOOD.format("runs", 100_000))
    train(vera)
    with repeated(nobody, FLOOD.format("tenants", 1_000)), repeated(nobody.again(), FLOOD.format("slots", 1_000)):
        train(vera)
    assert served.value("SELECT easeml.has_live_coordinator()")
    assert served.value("SELECT lease_number FROM easeml.coordinator_lease") == lease
    assert memory_megabytes(served) < before + 50


def test_advisory_locks_keep_no_coordinator_out(database: Session, coordinator: Coordinator) -> None:
    nobody = database.as_role("nobody_at_all")
    nobody.execute("SELECT pg_advisory_lock(%s)", [OLD_KEY])
    database.execute(POINTS)
    database.execute("SELECT easeml.set_slots(1)")
    with coordinator(database):
        train(tenant(database, "vera"), 1)


# Open transactions

HELD = [
    "SELECT easeml.cancel(%(run)s)",
    "SELECT easeml.drop_run(%(run)s, force => true)",
    "SELECT FROM easeml.trials WHERE run_id = %(run)s FOR UPDATE",
]


@pytest.mark.parametrize("statement", HELD)
def test_a_transaction_that_stays_open_stops_no_other_tenant(
    served: Session, vera: Session, mallory: Session, statement: str
) -> None:
    run_id = mallory.value(RUN, 3_000)
    served.wait_until("SELECT count(*) > 0 FROM easeml.training_units WHERE run_id = %s", run_id)
    holder = served.again()  # a superuser can hold what a tenant's own functions hold, and more
    with holder.transaction(force_rollback=True):
        holder.execute(statement, {"run": run_id})  # type: ignore[call-overload]
        for _ in range(2):
            train(vera)
        assert served.value("SELECT easeml.has_live_coordinator()")
        n_units = served.value("SELECT sum(n_steps_done) FROM easeml.trials WHERE run_id = %s", run_id)
    served.wait_until("SELECT sum(n_steps_done) > %s FROM easeml.trials WHERE run_id = %s", n_units, run_id)
    assert served.value("SELECT max(attempt) FROM easeml.training_units WHERE run_id = %s", run_id) == 1
    served.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


# Arms without end


def test_arms_without_end_leave_others_their_turns(served: Session, vera: Session, mallory: Session) -> None:
    served.execute("SELECT easeml.set_policy('hybrid', max_wait_seconds => 4)")
    run_id = mallory.value(RUN, 1_000_000)
    served.wait_until("SELECT count(*) > 0 FROM easeml.training_units WHERE run_id = %s", run_id)
    train(vera, 2)
    endless = vera.value(RUN, 1_000_000)
    done = "SELECT coalesce(sum(n_steps_done), 0) FROM easeml.trials WHERE run_id = %s"
    for _ in range(2):  # each goes on again and again, while the other wants all slots
        for each in (run_id, endless):
            served.wait_until(f"SELECT ({done}) > %s", each, served.value(done, each) + 50)
    served.execute("SELECT easeml.drop_run(%s, force => true), easeml.drop_run(%s, force => true)", [run_id, endless])


# Rows that make no sense, as no function would write them

SEARCH = "SELECT easeml.select_models('labels', '{linear}', procedure => 'successive_halving', max_epochs => 2)"
NUMBER = "repeat('9', 5001)"
NESTED = "repeat('[', 5000) || repeat(']', 5000)"


def searched(key: str, value: str) -> str:
    """A statement that forges a part of a run's search."""
    return f"UPDATE easeml.runs SET search = search || jsonb_build_object('{key}', {value}) WHERE run_id = %s"


FORGERIES = {
    "a number of 5,001 digits in a search": searched("n_configs", f"{NUMBER}::numeric"),
    "a search that nests 5,000 deep": searched("n_configs", f"({NESTED})::jsonb"),
    "architectures that nest 5,000 deep": searched("architectures", f"({NESTED})::jsonb"),
    "a search of two million characters": searched("x", "repeat('x', 2000000)"),
    "a config with a number of 5,001 digits": "UPDATE easeml.trials SET config = jsonb_build_object('learning_rate', "
    f"{NUMBER}::numeric) WHERE run_id = %s",
    "more steps than there are": "UPDATE easeml.trials SET n_steps_done = 2000000000 WHERE run_id = %s",
    "an allocation that there is not": "UPDATE easeml.runs SET allocation = 'all of them' WHERE run_id = %s",
    "no trials": "DELETE FROM easeml.trials WHERE run_id = %s",
    "a bound dataset without partitions": "WITH r AS (SELECT dataset_id FROM easeml.runs WHERE run_id = %s),"
    " d AS (DELETE FROM easeml.partitions WHERE dataset_id IN (SELECT dataset_id FROM r))"
    " UPDATE easeml.datasets SET placement = 'bound' WHERE dataset_id IN (SELECT dataset_id FROM r)",
}


def forge(session: Session) -> list[int]:
    """Ask for a run for each forgery, and forge its rows before anybody sees them."""
    run_ids = []
    for statement in FORGERIES.values():
        with session.transaction():
            run_ids.append(session.value(SEARCH))
            session.execute(statement.encode(), [run_ids[-1]])
    session.execute("SELECT easeml.refresh_dataset('labels')")  # the last forgery leaves none
    return run_ids


def test_rows_that_make_no_sense_end_their_run_and_no_other(database: Session, coordinator: Coordinator) -> None:
    database.execute(POINTS)
    vera = tenant(database, "vera")
    database.execute(DATASET)
    run_ids = forge(database)
    database.execute("SELECT easeml.set_slots(1)")
    with coordinator(database):
        train(vera)
        run_ids += forge(database)
        train(vera)
        database.wait_until("SELECT bool_and(status = 'failed') FROM easeml.runs WHERE tenant <> 'vera'")
        assert database.value("SELECT lease_number FROM easeml.coordinator_lease") == 1
    reasons = database.rows("SELECT run_id, failure_reason FROM easeml.runs WHERE run_id = ANY (%s)", run_ids)
    assert [row for row in reasons if not row["failure_reason"]] == []
    told = "SELECT DISTINCT run_id FROM easeml.events WHERE run_id = ANY (%s) AND kind IN ('refused', 'failed')"
    assert set(database.values(told, run_ids)) == set(run_ids)
