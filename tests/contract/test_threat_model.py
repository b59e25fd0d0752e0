"""Each promise of the threat model names the tests that hold it, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
THREAT_MODEL = ROOT / "docs" / "design" / "threat-model.md"
NAMED = re.compile(r"`(tests/[\w/.]+)`")


def promises() -> list[tuple[str, list[str]]]:
    """The rows of the table of promises: what is promised, and the tests that are named."""
    section = THREAT_MODEL.read_text(encoding="utf-8").partition("## Promises")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [(row[1], NAMED.findall(row[2])) for row in rows[2:]]


def files_of(named: str) -> list[Path]:
    """The files of tests that a path stands for."""
    path = ROOT / named
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def test_every_promise_names_a_test() -> None:
    assert len(promises()) >= 15
    assert [promise for promise, named in promises() if not named] == []


def test_every_test_that_a_promise_names_is_there() -> None:
    for promise, named in promises():
        for file in (file for one in named for file in files_of(one)):
            assert "\ndef test_" in file.read_text(encoding="utf-8"), f"{promise}: {file} has no test"


def test_every_file_of_attacks_holds_a_promise() -> None:
    named = {one for _, each in promises() for one in each}
    attacks = {f"tests/attack/{file.name}" for file in (ROOT / "tests" / "attack").glob("test_*.py")}
    assert attacks - named == set()
