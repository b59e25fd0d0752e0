"""What the coordinator is told of runs that others change, from one look at the tables to the next."""

from __future__ import annotations

from easeml_db.postgres.changes import SeenRun, changed_runs


def seen(tenant: str = "ann", started_seconds: float | None = None, holders: int | None = None) -> SeenRun:
    return SeenRun(tenant, started_seconds, holders)


def test_new_runs_and_runs_that_are_over_are_told_and_others_are_not() -> None:
    assert changed_runs({}, {}) == []
    assert changed_runs({1: seen(), 2: seen()}, {2: seen(), 3: seen()}) == [1, 3]


def test_a_run_that_the_coordinator_starts_is_no_news_and_one_that_is_resumed_is() -> None:
    assert changed_runs({1: seen()}, {1: seen(started_seconds=5.0)}) == []
    assert changed_runs({1: seen(started_seconds=5.0)}, {1: seen(started_seconds=5.0)}) == []
    assert changed_runs({1: seen(started_seconds=5.0)}, {1: seen()}) == [1]
    assert changed_runs({1: seen(started_seconds=5.0)}, {1: seen(started_seconds=9.0)}) == [1]


def test_partitions_that_come_to_other_segments_are_news() -> None:
    assert changed_runs({1: seen(holders=7)}, {1: seen(holders=8)}) == [1]


def test_a_tenant_with_very_many_new_runs_keeps_no_other_waiting() -> None:
    many = {run_id: seen("mallory") for run_id in range(1, 3001)}
    now = many | {3001: seen("vera"), 3002: seen("vera")}
    assert changed_runs({}, now)[:4] == [1, 3001, 2, 3002]
    assert changed_runs(now, {})[:4] == [1, 3001, 2, 3002]
    assert sorted(changed_runs({}, now)) == sorted(now)
