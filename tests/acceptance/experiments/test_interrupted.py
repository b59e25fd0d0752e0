"""Experiments that a signal ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


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
    process.communicate(timeout=300)
    assert process.returncode == 1
    assert not list(scratch_folder.iterdir())
