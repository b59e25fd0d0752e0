"""What easeml up and easeml install make of a database, and what they leave as it is."""

from __future__ import annotations

from typing import Any

import pytest

from easeml_db.local import preparation
from easeml_db.local.preparation import prepare_database
from easeml_db.postgres.connection import connect_now

SLOTS = "SELECT slot_id, device, n_threads, memory_limit_bytes FROM easeml.slots ORDER BY slot_id"


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "available_cores", lambda: 8)


def slots_of(session: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.execute(SLOTS).fetchall()]


def test_slots_keep_what_an_administrator_gave_them(dsn: str) -> None:
    with connect_now(dsn) as session:
        prepare_database(session, n_slots=2)
        assert slots_of(session) == [(1, "cpu", 4, None), (2, "cpu", 4, None)]
        session.execute("SELECT easeml.set_slots(2, 3, 'cpu:1', 4000000000)")
        given = ("cpu:1", 3, 4000000000)
        prepare_database(session, n_slots=2)
        assert slots_of(session) == [(1, *given), (2, *given)]
        prepare_database(session, n_slots=3)
        assert slots_of(session) == [(1, *given), (2, *given), (3, *given)]
        prepare_database(session)
        assert len(slots_of(session)) == 3


def test_threads_that_nobody_chose_follow_the_number_of_slots(dsn: str) -> None:
    with connect_now(dsn) as session:
        prepare_database(session)
        assert slots_of(session) == [(k, "cpu", 1, None) for k in range(1, 9)]
        prepare_database(session, n_slots=4)
        assert slots_of(session) == [(k, "cpu", 2, None) for k in range(1, 5)]


def test_slots_that_differ_stay_unless_their_number_changes(dsn: str) -> None:
    with connect_now(dsn) as session:
        prepare_database(session, n_slots=2)
        session.execute("UPDATE easeml.slots SET device = 'cuda:0' WHERE slot_id = 2")
        prepare_database(session, n_slots=2)
        assert slots_of(session) == [(1, "cpu", 4, None), (2, "cuda:0", 4, None)]
        prepare_database(session, n_slots=1)
        assert slots_of(session) == [(1, "cpu", 8, None)]


def test_slots_of_instances_are_not_counted(dsn: str) -> None:
    with connect_now(dsn) as session:
        prepare_database(session, n_slots=2)
        session.execute("SELECT easeml.add_slots(1)")
        session.execute("UPDATE easeml.slots SET is_added = true, n_threads = 7 WHERE slot_id = 3")
        session.execute("SELECT easeml.set_slots(2, 3)")
        prepare_database(session, n_slots=2)
        assert slots_of(session) == [(1, "cpu", 3, None), (2, "cpu", 3, None), (3, "cpu", 7, None)]
