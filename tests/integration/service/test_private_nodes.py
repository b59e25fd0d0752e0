"""Private servers that are nodes of another: made and found again in its folder, stopped and removed with it."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from easeml_db.cli import commands
from easeml_db.local.nodes import SERVICES, nodes_of, remove_nodes, start_nodes, stop_nodes
from easeml_db.local.server import FORMER_IN_MEMORY, Embedded
from easeml_db.postgres.nodes.nodes import visited
from tests.disks import copy_folder, open_folder
from tests.fixtures.sessions import Session


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """The folder of a control server with one node, both made and stopped."""
    parent = open_folder()
    server = Embedded(parent / "server")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGSERVICEFILE", "")  # it is as before at the end
            try:
                server.start()
                start_nodes(server, ["east"])
            finally:
                stop_nodes(server)
                server.stop()
        yield server.folder
    finally:
        shutil.rmtree(parent)


@pytest.fixture
def control(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedded]:
    """A control server with one node, which run, in a copy of that folder."""
    monkeypatch.delenv("PGSERVICEFILE", raising=False)
    parent = open_folder()
    server = Embedded(parent / "server")
    try:
        server.prepare_folders()
        copy_folder(made, server.folder)
        server.start()
        start_nodes(server, nodes_of(server))
        yield server
    finally:
        CliRunner().invoke(commands, ["destroy", "--yes", "--data", str(server.folder)])
        parent.rmdir()
        os.environ.pop("PGSERVICEFILE", None)


def identity() -> str:
    """What the node calls itself, as the coordinator's role reads it through the service."""
    with visited("pg_east") as node:
        (row,) = node.execute("SELECT identity FROM easeml_segment.node").fetchall()
        return str(row["identity"])


def test_nodes_come_and_go_with_their_control_server(control: Embedded) -> None:
    services = control.folder / SERVICES
    assert stat.S_IMODE(services.stat().st_mode) == 0o600
    assert "password" not in services.read_text()
    before = identity()
    node = Embedded(control.folder / "nodes" / "east")
    assert CliRunner().invoke(commands, ["down", "--data", str(control.folder)]).exit_code == 0
    assert not node.is_running()
    start_nodes(control, nodes_of(control))
    assert node.is_running()
    assert identity() == before
    assert CliRunner().invoke(commands, ["destroy", "--yes", "--data", str(control.folder)]).exit_code == 0
    assert not control.folder.exists()


def test_a_node_that_was_killed_starts_when_the_last_of_its_processes_is_gone(control: Embedded) -> None:
    before, node = identity(), Embedded(control.folder / "nodes" / "east")
    first = int((node.cluster / "postmaster.pid").read_text().split()[0])
    with closing(Session.open(node.dsn())) as session:
        left = session.info.backend_pid
        os.kill(left, signal.SIGSTOP)
        os.kill(first, signal.SIGKILL)
        while node.is_running():
            time.sleep(0.05)
        log = node.folder / "server.log"

        def end() -> None:
            while FORMER_IN_MEMORY not in log.read_text():
                time.sleep(0.05)
            os.kill(left, signal.SIGKILL)

        with ThreadPoolExecutor(1) as thread:
            ended = thread.submit(end)
            start_nodes(control, ["east"])
            ended.result()
    assert identity() == before


def test_services_that_somebody_has_added_outlive_a_start(control: Embedded) -> None:
    services = control.folder / SERVICES
    with services.open("a") as file:
        file.write("[pg_far]\nhost=far.example.org\n")
    start_nodes(control, nodes_of(control))
    assert services.read_text().count("[pg_east]") == 1
    assert "[pg_far]\nhost=far.example.org\n" in services.read_text()


def test_a_coordinator_that_ran_before_its_nodes_finds_them(
    own_server: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGSERVICEFILE", raising=False)
    server = own_server
    server.prepare(n_slots=2)
    try:
        server.start_coordinator()
        start_nodes(server, ["east"])
        server.start_coordinator()
        with Session.open(server.dsn()) as session:
            session.execute("SELECT easeml.add_segment('east', service => 'pg_east'), easeml.add_slots(1, 'east')")
            looked = "SELECT num_nonnulls(checked_at, refusal) > 0 FROM easeml.segment_status WHERE service IS NOT NULL"
            session.wait_until(looked)
            assert session.values("SELECT refusal FROM easeml.segment_status WHERE service IS NOT NULL") == [None]
    finally:
        remove_nodes(server)
        os.environ.pop("PGSERVICEFILE", None)
