"""Tenants and roles without any grant do what they can to the coordinator; another tenant's progress is the measure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Session

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
    with coordinator(database):
        train(tenant(database, "vera"), 1)


# Open transactions

HELD = [
    "SELECT easeml.cancel(%(run)s)",
    "SELECT easeml.drop_run(%(run)s)",
    "SELECT FROM easeml.trials WHERE run_id = %(run)s FOR UPDATE",
]


@pytest.mark.parametrize("statement", HELD)
def test_a_transaction_that_stays_open_stops_no_other_tenant(served: Session, vera: Session, statement: str) -> None:
    mallory = served.as_role("mallory", "easeml_tenant")
    mallory.execute(DATASET)
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
    served.execute("SELECT easeml.drop_run(%s)", [run_id])
