"""How all tests are collected and ordered; what they share is in `fixtures`, a file for each subject."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.fixtures.databases", "tests.fixtures.coordinators", "tests.fixtures.servers"]

# What is imported and collected stays: looking for garbage among it takes a tenth of that time.
gc.disable()
# Threads of several workers that spin for one another's cores take many times as long as one thread each.
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0")
# No test depends on how fast it is: Hypothesis would fail an example that takes 0.2 s beside other load.
# Half of its usual number of examples: every run of the suite draws others.
settings.register_profile("untimed", deadline=None, max_examples=50)
settings.load_profile("untimed")
# Folders whose tests take longest come first, so that no worker is left with one of them at the end.
FOLDERS = ("chaos", "acceptance", "integration", "attack", "conformance")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have one worker compile the tests while the others wait: in a fresh clone each would compile them all."""
    with Path(__file__).open(encoding="utf-8") as shared:
        if "PYTEST_XDIST_WORKER" in os.environ:
            try:
                fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(shared, fcntl.LOCK_SH)
                fcntl.flock(shared, fcntl.LOCK_UN)
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the folders that take longest first; within a folder the order stays random. Then look for garbage again."""
    order = {name: place for place, name in enumerate(FOLDERS)}
    items.sort(key=lambda item: order.get(item.path.relative_to(Path(__file__).parent).parts[0], len(order)))
    gc.freeze()
    gc.enable()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Child processes of the test react to SIGINT: in the background a shell has the whole suite ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
