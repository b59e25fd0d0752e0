"""An administrator at the shell makes tenants, changes them and lets them go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import Result

from easeml_db.local.server import Embedded
from easeml_db.postgres.connection import connect_now


@pytest.fixture
def shell(server: Embedded, run_easeml: Any) -> Iterator[Any]:
    """`shell("tenant", "--json")` runs a command; the server has the roles tina and theo."""
    with connect_now(server.dsn(), "test of tenants") as connection:
        connection.execute("CREATE ROLE tina LOGIN; CREATE ROLE theo LOGIN")
        yield run_easeml
        connection.execute("DELETE FROM easeml.tenants; DROP ROLE tina; DROP ROLE theo")


def listed(result: Result) -> dict[str, Any]:
    """Tenants by name, as a command prints them with --json."""
    assert result.exit_code == 0, result.output
    return {row["tenant"]: row for row in json.loads(result.stdout)}


def test_create_alter_and_drop(shell: Any) -> None:
    settings = ("--weight", 2, "--deadline", "2100-01-01 12:00+00", "--max-runs", 3, "--max-slots", 4)
    made = shell("tenant", "create", "tina", *settings, "--max-bytes", 10**9, "--max-hours", 7.5, "--json")
    tina = listed(made)["tina"]
    assert tina["deadline"].startswith("2100-01-01T")
    assert [tina[name] for name in ("weight", "max_runs", "max_slots", "max_bytes", "max_hours")] == [
        2.0, 3, 4, 10**9, 7.5,
    ]  # fmt: skip
    assert listed(shell("tenant", "create", "theo", "--json"))["theo"]["max_runs"] is None
    altered = shell("tenant", "--json", "alter", "tina", "--weight", 0.5, "--clear", "deadline,max-slots")
    tina = listed(altered)["tina"]
    assert [tina[name] for name in ("weight", "max_runs", "max_slots", "deadline")] == [0.5, 3, None, None]
    table = shell("tenant").stdout
    assert "tina" in table
    assert "theo" in table
    assert set(listed(shell("tenant", "drop", "tina", "--json"))) & {"tina", "theo"} == {"theo"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "nobody_there"), "there is no role 'nobody_there'"),
        (("create", "tina", "--weight", "-1"), "weight: expected a positive number, got -1"),
        (("create", "tina", "--deadline", "yesterday"), "deadline: expected a time in the future"),
        (("create", "tina", "--deadline", "soonish"), "invalid input syntax"),
        (("alter", "tina", "--max-runs", "2"), "there is no tenant 'tina'"),
        (("alter", "tina", "--clear", "colour"), "clear: expected names of settings, got 'colour'"),
        (("drop", "tina"), "there is no tenant 'tina'"),
    ],
)
def test_what_is_refused_is_said_in_one_line(shell: Any, arguments: tuple[str, ...], message: str) -> None:
    result = shell("tenant", *arguments)
    assert result.exit_code == 1
    assert message in str(result.exception)
    assert "tina" not in listed(shell("tenant", "--json"))


def test_wrong_usage(shell: Any) -> None:
    for arguments in (("create",), ("create", "tina", "--max-runs", "many"), ("alter", "tina", "--clear", "")):
        assert shell("tenant", *arguments).exit_code == 2
