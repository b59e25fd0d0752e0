"""Every figure of the paper's tenants, drawn."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from easeml_db.cli import commands


@pytest.mark.slow
def test_every_figure_of_ease_ml_is_drawn(tmp_path: Path) -> None:
    arguments = ["experiments", "tenants", "--quick", "--preset", "9,V10,10,11,12,13,14,fifty", "--out", str(tmp_path)]
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, result.output
    for name in ("9", "V10", "10", "11", "12", "13", "14", "fifty"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        with (tmp_path / f"{name}_curves.csv").open(encoding="utf-8", newline="") as file:
            lines = [(row["panel"], row["line"]) for row in csv.DictReader(file)]
        assert max(map(lines.count, set(lines))) <= 400
