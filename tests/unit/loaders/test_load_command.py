"""The command line without a server: usage errors, and errors as all commands tell them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from easeml_db.cli import main
from easeml_db.cli.data.load import load, parse_types


def test_types_are_split_as_csv() -> None:
    assert parse_types('a=text,"b,c=double precision"') == {"a": "text", "b,c": "double precision"}
    assert parse_types("") == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["iris", "--append", "--replace"],
        ["csv", "missing.csv", "--table", "t"],
        ["nonsense"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(load, arguments).exit_code == 2


def test_types_without_equals_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    result = CliRunner().invoke(load, ["csv", str(tmp_path / "a.csv"), "--table", "t", "--types", "a"])
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("dsn", "first", "hint"),
    [
        ("host=/nowhere dbname=x", "the server cannot be reached: ", "Start a private one with easeml up"),
        ("nonsense", "--dsn: expected a connection string: ", "For example 'host=localhost"),
    ],
)
def test_a_failure_is_told_as_by_all_commands(
    dsn: str, first: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["load", "iris", "--dsn", dsn])
    assert ended.value.code == 1
    told = capsys.readouterr().err.splitlines()
    assert [told[0].startswith(f"easeml: {first}"), told[1].startswith(f"  hint: {hint}"), len(told)] == [True, True, 2]
