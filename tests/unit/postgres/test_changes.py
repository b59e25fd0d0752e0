"""What the coordinator is told of runs that others change, from one look at the tables to the next."""

from __future__ import annotations

from easeml_db.postgres import extension_files
from easeml_db.postgres.stores.changes import SeenRun, changed_runs


def seen(tenant: str = "ann", n_resumes: int = 0, holders: int | None = None) -> SeenRun:
    return SeenRun(tenant, n_resumes, holders)


def test_new_runs_and_runs_that_are_over_are_told_and_others_are_not() -> None:
    assert changed_runs({}, {}) == []
    assert changed_runs({1: seen(), 2: seen()}, {2: seen(), 3: seen()}) == [1, 3]


def test_a_run_that_ended_and_was_resumed_between_two_looks_is_news() -> None:
    assert changed_runs({1: seen()}, {1: seen()}) == []
    assert changed_runs({1: seen()}, {1: seen(n_resumes=1)}) == [1]


def test_partitions_that_come_to_other_segments_are_news() -> None:
    assert changed_runs({1: seen(holders=7)}, {1: seen(holders=8)}) == [1]


def test_a_tenant_with_very_many_new_runs_keeps_no_other_waiting() -> None:
    many = {run_id: seen("mallory") for run_id in range(1, 3001)}
    now = many | {3001: seen("vera"), 3002: seen("vera")}
    assert changed_runs({}, now)[:4] == [1, 3001, 2, 3002]
    assert changed_runs(now, {})[:4] == [1, 3001, 2, 3002]
    assert sorted(changed_runs({}, now)) == sorted(now)


def test_no_function_notifies_since_a_full_queue_would_make_it_fail() -> None:
    assert "pg_notify" not in extension_files.build()
    assert "NOTIFY" not in extension_files.build()
