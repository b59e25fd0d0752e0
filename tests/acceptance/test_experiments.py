"""Experiments from the shell, in their quick form: what they print, write and leave behind."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_experiments.registry import EXPERIMENTS


def repeated(name: str, folder: Path) -> dict[str, Any]:
    """The JSON document of an experiment's quick form; it must say nothing else on standard output."""
    slots = ["--slots", "2"] if EXPERIMENTS[name].trains else []
    arguments = ["experiments", name, "--quick", *slots, "--seed", "3", "--json", "--out", str(folder)]
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, f"{result.output}\n{getattr(result.exception, 'detail', None)}"
    document: dict[str, Any] = json.loads(result.stdout)
    assert (document["experiment"], document["seed"], document["is_quick"]) == (name, 3, True)
    assert document["why"]
    return document


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def check_files(folder: Path, name: str, plots: set[str], measures: list[dict[str, Any]]) -> None:
    """A page with every measure, and every plot as an image and as a page that needs no network."""
    page = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert all(each["name"] in page for each in measures)
    assert [row["name"] for row in table(folder / "measures.csv")] == [each["name"] for each in measures]
    for plot in plots:
        assert (folder / f"{plot}.png").read_bytes().startswith(b"\x89PNG")
        assert "<script src" not in (folder / f"{plot}.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_model_hopping_and_its_peers_train_the_same(tmp_path: Path) -> None:
    measures = repeated("mop-peers", tmp_path)["measures"]
    found = {each["name"]: each for each in measures}
    assert found["trials with the same bytes"]["holds"]
    assert found["storage of a worker, MOP / task parallel"]["holds"]
    assert found["ray-tune - sequential SGD, best validation error"]["value"] == 0.0
    rows = table(tmp_path / "methods.csv")
    methods = {row["method"] for row in rows}
    assert methods == {"mop", "ray-tune", "tasks", "sequential", "data-parallel", "model-averaging", "replay"}
    assert all(float(row["seconds"]) > float(row["training_seconds"]) > 0 for row in rows)
    assert all(int(row["peak_memory_bytes"]) > 2**20 for row in rows)
    errors = table(tmp_path / "errors.csv")
    assert len(errors) == len(rows) * 8 * 2  # trials, epochs
    assert min(float(row["validation_error"]) for row in errors) < 0.2  # chance: 0.9
    check_files(tmp_path, "mop-peers", {"times", "learning_curves"}, measures)


@pytest.mark.slow
def test_counted_bytes_are_those_of_the_formulas(tmp_path: Path) -> None:
    measures = repeated("communication", tmp_path)["measures"]
    assert [each for each in measures if each["holds"] is False] == []
    assert sum(each["holds"] is True for each in measures) == 6
    counts = table(tmp_path / "counts.csv")
    assert {row["method"] for row in counts if row["counted_bytes"]} == {
        "model hopping", "model hopping, shared store", "task parallel", "model averaging", "data parallel, all-reduce",
    }  # fmt: skip
    check_files(tmp_path, "communication", {"bytes"}, measures)


def test_schedulers_are_compared_with_random_and_with_the_bound(tmp_path: Path) -> None:
    measures = repeated("schedulers", tmp_path)["measures"]
    (mean,) = [each for each in measures if each["setting"] == "mean over all settings"]
    assert mean["holds"]
    rows = table(tmp_path / "makespans.csv")
    assert {row["scheduler"] for row in rows} > {"random", "longest_remaining", "rotation", "milp", "auto"}
    assert all(float(row["relative_to_bound"]) >= 1 - 1e-9 for row in rows)
    check_files(tmp_path, "schedulers", {"makespans"}, measures)


@pytest.mark.slow
def test_slots_that_fail_and_come_back_lose_and_repeat_nothing(tmp_path: Path) -> None:
    measures = repeated("fault-tolerance", tmp_path)["measures"]
    assert [each for each in measures if each["holds"] is False] == []
    found = {each["name"]: each["value"] for each in measures if each["setting"].startswith("real")}
    assert [found[name] for name in ("units lost", "units recorded twice", "trials failed")] == [0.0] * 3
    rows = table(tmp_path / "epochs.csv")
    assert {"before", "after"} < {row["phase"] for row in rows if row["setting"] == "simulated"}
    check_files(tmp_path, "fault-tolerance", {"epochs"}, measures)


@pytest.mark.slow
def test_more_slots_train_the_same_work_sooner(tmp_path: Path) -> None:
    measures = repeated("speedup", tmp_path)["measures"]
    efficiencies = [each for each in measures if each["name"].startswith("speed-up / slots")]
    assert len(efficiencies) == 5
    assert all(each["holds"] for each in efficiencies)
    rows = table(tmp_path / "speedup.csv")
    assert {row["setting"] for row in rows} == {"real", "simulated"}
    check_files(tmp_path, "speedup", {"speedup"}, measures)


def test_tenants_are_replayed_and_compared_without_any_data(tmp_path: Path) -> None:
    measures = repeated("tenants", tmp_path)["measures"]
    names = {each["name"] for each in measures}
    assert {"MOSTCITED / ours, time from loss 0.1 to 0.02", "ours / oracle_hull, cost to loss 0.02"} < names
    assert {"hybrid: log-log slope of regret", "one decision and posterior update, milliseconds"} < names
    rows = table(tmp_path / "V9_costs.csv")
    assert {row["line"] for row in rows} == {
        "ours", "hybrid", "spearmint", "hybrid_best_prior", "spearmint_best_prior", "oracle_hull",
    }  # fmt: skip
    assert all(float(row["mean_low"]) <= float(row["mean_high"]) for row in rows if row["mean_low"])
    assert len(table(tmp_path / "decision.csv")) == 2
    check_files(tmp_path, "tenants", {"V9", "15", "devices", "regret"}, measures)


def test_water_filling_is_compared_with_one_trial_on_each_device(tmp_path: Path) -> None:
    measures = repeated("fluid", tmp_path)["measures"]
    held = {each["setting"]: each["holds"] for each in measures if each["holds"] is not None}
    assert {f"synchronous BOHB, {n} GPUs" for n in (4, 8, 16)} < set(held)
    assert all(held[f"{name}, least of all sizes and seeds"] for name in ("synchronous BOHB", "BOHB", "ASHA"))
    assert all(each["holds"] for each in measures if each["name"].startswith("StaticFluid / (2 OPT"))
    points = table(tmp_path / "figures.csv")
    assert {row["figure"] for row in points} == {"7", "11a", "11b", "12", "13a", "13b"}
    assert all(0 < float(row["utilisation_with"]) <= 1 + 1e-9 for row in points)
    assert all(float(row["ratio"]) >= 1 - 1e-9 for row in table(tmp_path / "bound.csv"))
    check_files(tmp_path, "fluid", {"ratios", "utilisation", "bound"}, measures)


@pytest.mark.slow
def test_procedures_take_the_same_decisions_on_both_sides(tmp_path: Path) -> None:
    measures = repeated("procedures", tmp_path)["measures"]
    found = {each["name"]: each for each in measures}
    assert found["trials with the same config and number of epochs"]["holds"]
    assert found["trials with the same bytes"]["holds"]
    assert found["storage, MOP / Ray"]["holds"]
    assert found["Hyperband, MOP - Ray, best validation error"]["value"] == 0.0
    rows = table(tmp_path / "searches.csv")
    assert {(row["procedure"], row["method"]) for row in rows} == {
        (procedure, method) for procedure in ("hyperband", "tpe", "asha") for method in ("mop", "ray")
    }
    assert all(float(row["seconds_with_start"]) > float(row["makespan_seconds"]) > 0 for row in rows)
    assert all(int(row["n_trials"]) > 0 for row in rows)
    assert {row["kind"] for row in table(tmp_path / "units.csv")} == {"train", "validate", "test"}
    plots = {"makespans", "best_errors", "curves_by_time", "curves_by_epoch", "rungs"}
    check_files(tmp_path, "procedures", plots, measures)


@pytest.mark.slow
def test_every_figure_of_ease_ml_is_drawn(tmp_path: Path) -> None:
    arguments = ["experiments", "tenants", "--quick", "--preset", "9,V10,10,11,12,13,14,fifty", "--out", str(tmp_path)]
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, result.output
    for name in ("9", "V10", "10", "11", "12", "13", "14", "fifty"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        lines = [(row["panel"], row["line"]) for row in table(tmp_path / f"{name}_curves.csv")]
        assert max(map(lines.count, set(lines))) <= 400


@pytest.fixture
def scratch_folder() -> Iterator[Path]:
    """A folder that the server's user can enter; pytest's own are closed to it."""
    with tempfile.TemporaryDirectory(prefix="easeml-test-", dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_experiment_leaves_nothing_behind(number: signal.Signals, scratch_folder: Path) -> None:
    command = [sys.executable, "-m", "easeml_db", "experiments", "communication", "--quick"]
    environment = {**os.environ, "TMPDIR": str(scratch_folder)}
    process = subprocess.Popen(
        command, cwd="/", env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "loading" in process.stderr.readline()
    assert list(scratch_folder.glob("easeml-experiment-*"))
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert not list(scratch_folder.iterdir())
