"""Rules of trials and slots, which stand in triggers: each is held by INSERT, by UPDATE, and while a dump is loaded."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from stored_rows.catalogue_rows import TINY, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

BROKEN = [
    *(("trials", column, value) for column, value in [
        ("trial_number", 0), ("max_epochs", 0), ("max_epochs", 1_000_001), ("target_epochs", 0),
        ("target_epochs", 1_000_000), ("bracket", -1), ("inherited_epochs", -1), ("inherited_epochs", 1_000_000),
        ("status", "runing"), ("started_at", "infinity"), ("finished_at", "-infinity"),
    ]),
    *(("slots", column, value) for column, value in [
        ("device", "gpu"), ("n_threads", 0), ("n_threads", 1025), ("memory_limit_bytes", 1), ("status", "idle"),
    ]),
]  # fmt: skip
NEW = {"trials": {"trial_id": 9_000_000, "trial_number": 9_000_000}, "slots": {"slot_id": 9000, "slot_name": "new"}}
FIRST = {
    "trials": "trial_id = (SELECT min(trial_id) FROM easeml.trials)",
    "slots": "slot_id = (SELECT min(slot_id) FROM easeml.slots)",
}
COPY = """
INSERT INTO easeml.{0} OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(o, %s)).* FROM easeml.{0} o WHERE {1}
"""
# As pg_dump has them set while rows are loaded.
RESTORES = "SET row_security = off; SET check_function_bodies = off; SELECT set_config('search_path', '', false)"


@pytest.fixture(scope="module")
def filled(module_database: Session) -> Session:
    """A database with rows in all tables."""
    fill(module_database, TINY)
    return module_database


@pytest.fixture
def undone(filled: Session) -> Iterator[Session]:
    """`filled` within a transaction that is rolled back."""
    with filled.transaction(force_rollback=True):
        yield filled


@pytest.mark.parametrize("table", NEW)
def test_a_row_that_keeps_the_rules_goes_in(undone: Session, table: str) -> None:
    undone.execute(COPY.format(table, FIRST[table]), [json.dumps(NEW[table])])


@pytest.mark.parametrize(("table", "column", "value"), BROKEN)
def test_a_new_row_keeps_every_rule(undone: Session, table: str, column: str, value: Any) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=f"{column} = {value}"):
        undone.execute(COPY.format(table, FIRST[table]), [json.dumps(NEW[table] | {column: value})])


@pytest.mark.parametrize(("table", "column", "value"), [row for row in BROKEN if row[1:] != ("status", "runing")])
def test_a_changed_row_keeps_every_rule(undone: Session, table: str, column: str, value: Any) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=f"{column} = {value}"):
        undone.execute(f"UPDATE easeml.{table} SET {column} = %s WHERE {FIRST[table]}", [value])


def test_a_status_that_is_none_follows_no_other(undone: Session) -> None:
    with pytest.raises(psycopg.Error, match=r"cannot go from .* to runing"):
        undone.execute("UPDATE easeml.trials SET status = 'runing'")


def test_rules_hold_while_a_dump_is_loaded_and_foreign_keys_are_off(filled: Session, database: Session) -> None:
    (row,) = filled.values("SELECT to_jsonb(t) FROM easeml.trials t ORDER BY trial_id LIMIT 1")
    insert = (
        "INSERT INTO easeml.trials OVERRIDING SYSTEM VALUE SELECT * FROM jsonb_populate_record(NULL::easeml.trials, %s)"
    )
    database.execute(RESTORES)
    with pytest.raises(psycopg.errors.CheckViolation, match="max_epochs = 0"):
        database.execute(insert, [json.dumps(row | {"max_epochs": 0})])
    database.execute(insert, [json.dumps(row)])
    assert database.value("SELECT count(*) FROM easeml.trials") == 1
    assert database.value("SELECT count(*) FROM easeml.runs") == 0
