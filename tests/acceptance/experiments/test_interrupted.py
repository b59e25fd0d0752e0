"""Experiments that a signal ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import open_folder


@pytest.fixture
def servers_folder() -> Iterator[Path]:
    """A folder that the server's user can enter; pytest's own are closed to it."""
    folder = open_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_experiment_leaves_nothing_behind(number: signal.Signals, servers_folder: Path) -> None:
    command = [sys.executable, "-m", "easeml_db", "experiments", "communication", "--quick"]
    environment = {**os.environ, "TMPDIR": str(servers_folder)}
    process = subprocess.Popen(
        command, cwd="/", env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "loading" in process.stderr.readline()
    assert list(servers_folder.glob("easeml-experiment-*"))
    process.send_signal(number)
    _, told = process.communicate(timeout=300)
    # Python ends itself by the signal where the interrupt has passed code compiled at run time, as in dataclasses.
    assert process.returncode in (1, -signal.SIGINT), told
    assert told.strip() == "Aborted!"
    assert not list(servers_folder.iterdir())
