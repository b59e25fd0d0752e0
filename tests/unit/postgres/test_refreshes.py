"""The process that looks at a source as its tenant: what it says is told, and it never stays; tenants take turns."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from easeml_db.postgres.chores.refreshes import Refreshes, advance_as

NOWHERE = "host=/nonexistent dbname=none user=service password=secret"


def test_what_a_process_says_is_told_and_the_services_password_is_not_given_to_tenants() -> None:
    said = asyncio.run(advance_as(NOWHERE, "anna", "houses"))
    assert said is not None
    assert "the server cannot be reached" in said
    assert "secret" not in said


def test_no_password_of_the_service_in_its_environment_is_offered_for_tenants(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """libpq would prefer it to that of the tenant in its file."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "password: ${PGPASSWORD-none}" >&2; exit 1\n', encoding="utf-8")
    python.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setenv("PGPASSWORD", "secret")
    assert asyncio.run(advance_as(NOWHERE, "anna", "houses")) == "password: none"


def test_a_process_that_takes_too_long_is_killed() -> None:
    assert asyncio.run(advance_as(NOWHERE, "anna", "houses", most_seconds=0.01)) == "it took longer than 0.01 seconds"


def test_whoever_was_served_longest_ago_is_next() -> None:
    refreshes = Refreshes(None)  # type: ignore[arg-type]
    due = [{"role": name, "dataset_name": "d"} for name in ("anna", "ben", "carl")]
    refreshes._last = {"anna": 7.0, "ben": 3.0}
    assert [row["role"] for row in refreshes._in_turns(due)] == ["carl", "ben", "anna"]


def test_whoever_holds_its_own_rule_rests() -> None:
    refreshes = Refreshes(None)  # type: ignore[arg-type]
    refreshes._rests = {"anna": float("inf"), "ben": 0.0}
    due = [{"role": name, "dataset_name": "d"} for name in ("anna", "ben")]
    assert [row["role"] for row in refreshes._in_turns(due)] == ["ben"]
