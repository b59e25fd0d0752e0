"""A user at the shell: every command against a server with a coordinator."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from easeml_db.cli.demo.demo_subjects import SUBJECTS
from easeml_db.errors import NotFound, NotReady
from easeml_db.local.facts_file import remember
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator
from easeml_db.postgres.connection import connect_now
from tests.disks import open_folder

SMALL = ("--architectures", "mlp,linear", "--n-configs", "2", "--max-epochs", "1")
LONG = ("--architectures", "mlp", "--n-configs", "2", "--max-epochs", "5000")


@pytest.fixture(scope="module")
def shell(server: Embedded, run_easeml: Any) -> Iterator[Any]:
    """`shell("run", "--json")` runs a command against the server and returns click's result."""
    wait_for_coordinator(server)
    assert run_easeml("load", "digits", "--table", "cli_digits").exit_code == 0
    made = run_easeml(
        "dataset", "create", "cli digits", "--source", "cli_digits", "--inputs", "pixels", "--target", "label"
    )
    assert made.exit_code == 0, made.output
    yield run_easeml
    assert run_easeml("dataset", "drop", "cli digits", "--cascade").exit_code == 0


def document(result: Result) -> Any:
    """What a command printed, which must be one JSON document and nothing else."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def finished(shell: Any) -> int:
    """A run that has ended."""
    ended = document(shell("select", "cli digits", *SMALL, "--watch", "--json"))
    assert ended["run"]["status"] == "finished"
    return int(ended["run"]["run_id"])


@pytest.fixture
def open_run(shell: Any) -> Iterator[int]:
    """A run that goes on for longer than any test."""
    run_id = int(document(shell("select", "cli digits", *LONG, "--json"))["run_id"])
    yield run_id
    if run_id in [run["run_id"] for run in document(shell("run", "--json"))]:
        document(shell("run", "drop", run_id, "--force", "--json"))  # else every later test waits for its epochs


def process(server: Embedded, *arguments: object, **how: Any) -> subprocess.Popen[bytes]:
    """A command in a process of its own."""
    environment = {**os.environ, "EASEML_DATA": str(server.folder), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    environment.pop("EASEML_DSN", None)
    command = [sys.executable, "-m", "easeml_db", *map(str, arguments)]
    return subprocess.Popen(command, cwd="/", env=environment, **how)


def test_status_shows_how_to_connect(shell: Any) -> None:
    facts = document(shell("status", "--json"))
    assert facts["is_running"]
    assert facts["psql"].startswith("psql '")


def test_datasets_are_listed(shell: Any) -> None:
    (mine,) = [each for each in document(shell("dataset", "--json")) if each["dataset_name"] == "cli digits"]
    assert mine["input_shape"] == [8, 8]
    assert "cli digits" in shell("dataset").stdout


def test_datasets_are_made_refreshed_and_dropped(shell: Any) -> None:
    create = ("dataset", "create", "other", "--source", "cli_digits", "--inputs", "pixels", "--target", "label")
    assert document(shell(*create, "--n-partitions", 2, "--json"))["n_partitions"] == 2
    assert document(shell("dataset", "refresh", "other", "--json"))["version"] == 2
    assert document(shell("dataset", "drop", "other", "--json")) == {"dropped": "other"}


def test_a_refreshed_dataset_is_listed_with_how_often_it_is_checked(shell: Any, finished: int) -> None:
    assert document(shell("dataset", "refresh", "cli digits", "--every", "1 day", "--json"))["result"] == "refreshed"
    try:
        (rule,) = [
            each for each in document(shell("dataset", "refreshes", "--json")) if each["dataset_name"] == "cli digits"
        ]
        assert (rule["every"], rule["when_drift"]) == ("1 day", None)
        (row,) = [line for line in shell("dataset", "refreshes").stdout.splitlines() if line.startswith("cli digits")]
        assert "1 day " in row
        refused = shell("dataset", "refresh", "cli digits", "--when-drift", 0)
        assert "expected a positive number" in str(refused.exception)
    finally:
        document(shell("dataset", "refresh", "cli digits", "--off", "--json"))


def test_a_data_set_with_runs_is_dropped_only_with_cascade(shell: Any, finished: int) -> None:
    refused = shell("dataset", "drop", "cli digits")
    assert refused.exit_code == 1
    assert "run(s)" in str(refused.exception)


def test_select_prints_the_run_and_nothing_else(shell: Any) -> None:
    result = shell("select", "cli digits", *SMALL)
    assert result.stdout.strip().isdigit()
    assert "notice" in result.stderr
    assert shell("run", "watch", result.stdout.strip()).exit_code == 0


def test_runs_and_leaderboard_show_the_run(shell: Any, finished: int) -> None:
    assert finished in [run["run_id"] for run in document(shell("run", "--json"))]
    trials = document(shell("run", "leaderboard", finished, "--json"))
    assert [trial["rank"] for trial in trials] == [1, 2]
    assert all(trial["test_metric"] is not None for trial in trials)
    assert "mlp" in shell("run", "leaderboard", finished).stdout


def test_watch_without_a_terminal_prints_a_line_per_change(shell: Any, finished: int) -> None:
    result = shell("run", "watch", finished)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert f"run {finished} finished" in lines[-1]
    assert "\x1b" not in result.stdout


def test_cancel_resume_and_drop(shell: Any, open_run: int) -> None:
    assert document(shell("run", "cancel", open_run, "--json"))["status"] == "cancelled"
    assert shell("run", "watch", open_run).exit_code == 1
    assert document(shell("run", "resume", open_run, "--json"))["status"] in ("queued", "running")
    assert document(shell("run", "drop", open_run, "--force", "--json")) == {"dropped": open_run}
    assert "no run" in str(shell("run", "watch", open_run).exception)


def test_predict_a_row_as_object_and_as_numbers(shell: Any, finished: int) -> None:
    row = [[0] * 8] * 8
    by_numbers = document(shell("predict", "cli digits", "--row", json.dumps(row), "--json"))
    by_column = document(shell("predict", "cli digits", "--row", json.dumps({"pixels": row}), "--json"))
    assert by_numbers == by_column
    assert by_numbers["label"] in [str(digit) for digit in range(10)]
    every = document(shell("predict", "cli digits", "--row", json.dumps(row), "--probabilities", "--json"))
    assert max(every, key=every.get) == by_numbers["label"]
    shown = shell("predict", "cli digits", "--row", json.dumps(row), "--probabilities").stdout.splitlines()
    assert [line.split()[0] for line in shown] == sorted(every, key=lambda label: -every[label])


def test_predict_a_table_and_refuse_to_overwrite_it(shell: Any, finished: int) -> None:
    arguments = ("predict", "cli digits", "--source", "cli_digits", "--output", "cli_predicted", "--json")
    assert document(shell(*arguments))["n_rows"] == 1797
    assert shell(*arguments).exit_code == 1


def test_deploy_and_undeploy_choose_who_answers(shell: Any, finished: int) -> None:
    worst = document(shell("run", "leaderboard", finished, "--json"))[-1]["trial_id"]
    assert document(shell("deploy", worst, "--json"))["is_deployed"]
    row = json.dumps([[0] * 8] * 8)
    assert document(shell("predict", "cli digits", "--row", row, "--json"))["serving_trial_id"] == worst
    assert "deployed" in shell("run", "leaderboard", finished).stdout
    assert not document(shell("undeploy", "cli digits", "--json"))["is_deployed"]


def test_doctor_finds_a_sound_server_sound(shell: Any) -> None:
    report = document(shell("doctor", "--json"))
    assert report["is_healthy"]
    assert {"server", "plpython3u", "python", "torch", "slots", "coordinator"} <= {
        check["check"] for check in report["checks"]
    }


def test_doctor_sees_a_database_without_the_extension(shell: Any, server: Embedded) -> None:
    result = shell("doctor", "--json", "--dsn", server.dsn(database="postgres"))
    assert result.exit_code == 1
    faults = [check for check in json.loads(result.stdout)["checks"] if check["status"] == "fault"]
    assert ["CREATE EXTENSION easeml CASCADE" in fault["todo"] for fault in faults] == [True]


def test_doctor_for_a_role_without_rights_says_what_to_grant(shell: Any, server: Embedded) -> None:
    with connect_now(server.dsn()) as connection:
        connection.execute("CREATE ROLE cli_nobody LOGIN")
        connection.execute("GRANT CONNECT ON DATABASE easeml TO cli_nobody")
    result = shell("doctor", "--dsn", server.dsn(user="cli_nobody"))
    assert result.exit_code == 1
    assert "GRANT easeml_tenant TO cli_nobody" in result.stdout


def test_errors_are_one_line_with_a_hint_and_no_traceback(server: Embedded, shell: Any) -> None:
    failed = process(server, "select", "nothing", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = failed.communicate(timeout=30)
    assert failed.returncode == 1
    assert output == b""
    assert errors.decode().startswith("easeml: there is no dataset 'nothing'")
    assert "Traceback" not in errors.decode()


def test_a_database_without_the_extension_says_so(shell: Any, server: Embedded) -> None:
    result = shell("run", "--dsn", server.dsn(database="postgres"))
    assert isinstance(result.exception, NotReady)
    assert "no extension easeml" in result.exception.message
    assert "easeml install" in (result.exception.hint or "")


def test_a_folder_whose_programs_are_gone_is_told_and_can_be_destroyed(own_server: Embedded, run_easeml: Any) -> None:
    remember(own_server.folder, binaries="/usr/lib/postgresql/1/bin")
    data = ("--data", own_server.folder)
    assert own_server.is_running()
    refused = run_easeml("down", *data).exception
    assert isinstance(refused, NotFound)
    pid = int((own_server.cluster / "postmaster.pid").read_text().splitlines()[0])
    assert f"kill -INT {pid}" in str(refused)
    os.kill(pid, signal.SIGINT)
    while own_server.is_running():
        time.sleep(0.05)
    assert not document(run_easeml("status", *data, "--json"))["is_running"]
    assert f"start with   easeml up --data {own_server.folder}" in run_easeml("status", *data).output
    refused = run_easeml("up", *data).exception
    assert isinstance(refused, NotFound)
    assert "there is no pg_ctl in /usr/lib/postgresql/1/bin" in str(refused)
    assert run_easeml("destroy", "--yes", *data).exit_code == 0
    assert not own_server.folder.exists()


def test_destroy_asks_and_removes_a_private_server(own_server: Embedded, run_easeml: Any) -> None:
    assert run_easeml("destroy", "--data", own_server.folder).exit_code == 1
    assert own_server.is_running()
    done = run_easeml("destroy", "--yes", "--data", own_server.folder)
    assert done.exit_code == 0, done.output
    assert not own_server.folder.exists()
    refused = run_easeml("destroy", "--yes", "--data", own_server.folder).exception
    assert isinstance(refused, NotReady)
    assert "no private server" in str(refused)
    assert refused.hint == f"Start one: easeml up --data {own_server.folder}"


def test_two_that_start_one_server_at_once_find_one_server() -> None:
    parent = open_folder()
    folder = parent / "server"
    try:
        command = ("up", "--slots", "1", "--data", folder, "--json")
        both = [process(Embedded(folder), *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        told = [each.communicate(timeout=120) for each in both]
        assert [each.returncode for each in both] == [0, 0], told
        first, second = (json.loads(output) for output, _ in told)
        assert first == second
        assert first["is_running"]
        assert not list(folder.glob("cluster.unfinished-*"))
        command = ("destroy", "--yes", "--data", folder)
        ends = [process(Embedded(folder), *command, stderr=subprocess.PIPE) for _ in range(2)]
        errors = [each.communicate(timeout=120)[1].decode() for each in ends]
        assert sorted(each.returncode for each in ends) in ([0, 0], [0, 1]), errors
        assert not any("Traceback" in error for error in errors)
        assert not folder.exists()
    finally:
        if folder.exists():
            Embedded(folder).remove()
        shutil.rmtree(parent, ignore_errors=True)


@pytest.mark.usefixtures("interruptible")
def test_watch_in_a_terminal_is_live_and_ctrl_c_leaves_the_run_going(
    server: Embedded, shell: Any, open_run: int
) -> None:
    ours, theirs = pty.openpty()
    viewer = process(
        server, "run", "watch", open_run, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = read_until(ours, b"training trial")
    viewer.send_signal(signal.SIGINT)
    seen += read_until(ours, b"easeml run cancel")
    os.close(ours)
    assert viewer.wait(10) == 130
    assert b"goes on" in seen
    assert document(shell("run", "--json"))[0]["status"] == "running"


def read_until(terminal: int, text: bytes) -> bytes:
    """Read what a terminal shows until it shows a text."""
    seen, deadline = b"", time.monotonic() + 30
    while text not in seen and time.monotonic() < deadline:
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
    assert text in seen, seen.decode(errors="replace")
    return seen


def test_logs_show_both_logs(shell: Any, server: Embedded) -> None:
    shown = shell("logs").stdout
    assert str(server.folder / "server.log") in shown
    assert "coordinator is up" in shown


@pytest.mark.slow
def test_the_demo_runs_twice(server: Embedded, shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for max_epochs, least_accuracy in ((SUBJECTS["digits"].max_epochs, 0.9), (1, 0.2)):
        monkeypatch.setitem(SUBJECTS, "digits", replace(SUBJECTS["digits"], max_epochs=max_epochs))
        result = shell("demo", "digits", "--data", Path(server.folder))
        assert result.exit_code == 0, result.output
        accuracy = float(result.stdout.split("accuracy\n")[-1].split()[2])
        assert accuracy > least_accuracy
        assert "psql 'host=" in result.stdout
        steps = [re.match(r"\S+ ([a-z-]+(?: [a-z-]+)*)", line) for line in result.stdout.strip().splitlines()[-3:]]
        assert all(step is not None and shell(*step[1].split(), "--help").exit_code == 0 for step in steps), steps
    assert "is there from before" in result.stdout
