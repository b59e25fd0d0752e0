"""Interrupts that Python prints and drops, because they fall where no exception can be raised."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from easeml_db.local.processes import run_to_end

# It interrupts itself in a destructor that runs as often as the first argument says, then waits to be ended.
COMMAND = """
import signal, sys, time
import click
from easeml_db.cli import commands, main

class Destroyed:
    def __del__(self):
        signal.raise_signal(int(sys.argv[2]))

def interrupt(number, frame):
    raise KeyboardInterrupt

def wait():
    for _ in range(int(sys.argv[1])):
        Destroyed()
    time.sleep(300)

signal.signal(int(sys.argv[2]), interrupt)
commands.add_command(click.Command("wait", callback=wait))
main(["wait"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("n_lost", [1, 3])
def test_an_interrupt_that_falls_into_a_destructor_ends_the_command(n_lost: int, number: signal.Signals) -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)" if number is signal.SIGTERM else ""
    command = [sys.executable, "-c", f"import signal\n{ignored}\n{COMMAND}", str(n_lost), str(int(number))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (ended.returncode, ended.stderr.strip()) == (1, "Aborted!")


def test_what_else_a_destructor_raises_is_still_printed() -> None:
    raising = COMMAND.replace("signal.raise_signal(int(sys.argv[2]))", "raise ValueError('of the destructor')")
    command = [sys.executable, "-c", raising.replace("time.sleep(300)", ""), "1", str(int(signal.SIGINT))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert ended.returncode == 0
    assert "ValueError: of the destructor" in ended.stderr


def test_a_program_that_has_just_begun_ends_with_whoever_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []
    begin = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def interrupted(program: subprocess.Popen[str], *arguments: object) -> None:
        begin(program, *arguments)
        pids.append(program.pid)
        signal.raise_signal(signal.SIGTERM)

    def end(number: int, frame: object) -> None:
        raise SystemExit(number)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", interrupted)
    former = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit):
            run_to_end(["sleep", "300"])
    finally:
        signal.signal(signal.SIGTERM, former)
    assert not Path("/proc", str(pids[0])).exists()
