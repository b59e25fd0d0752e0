"""The command line without a server: usage errors and one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from easeml_db.cli.load import load, parse_types


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


def test_failure_is_one_line_and_exits_with_1(tmp_path: Path) -> None:
    result = CliRunner().invoke(load, ["fashion-mnist", "--folder", str(tmp_path), "--dsn", "host=/nowhere"])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "apt-get install dataset-fashion-mnist" in result.stderr


def test_unreachable_server_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(load, ["iris", "--dsn", f"host={tmp_path} dbname=x"])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
