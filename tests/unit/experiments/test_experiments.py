"""What every experiment shares: the listing, the options, the files, and a command line that starts without them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from importlib.metadata import EntryPoint, metadata, requires
from pathlib import Path

import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_db.cli.terminal.installed_commands import EXPECTED, GROUP, further_commands
from easeml_db.errors import InvalidArgument, NotReady
from easeml_experiments import Experiment, Measure, Options, Result, at_least, at_most
from easeml_experiments.registry import EXPERIMENTS, later
from easeml_experiments.writing import number_text, page, write

MEASURES = (Measure("speed", "8 trials | lenet", "2 to 4", 3.4567, ">= 3", True), Measure("note", "", None, None))
EXAMPLE = Experiment("example", "An example", "nobody, figure 0", lambda _: Result(MEASURES, "They do not."))


def test_the_listing_names_every_experiment_with_its_source() -> None:
    listed = json.loads(CliRunner().invoke(commands, ["experiments", "--json"]).stdout)
    assert {row["name"] for row in listed} == set(EXPERIMENTS)
    assert all(row["source"] and row["summary"] for row in listed)
    text = CliRunner().invoke(commands, ["experiments"]).stdout
    assert all(name in text for name in EXPERIMENTS)


def test_an_unknown_experiment_is_wrong_usage() -> None:
    result = CliRunner().invoke(commands, ["experiments", "alchemy"])
    assert result.exit_code == 2
    assert "alchemy" in result.output


def test_the_command_line_starts_without_what_only_experiments_need() -> None:
    code = "import sys, easeml_db.cli; print([name for name in ('altair', 'torch', 'ray') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_package_that_is_not_installed_is_named_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ModuleNotFoundError(f"No module named 'ray' for {name}", name="ray")

    monkeypatch.setattr("easeml_experiments.registry.import_module", absent)
    with pytest.raises(NotReady, match="ray") as raised:
        later("mop_peers")(Options())
    assert 'pip install ".[experiments]" ./experiments' in str(raised.value.hint)


def entry_point(target: str) -> EntryPoint:
    return EntryPoint("experiments", target, GROUP)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "is not installed"),
        ([entry_point("easeml_experiments.alchemy:experiments")], "does not load: No module named"),
        ([entry_point("easeml_experiments.command:alchemy")], "does not load: module"),
    ],
)
def test_experiments_that_are_missing_or_broken_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, found: list[EntryPoint], said: str
) -> None:
    monkeypatch.setattr("easeml_db.cli.terminal.installed_commands.entry_points", lambda group: found)
    (command,) = further_commands()
    result = CliRunner().invoke(command, ["schedulers", "--quick", "--out", "folder"])
    assert isinstance(result.exception, NotReady)
    assert str(result.exception).startswith(f"the command experiments {said}")
    assert result.exception.hint == EXPECTED["experiments"]


def test_both_distributions_have_one_version_and_ask_for_it_of_each_other() -> None:
    version = metadata("easeml-db")["Version"]
    assert metadata("easeml-experiments")["Version"] == version
    assert f"easeml-experiments=={version}; extra == 'experiments'" in (requires("easeml-db") or [])
    assert f"easeml-db[milp,report]=={version}" in (requires("easeml-experiments") or [])


def test_a_command_of_another_distribution_is_offered_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    other = EntryPoint("alchemy", "easeml_experiments.command:experiments", GROUP)
    monkeypatch.setattr("easeml_db.cli.terminal.installed_commands.entry_points", lambda group: [other])
    assert [command.name for command in further_commands()] == ["experiments", "experiments"]
    assert "Not available" in str(list(further_commands())[1].help)


def test_bounds_are_kept_with_their_verdicts() -> None:
    assert at_least("a", "", None, 3.0, 3).holds
    assert not at_least("a", "", None, 2.9, 3).holds
    assert at_most("a", "", None, 1.05, 1.05).holds
    assert at_most("a", "", None, float("nan"), 1.05).holds is False
    assert at_most("a", "", None, 1.0, 1.05).target == "<= 1.05"


def test_numbers_keep_three_digits_or_all_of_large_ones() -> None:
    numbers = (None, "3 to 4", 0.0, 3.0, 3.4567, 0.00123456, 1234567.8)
    assert [number_text(each) for each in numbers] == ["", "3 to 4", "0", "3", "3.46", "0.00123", "1,234,568"]


def test_the_page_says_how_it_was_made_and_escapes_cells() -> None:
    text = page(EXAMPLE, EXAMPLE.run(Options()), Options(seed=7, is_quick=True), "easeml experiments example")
    assert "`easeml experiments example`, seed 7" in text
    assert "its numbers mean nothing" in text
    assert "| speed | 8 trials \\| lenet | 2 to 4 | 3.46 | >= 3 | yes |" in text


def test_tables_are_written_as_csv_whatever_columns_their_rows_have(tmp_path: Path) -> None:
    result = Result(MEASURES, "They do not.", {"curve": [{"x": 1, "y": [1, 2]}, {"x": 2, "z": None}]})
    paths = write(tmp_path / "new" / "folder", EXAMPLE, result, Options(), "easeml experiments example")
    assert [path.name for path in paths] == ["measures.csv", "curve.csv", "example.md"]
    with paths[1].open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == [{"x": "1", "y": "[1, 2]", "z": ""}, {"x": "2", "y": "", "z": ""}]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InvalidArgument, match="--out"):
        write(tmp_path / "file", EXAMPLE, Result(MEASURES, ""), Options(), "")
