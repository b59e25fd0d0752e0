"""Logs of a private server: kept short while others write into them, shown and followed all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_db.local import log_files
from easeml_db.local.facts_file import remember
from easeml_db.local.folder_contents import N_LOG_FILES, remove_entries
from easeml_db.local.log_files import Tail, keep_short, last_lines, shorten


@contextmanager
def writing(log: Path) -> Iterator[int]:
    """A log that somebody holds open, as servers do."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_long_log_is_emptied_while_it_is_written_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with writing(log) as descriptor:
        for number in range(9):
            os.write(descriptor, b"%d\n" % number * 50)
            shorten(log, 100)
            os.write(descriptor, b"after %d\n" % number)
            shorten(log, 100)
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(files) == ["server.log", *(f"server.log.{number}" for number in range(1, N_LOG_FILES))]
    assert files["server.log"] == "after 8\n"
    assert files["server.log.1"] == "after 7\n" + "8\n" * 50
    assert files["server.log.4"] == "after 4\n" + "5\n" * 50
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert last_lines(log, 3) == "8\n8\nafter 8"
    assert last_lines(log, 0) == ""
    remove_entries(tmp_path)
    assert not tmp_path.exists()


def test_a_short_log_and_one_that_is_not_there_are_left(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("short\n")
    shorten(tmp_path / "server.log", 100)
    shorten(tmp_path / "coordinator.log", 100)
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]
    assert last_lines(tmp_path / "coordinator.log") == ""


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    prey = tmp_path / "prey"
    prey.write_text("x" * 200)
    (tmp_path / "server.log").symlink_to(prey)
    with pytest.raises(OSError, match="symbolic links"):
        shorten(tmp_path / "server.log", 100)
    assert prey.read_text() == "x" * 200
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_costs_no_older_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "server.log").write_text("new" * 100)
    (tmp_path / "server.log.1").write_text("old")
    monkeypatch.setattr(log_files.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space"):
        shorten(tmp_path / "server.log", 100)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "server.log": "new" * 100, "server.log.1": "old"
    }  # fmt: skip


def test_whoever_follows_a_log_reads_every_line_once_also_where_it_is_shortened(tmp_path: Path) -> None:
    log, read = tmp_path / "server.log", []
    with writing(log) as descriptor:
        os.write(descriptor, b"old\n")
        tail = Tail(log)
        for number in range(40):
            os.write(descriptor, b"%d begins, " % number)
            if number % 3 == 0:
                read += tail.more()
            if number % 4 == 0:
                shorten(log, 20)
            os.write(descriptor, b"%d ends\n" % number)
            if number % 5 == 0:
                read += tail.more()
        read += tail.more()
    assert read == [f"{number} begins, {number} ends" for number in range(40)]


def test_logs_of_a_server_and_of_its_nodes_are_kept_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "nodes" / "east"
    node.mkdir(parents=True)
    long = [tmp_path / "server.log", tmp_path / "coordinator.log", node / "server.log"]
    for log in long:
        log.write_text("x" * 200)
    monkeypatch.setattr(log_files, "MAX_BYTES", 100)
    keep_short(tmp_path)
    deadline = time.monotonic() + 30
    while any(log.stat().st_size for log in long) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [log.with_name(f"{log.name}.1").read_text() for log in long] == ["x" * 200] * 3


@pytest.mark.parametrize(("lines", "told"), [("0", []), ("1", ["b"]), ("5", ["a", "b"])])
def test_logs_show_as_many_lines_as_are_asked_for(tmp_path: Path, lines: str, told: list[str]) -> None:
    remember(tmp_path, port=1)
    (tmp_path / "server.log").write_text("a\nb\n")
    result = CliRunner().invoke(commands, ["logs", "-n", lines, "--data", str(tmp_path)])
    heads = [f"==> {tmp_path / name}" for name in ("server.log", "coordinator.log")]
    assert result.stdout.splitlines() == [heads[0], *told, heads[1]]


def test_fewer_than_no_lines_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(commands, ["logs", "-n", "-3", "--data", str(tmp_path)])
    assert result.exit_code == 2
    assert "-3 is not in the range x>=0" in result.output


@pytest.mark.usefixtures("interruptible")
def test_logs_are_followed_until_ctrl_c(tmp_path: Path) -> None:
    remember(tmp_path, port=1)
    log = tmp_path / "server.log"
    command = [sys.executable, "-m", "easeml_db", "logs", "-f", "-n", "1", "--data", str(tmp_path)]
    with writing(log) as descriptor:
        os.write(descriptor, b"old\nlast\n")
        with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            assert process.stdout is not None
            seen = [process.stdout.readline() for _ in range(3)]
            assert seen == [f"==> {log}\n", "last\n", f"==> {tmp_path / 'coordinator.log'}\n"]
            for number in range(4):
                os.write(descriptor, b"line %d\n" % number)
                if number == 0:
                    assert process.stdout.readline() == f"==> {log}\n"
                assert process.stdout.readline() == f"line {number}\n"
                shorten(log, 1)
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == ""
            assert process.wait(30) == 130
