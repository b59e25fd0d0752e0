"""Experiments from the shell, in their quick form: what they print, write and leave behind.

A file for each that starts servers, so that several workers share them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_experiments.registry import EXPERIMENTS
from tests.disks import roomy_place


@dataclass(frozen=True)
class Outcome:
    """What a run of an experiment has printed, and the folder of its files."""

    name: str
    measures: list[dict[str, Any]]
    folder: Path

    def by_name(self) -> dict[str, dict[str, Any]]:
        """Measures that have a name of their own."""
        return {each["name"]: each for each in self.measures}

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of a CSV file."""
        with (self.folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def check_files(self, plots: set[str]) -> None:
        """A page with every measure, and every plot as an image and as a page that needs no network."""
        page = (self.folder / f"{self.name}.md").read_text(encoding="utf-8")
        assert all(each["name"] in page for each in self.measures)
        assert [row["name"] for row in self.table("measures")] == [each["name"] for each in self.measures]
        for plot in plots:
            assert (self.folder / f"{plot}.png").read_bytes().startswith(b"\x89PNG")
            assert "<script src" not in (self.folder / f"{plot}.html").read_text(encoding="utf-8")


OutcomeOf = Callable[[str], Outcome]


@pytest.fixture
def outcome_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OutcomeOf:
    """`outcome_of(name)` runs an experiment's quick form, which must print one JSON document and nothing else."""
    # Not in a folder of the test's own: Ray has sockets below it, whose paths may have 107 characters.
    monkeypatch.setenv("TMPDIR", str(roomy_place()))

    def run(name: str) -> Outcome:
        slots = ["--slots", "2"] if EXPERIMENTS[name].trains else []
        arguments = ["experiments", name, "--quick", *slots, "--seed", "3", "--json", "--out", str(tmp_path)]
        result = CliRunner().invoke(commands, arguments)
        assert result.exit_code == 0, f"{result.output}\n{getattr(result.exception, 'detail', None)}"
        document: dict[str, Any] = json.loads(result.stdout)
        assert (document["experiment"], document["seed"], document["is_quick"]) == (name, 3, True)
        assert document["why"]
        return Outcome(name, document["measures"], tmp_path)

    return run
