"""The command line without a server: usage errors, what is made of a run's rows, what the doctor thinks of facts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
from click.testing import CliRunner
from rich.console import Console

from easeml_db import __version__
from easeml_db.cli import RENAMED, commands, main
from easeml_db.cli import SUBJECTS as SUBJECTS_OF_COMMANDS
from easeml_db.cli.demo.demo_subjects import STATEMENTS, SUBJECTS
from easeml_db.cli.search.run_snapshot import (
    ProgressRate,
    RunSnapshot,
    SlotSmoothing,
    changes,
    duration,
    telling_configs,
)
from easeml_db.cli.search.runs import OF_A_RUN
from easeml_db.cli.search.screen import screen
from easeml_db.cli.server.findings import (
    Environment,
    coordinator_finding,
    extension_finding,
    module_findings,
    plpython_finding,
    python_finding,
    segment_findings,
    server_finding,
    service_findings,
    slot_findings,
    vacuum_finding,
)
from easeml_db.cli.server.lock_findings import lock_findings
from easeml_db.cli.terminal.failures import told_in_a_line
from easeml_db.cli.terminal.listing import group_options, listing_group
from easeml_db.cli.terminal.output import print_json
from easeml_db.cli.terminal.statements import call
from easeml_db.errors import InvalidArgument, NotFound, NotReady
from easeml_db.local.coordinator_process import find_coordinator
from easeml_db.local.facts_file import remember
from easeml_db.local.lock_rights import OpenRight
from easeml_db.local.processes import server_environment
from easeml_db.report.wording import cost_text

NOWHERE = "host=/nonexistent dbname=x connect_timeout=2"
WITHOUT_DATA = {"up", "down", "destroy", "psql", "logs", "install", "console", "coordinator", "demo", "load"}


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(commands, list(arguments))


# Usage


def test_every_command_of_the_manual_is_there() -> None:
    wanted = "up down status psql logs install doctor load dataset select run predict deploy undeploy coordinator demo"
    assert set(wanted.split()) <= set(commands.commands)
    of_a_run = commands.commands["run"].commands  # type: ignore[attr-defined]
    assert {"watch", "leaderboard", "cancel", "resume", "drop", "report", "replay"} <= set(of_a_run)


@pytest.mark.parametrize(
    "arguments", ["--dsn here --json drop x", "--json drop x --dsn here", "drop --json --dsn here x"]
)
def test_options_of_a_group_stand_before_or_after_the_name_of_its_command(arguments: str) -> None:
    seen: list[object] = []
    group = listing_group("things", "List things.", lambda dsn, as_json: seen.append((dsn, as_json)))

    @group.command()
    @click.argument("name")
    @group_options
    def drop(name: str, dsn: str | None, as_json: bool) -> None:
        """Drop NAME."""
        seen.append((name, dsn, as_json))

    assert CliRunner().invoke(group, arguments.split()).exit_code == 0
    assert seen == [("x", "here", True)]
    assert group.commands["drop"].help == "Drop NAME."


def test_each_command_has_the_home_that_the_table_says() -> None:
    for modules in (*SUBJECTS_OF_COMMANDS.values(), OF_A_RUN):
        for module, names in modules.items():
            found = import_module(f"easeml_db.cli.{module}").COMMANDS
            assert [command.name for command in found if command.name in names.split()] == names.split(), module


@pytest.mark.parametrize("name", RENAMED)
def test_a_former_name_is_refused_with_the_present_one(name: str) -> None:
    result = CliRunner().invoke(commands, [name, "1"])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        f"Error: the command {name} is now: easeml {RENAMED[name]}",
    )
    present = CliRunner().invoke(commands, [*RENAMED[name].split(), "--help"])
    assert present.exit_code == 0


def test_a_command_loads_no_module_of_others() -> None:
    """Else each command takes the time of all, and so does each process that reads pictures for one."""
    script = (
        "import sys; from easeml_db.cli import commands; commands.commands['task'];"
        " print(*(name for name in sys.modules if name.startswith(('easeml_db.coordinator', 'easeml_experiments'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_help_says_what_a_command_does(name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert commands.commands[name].help


@pytest.mark.parametrize("name", sorted(set(commands.commands) - WITHOUT_DATA))
def test_whatever_prints_data_can_print_json(name: str) -> None:
    assert "--json" in [option for each in commands.commands[name].params for option in each.opts]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["select"],
        ["select", "digits", "--n-configs", "many"],
        ["select", "digits", "--search-space", "{bad"],
        ["select", "digits", "--search-space", "@/nonexistent.json"],
        ["select", "digits", "--architectures", "mlp,,lenet"],
        ["cancel"],
        ["cancel", "first"],
        ["run", "watch", "first"],
        ["predict", "digits"],
        ["predict", "digits", "--source", "t"],
        ["predict", "digits", "--output", "t"],
        ["predict", "digits", "--row", "[1]", "--source", "t", "--output", "u"],
        ["predict", "digits", "--row", '["a"]'],
        ["dataset", "create", "digits"],
        ["dataset", "create", "d", "--source", "t", "--inputs", "a", "--target", "b", "--input-shape", "8,x"],
        ["demo", "mnist"],
        ["demo", "--slots", "1"],
    ],
)
def test_wrong_usage_exits_with_2_and_prints_no_data(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_doctor_without_a_server_is_one_fault_with_what_to_do() -> None:
    result = invoke("doctor", "--dsn", NOWHERE, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [check["status"] for check in document["checks"]] == ["fault"]
    assert "easeml up" in document["checks"][0]["todo"]
    assert not document["is_healthy"]


def test_doctor_without_a_private_server_says_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EASEML_DATA", str(tmp_path))
    monkeypatch.delenv("EASEML_DSN", raising=False)
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "easeml up" in result.stdout


def test_search_space_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "space.json").write_text('{"learning_rate": [0.1]}')
    result = invoke("select", "digits", "--search-space", f"@{tmp_path}/space.json", "--dsn", NOWHERE)
    assert result.exit_code == 1  # the server is what is missing, not the argument


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"loss": float("nan"), "all": [float("inf"), 1.5]})
    assert json.loads(capsys.readouterr().out) == {"loss": None, "all": [None, 1.5]}


def test_json_has_spans_of_time_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"every": timedelta(days=1, hours=2)})
    assert json.loads(capsys.readouterr().out) == {"every": "1 day, 2:00:00"}


# Pictures of a run


def run_row(**facts: Any) -> dict[str, Any]:
    return {
        "run_id": 1, "dataset_name": "digits", "status": "running", "procedure": "random", "metric": "accuracy",
        "n_trials": 2, "max_epochs": 3, "n_failed": 0, "n_units": 56, "n_units_done": 14, "n_units_left": 42,
        "seconds_to_limit": None, "elapsed_seconds": 7.0, "best_metric_value": None, "best_trial_id": None,
        "failure_reason": None, "eta_seconds": None, "eta_p95_seconds": None, "cost_so_far": 0.0,
        "cost_expected": None, "is_at_risk": None, **facts,
    }  # fmt: skip


def trial_row(trial_id: int = 1, **facts: Any) -> dict[str, Any]:
    return {
        "trial_id": trial_id, "architecture": "mlp", "status": "running", "rank": 1, "metric": "accuracy",
        "validation_metric": None, "test_metric": None, "n_epochs_done": 0, "max_epochs": 3, "is_deployed": False,
        "config": {"learning_rate": 0.1}, "failure_reason": None, **facts,
    }  # fmt: skip


def slot_row(slot_id: int = 1, **facts: Any) -> dict[str, Any]:
    return {
        "slot_id": slot_id, "slot_name": f"slot-{slot_id}", "segment_name": "local", "device": "cpu",
        "n_threads": 1, "status": "busy",
        "run_id": 1, "trial_id": slot_id, "architecture": "mlp", "kind": "train", "epoch": 1, "partition_number": 0,
        "unit_seconds": 0.5, "lost_reason": None, **facts,
    }  # fmt: skip


def snapshot(**parts: Any) -> RunSnapshot:
    return RunSnapshot(**{"run": run_row(), "trials": [trial_row()], "slots": [slot_row()], "events": [], **parts})


def shown(taken: RunSnapshot, width: int = 100, height: int = 30) -> str:
    console = Console(file=StringIO(), width=width, height=height)
    console.print(screen(taken, height))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_failed_trials_leave_nothing_to_wait_for() -> None:
    assert snapshot(run=run_row(n_units_done=14, n_units_left=0)).share_done == 1.0
    assert snapshot(run=run_row(n_units_done=14, n_units_left=42)).share_done == 0.25
    assert snapshot(run=run_row(status="cancelled", n_units_left=0)).share_done == 0.25
    assert snapshot(run=run_row(status="finished", n_units_left=0)).share_done == 1.0


def test_changes_are_told_once() -> None:
    before = snapshot()
    after = snapshot(trials=[trial_row(n_epochs_done=1, validation_metric=0.9)])
    assert changes(before, after) == ["trial 1 (mlp): 1 of 3 epochs, best accuracy 0.9"]
    assert changes(after, after) == []


def test_events_and_the_end_are_told() -> None:
    end = snapshot(
        run=run_row(status="failed", failure_reason="all 2 trials failed"),
        events=[{"event_id": 5, "message": "trial 2 failed: NaN"}],
    )
    assert changes(snapshot(), end) == [
        "trial 2 failed: NaN",
        "run 1 failed: 14 of 56 units, all 2 trials failed",
    ]


def test_a_missing_coordinator_is_told_with_what_to_do() -> None:
    stuck = snapshot(run=run_row(status="interrupted"), slots=[slot_row(status="offline")])
    assert any("easeml up" in line for line in changes(snapshot(), stuck))
    assert "easeml coordinator" in shown(stuck)
    assert "set_slots" in shown(snapshot(slots=[]))


def test_a_slot_whose_session_cannot_be_opened_says_why() -> None:
    reason = "its session cannot be opened: service pg_east: there is no service of that name"
    stuck = snapshot(run=run_row(status="queued"), slots=[slot_row(status="waiting", lost_reason=reason)])
    assert any(reason in line for line in changes(snapshot(), stuck))
    assert reason in shown(stuck, width=200)


def test_time_left_follows_the_pace_and_the_limit() -> None:
    pace = ProgressRate()
    assert pace.seconds_left(run_row(), 100.0) is None
    assert pace.seconds_left(run_row(n_units_done=28, n_units_left=28), 110.0) == pytest.approx(20.0)
    limited = run_row(n_units_done=28, n_units_left=28, seconds_to_limit=3.0)
    assert pace.seconds_left(limited, 110.0) == 3.0
    assert pace.seconds_left(run_row(status="queued"), 111.0) is None


def test_a_forecast_says_when_the_run_is_done_and_what_it_costs() -> None:
    run = run_row(eta_seconds=90.0, eta_p95_seconds=125.0, cost_so_far=0.5, cost_expected=1.25)
    text = "about 1 min 30 s left, 95 % within 2 min 05 s, cost 0.50 of about 1.25"
    assert snapshot(seconds_left=50.0, run=run).left == text
    assert text in changes(None, snapshot(run=run))[-1]
    assert snapshot(run={**run, "is_at_risk": True}).left == f"{text}, deadline at risk"
    assert snapshot(seconds_left=50.0, run=run_row()).left == "about 50 s left"
    assert snapshot().left is None


@pytest.mark.parametrize(("cost", "text"), [(0.0, "0.00"), (0.0123, "0.012"), (0.1, "0.10"), (12.345, "12.35")])
def test_small_costs_keep_two_digits(cost: float, text: str) -> None:
    assert cost_text(cost) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (-1, "0 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_slot_between_two_units_keeps_its_last_one_on_smoothing() -> None:
    display = SlotSmoothing()
    idle = slot_row(status="idle", trial_id=None)
    display.steady([slot_row()], 10.0)
    assert display.steady([idle], 10.5)[0]["trial_id"] == 1
    assert display.steady([idle], 11.5)[0]["status"] == "idle"


def test_a_trial_is_never_on_display_in_two_slots() -> None:
    display = SlotSmoothing()
    display.steady([slot_row(1)], 10.0)
    moved = display.steady([slot_row(1, status="idle", trial_id=None), slot_row(2, trial_id=1)], 10.1)
    assert [slot["trial_id"] for slot in moved] == [None, 1]


def test_configs_show_what_differs_within_an_architecture() -> None:
    trials = [
        trial_row(1, config={"a": 1, "b": 2}),
        trial_row(2, config={"a": 1, "b": 3}),
        trial_row(3, architecture="lenet", config={"width": 1, "b": 2}),
    ]
    assert telling_configs(trials) == [{"b": 2}, {"b": 3}, {"b": 2}]
    assert telling_configs(trials[:1]) == [{"a": 1, "b": 2}]
    assert telling_configs([]) == []


def test_screen_shows_bar_slots_leaderboard_and_fits() -> None:
    many = snapshot(
        trials=[trial_row(i, validation_metric=0.5) for i in range(1, 31)],
        slots=[slot_row(i) for i in range(1, 41)],
        seconds_left=90.0,
    )
    text = shown(many)
    for part in ("25 %", "14 of 56 units", "1 min 30 s left", "training trial 3 mlp", "epoch 1/3", "+ 20 more"):
        assert part in text
    assert text.count("\n") <= 30


def test_other_roles_and_other_runs_show_as_such() -> None:
    slots = [slot_row(1, trial_id=None), slot_row(2, run_id=9)]
    text = shown(snapshot(slots=slots))
    assert "another role" in text
    assert "of run 9" in text


def test_markup_in_names_is_printed_as_it_is() -> None:
    assert "[red]x[/red]" in shown(snapshot(run=run_row(dataset_name="[red]x[/red]")))


# The demo


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_demo_statements_are_complete(name: str) -> None:
    for statement in STATEMENTS:
        assert "$" not in SUBJECTS[name].statement(statement, run_id=1)
    assert SUBJECTS[name].renamed().dataset != SUBJECTS[name].dataset


# The doctor

HERE = Environment(python="3.11.2", libraries="/env", closed_folder=None)
SERVER = {
    "version": "15.6", "major": 15, "database": "d", "installed_version": __version__,
    "available_version": __version__, "has_plpython3u": True,
    "config_file": "/etc/postgresql/15/main/postgresql.conf", "autovacuum_seconds": 1,
}  # fmt: skip


def facts(**changed: Any) -> dict[str, Any]:
    names = ("numpy", "torch", "safetensors", "easeml_plpy", "easeml_db", "sklearn")
    modules = {name: {"version": __version__, "file": f"/env/{name}/__init__.py"} for name in names}
    return {"python": "3.11.2", "modules": modules, "faults": {}, "devices": ["cpu"], **changed}


def test_a_sound_server_has_only_good_findings() -> None:
    findings = [check(SERVER) for check in (server_finding, plpython_finding, vacuum_finding, extension_finding)]
    findings += [python_finding(facts(), HERE), *module_findings(facts(), HERE, SERVER, is_private=False)]
    findings += slot_findings([slot_row()], facts(), 1)
    assert {finding.status for finding in findings} == {"ok"}


@pytest.mark.parametrize(("seconds", "said"), [(None, "autovacuum is off"), (60, "looks only every 60 s")])
def test_before_postgresql_17_pruned_states_need_autovacuum(seconds: int | None, said: str) -> None:
    found = vacuum_finding({**SERVER, "autovacuum_seconds": seconds})
    assert (found.status, said in found.message) == ("warn", True)
    assert vacuum_finding({**SERVER, "major": 17, "autovacuum_seconds": seconds}).status == "ok"


def test_missing_torch_names_the_line_for_debians_environment_file() -> None:
    broken = facts(faults={"torch": "ModuleNotFoundError: No module named 'torch'"})
    del broken["modules"]["torch"]
    (fault,) = [each for each in module_findings(broken, HERE, SERVER, is_private=False) if each.status == "fault"]
    assert fault.check == "torch"
    assert "/etc/postgresql/15/main/environment" in fault.todo
    assert "PYTHONPATH = '/env'" in fault.todo
    assert "pg_ctlcluster 15 main restart" in fault.todo


def test_a_servers_environment_is_told_as_the_guide_has_it_and_the_private_server_has_it() -> None:
    broken = facts(modules={}, faults={"torch": "ModuleNotFoundError"})
    (fault,) = module_findings(broken, HERE, SERVER, is_private=False)
    told = dict(line.split(" = ") for line in fault.todo.splitlines() if " = " in line)
    guide = (Path(__file__).parents[3] / "docs/guide.md").read_text(encoding="utf-8")
    own = {name: f"'{value}'" for name, value in server_environment().items()}
    assert told.pop("PYTHONPATH") == "'/env'"
    assert told["OPENBLAS_THREAD_TIMEOUT"] == "'4'"  # numpy's own: the others are those of OpenMP
    assert told == {name: own[name] for name in told}
    assert all(f"\n   {name} = {value}\n" in guide for name, value in told.items())


def test_an_environment_closed_to_the_server_is_told() -> None:
    closed = Environment(python="3.11.2", libraries="/root/env", closed_folder="/root")
    broken = facts(modules={}, faults={"torch": "ModuleNotFoundError"})
    findings = list(module_findings(broken, closed, {**SERVER, "config_file": None}, is_private=False))
    assert "/root" in findings[0].todo
    assert "/etc/postgresql/15/main/environment" in findings[0].todo


def test_another_version_in_the_server_is_a_fault() -> None:
    old = facts()
    old["modules"]["easeml_plpy"]["version"] = "0.0.1"
    (fault,) = [each for each in module_findings(old, HERE, SERVER, is_private=True) if each.status == "fault"]
    assert "0.0.1" in fault.message
    assert "easeml up" in fault.todo


def test_numpy_from_elsewhere_is_a_warning() -> None:
    mixed = facts()
    mixed["modules"]["numpy"]["file"] = "/usr/lib/python3/dist-packages/numpy/__init__.py"
    (warning,) = [each for each in module_findings(mixed, HERE, SERVER, is_private=False) if each.status != "ok"]
    assert (warning.check, warning.status) == ("numpy", "warn")
    assert "PYTHONPATH" in warning.todo


def test_another_python_is_a_fault_only_where_something_does_not_import() -> None:
    assert python_finding(facts(python="3.12.1"), HERE).status == "warn"
    assert python_finding(facts(python="3.12.1", faults={"torch": "ImportError"}), HERE).status == "fault"


@pytest.mark.parametrize(
    ("changed", "todo"),
    [
        ({"installed_version": None}, "CREATE EXTENSION easeml CASCADE"),
        ({"installed_version": None, "available_version": None}, "easeml install --files-only"),
        ({"installed_version": "0.0.1"}, "ALTER EXTENSION easeml UPDATE"),
    ],
)
def test_extension_faults_say_what_to_do(changed: dict[str, Any], todo: str) -> None:
    fault = extension_finding({**SERVER, **changed})
    assert fault.status == "fault"
    assert todo in fault.todo


def test_old_servers_and_missing_plpython_are_faults() -> None:
    assert server_finding({**SERVER, "major": 14, "version": "14.1"}).status == "fault"
    assert "postgresql-plpython3-15" in plpython_finding({**SERVER, "has_plpython3u": False}).todo


def test_slots_must_exist_fit_the_devices_and_the_cores() -> None:
    assert [each.status for each in slot_findings([], None, 2)] == ["fault"]
    gpu = list(slot_findings([slot_row(device="cuda:1")], facts(), 2))
    assert [each.status for each in gpu] == ["ok", "fault"]
    crowded = list(slot_findings([slot_row(1, n_threads=2), slot_row(2, n_threads=2)], facts(), 2))
    assert crowded[-1].todo == "SELECT easeml.set_slots(2, n_threads => 1);"


def test_slots_of_other_servers_name_devices_and_cores_of_those() -> None:
    far = [slot_row(1, segment_name="east", device="cuda:1"), slot_row(2, segment_name="east", n_threads=64)]
    assert [each.status for each in slot_findings(far, facts(), 2, {"east"})] == ["ok"]


def test_a_segment_that_is_refused_is_a_fault_that_names_it() -> None:
    local, east = ({"segment_name": name, "service": None, "refusal": None} for name in ("local", "east"))
    assert list(segment_findings([local])) == []
    (fit,) = segment_findings([local, east | {"service": "pg_east"}])
    assert (fit.status, fit.message) == ("ok", "nothing is known against east")
    (unfit,) = segment_findings([local, east | {"service": "pg_east", "refusal": "service pg_east: no"}])
    assert (unfit.status, unfit.message) == ("fault", "east trains nothing: service pg_east: no")
    assert unfit.todo == "easeml segment check east"


def test_what_a_service_may_do_on_a_node_beyond_its_work_is_told_with_its_remedy() -> None:
    able = {"role": "service", "is_superuser": False, "groups": [], "tables": [], "readers": ["easeml_reads_anna"]}
    assert list(service_findings("east", {}, {"easeml_reads_anna": "anna"})) == []
    assert list(service_findings("east", {"service": able}, {"easeml_reads_anna": "anna"})) == []
    more = {"is_superuser": True, "groups": ["anna"], "tables": ["public.sales"]}
    found = list(service_findings("east", {"service": able | more}, {"easeml_reads_ben": "ben"}))
    assert [finding.status for finding in found] == ["fault", "fault", "warn", "warn"]
    remedies = "\n".join(finding.todo for finding in found)
    assert "REVOKE anna FROM service;" in remedies
    assert "REVOKE ALL ON public.sales FROM service;" in remedies
    assert "easeml segment install SERVICE --reader ben" in remedies


def test_coordinators_must_live_and_have_this_version() -> None:
    alive = {
        "process_id": 7, "host": "h", "version": __version__, "heartbeat_age_seconds": 1.0, "stopped_at": None,
        "is_alive": True,
    }  # fmt: skip
    assert coordinator_finding(None, is_private=True).status == "fault"
    assert coordinator_finding({**alive, "is_alive": False}, is_private=False).status == "fault"
    assert coordinator_finding({**alive, "version": "0.0.1"}, is_private=True).status == "warn"
    assert coordinator_finding(alive, is_private=True).status == "ok"


def test_whoever_may_fill_the_lock_table_or_has_filled_it_is_named() -> None:
    assert [each.status for each in lock_findings({"max_locks": 512}, [], [])] == ["ok"]
    open_right = OpenRight("advisory locks", "REVOKE EXECUTE ON FUNCTION f() FROM PUBLIC;")
    rights, small = lock_findings({"max_locks": 64}, [open_right], [])
    assert (rights.status, small.status) == ("warn", "warn")
    assert rights.todo.endswith(open_right.statement)
    assert "max_locks_per_transaction = 512" in small.todo
    held = {"n_ended": 2, "most_locks": 9000, "capacity": 6400, "last_at": datetime(2030, 1, 2, tzinfo=timezone.utc)}
    _, ended, prepared = lock_findings(
        {"max_locks": 512}, [], [{**held, "role_name": "mallory"}, {**held, "role_name": ""}]
    )
    assert "2 session(s) of role mallory were ended" in ended.message
    assert "ROLLBACK PREPARED" in prepared.todo
    left = {**held, "n_ended": 0, "role_name": "shop", "database_name": "sales"}
    _, reported = lock_findings({"max_locks": 512}, [], [left])
    assert "a session of role shop in database sales was only reported" in reported.message


def test_a_server_that_debian_does_not_manage_gets_no_debian_path() -> None:
    broken = facts(modules={}, faults={"torch": "ModuleNotFoundError"})
    (fault,) = module_findings(broken, HERE, {**SERVER, "config_file": "/srv/pg/postgresql.conf"}, is_private=False)
    assert "/etc/postgresql" not in fault.todo
    assert "PYTHONPATH = '/env'" in fault.todo


# Slips


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(13, "Permission denied", "/srv/x"), "easeml: /srv/x: Permission denied\n"),
        (TimeoutError(), "easeml: TimeoutError\n"),
        (psycopg.OperationalError("the connection is\nlost"), "easeml: the connection is lost\n"),
        (psycopg.errors.DiskFull(), "easeml: DiskFull\n"),
    ],
)
def test_errors_of_the_machine_and_the_driver_are_told_in_a_line(
    error: Exception, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setitem(commands.commands, "fail", click.Command("fail", callback=fail))
    with pytest.raises(SystemExit) as ended:
        main(["fail"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(told)
    with pytest.raises(type(error)):
        main(["--debug", "fail"])


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commands.commands, "fail", click.Command("fail", callback=lambda: {}["x"]))
    with pytest.raises(KeyError):
        main(["fail"])


@pytest.mark.parametrize("command", ["status", "psql", "run"])
def test_a_private_server_that_has_never_started_is_told(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "easeml.json").write_text('{"binaries": "/usr/lib/postgresql/15/bin"}')
    monkeypatch.setenv("EASEML_DATA", str(tmp_path))
    monkeypatch.delenv("EASEML_DSN", raising=False)
    found = invoke(command).exception
    assert isinstance(found, NotReady)
    assert "has never started" in str(found)
    assert "easeml up" in (found.hint or "")


def test_extension_files_go_to_no_folder_that_is_no_servers(tmp_path: Path) -> None:
    found = invoke("install", "--files-only", "--bindir", str(tmp_path)).exception
    assert isinstance(found, NotFound)
    assert f"expected the folder of a server's pg_config, found none in {tmp_path}" in str(found)


def test_a_connection_string_that_is_none_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "leaderboard", "--dsn", "nonsense"])
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith("easeml: --dsn: expected a connection string: ")
    assert "hint: For example 'host=localhost" in told


def test_a_report_makes_no_folder_of_the_name_of_a_file(tmp_path: Path) -> None:
    result = invoke("run", "report", "--out", str(tmp_path / "x.pdf"), "--dsn", NOWHERE)
    assert isinstance(result.exception, InvalidArgument)
    assert "ends in .html or .png" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_help_lists_every_command_once_under_a_heading() -> None:
    shown = CliRunner().invoke(commands, ["--help"]).output
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", shown, re.MULTILINE)
    assert sorted(listed) == sorted(commands.commands)
    assert re.search(r"^Data:\n  load  ", shown, re.MULTILINE)


def test_an_engine_that_there_is_not_is_refused_before_anything_is_installed() -> None:
    done = CliRunner().invoke(commands, ["segment", "install", "nowhere", "--engine", "greenplm"])
    assert done.exit_code == 2
    assert "'greenplm' is not one of 'postgres', 'citus', 'greenplum'" in done.output


@pytest.mark.parametrize("text", ["{", "[]", "", "\xff"])
def test_a_damaged_file_of_facts_is_told_in_a_line(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "easeml.json").write_text(text, encoding="latin-1")
    with pytest.raises(SystemExit, match="1"):
        main(["status", "--data", str(tmp_path)])
    assert capsys.readouterr().err.startswith(f"easeml: {tmp_path / 'easeml.json'} is damaged")


@pytest.mark.parametrize("text", ["", "x", "0"])
def test_a_damaged_file_of_the_coordinators_number_names_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "coordinator.pid").write_text(text)
    assert find_coordinator(tmp_path) is None


def test_bytes_of_an_argument_that_are_no_text_are_told_in_a_line() -> None:
    with pytest.raises(UnicodeEncodeError) as raised:
        "d\udcff".encode()
    told = told_in_a_line(raised.value)
    assert told is not None
    assert told.message == "expected text in UTF-8, got d\udcff"
    with pytest.raises(UnicodeEncodeError) as raised:
        "ü".encode("ascii")
    assert told_in_a_line(raised.value) is None


def test_letters_that_the_terminal_does_not_know_are_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "中"
    folder.mkdir()
    remember(folder, port=1)
    command = [sys.executable, "-m", "easeml_db", "logs", "--data", str(folder)]
    shown = subprocess.run(
        command, cwd="/", env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, text=True, check=True
    )
    assert "\\u4e2d/server.log" in shown.stdout


def test_a_number_that_no_integer_holds_is_left_to_the_server() -> None:
    asked: list[Any] = []

    class Connection:
        def execute(self, _: object, values: Any) -> Any:
            asked.extend(values)
            return self

        def fetchone(self) -> None:
            return None

    call(Connection(), "select_models", "d", 2**31 - 1, max_epochs=2**31, is_new=True)  # type: ignore[arg-type]
    assert asked == ["d", 2**31 - 1, str(2**31), True]
