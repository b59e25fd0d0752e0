"""The server is away for seconds while nothing is under way: coordinators wait for it, and work when it is back."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from easeml_db.local.processes import server_environment
from easeml_db.local.server import Embedded

AWAY_SECONDS = 4.0
PREPARE = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 120) i;
SELECT easeml.create_dataset('points', 'points', '{x}', 'y', n_partitions => 2);
"""
RUN = "SELECT easeml.select_models('points', '{linear}', n_configs => 2, max_epochs => 1)"


@contextmanager
def coordinators(dsn: str, n: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Coordinator processes, killed at the end if they still run."""
    command = [sys.executable, "-m", "easeml_db", "coordinator", "--dsn", dsn]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(command, cwd="/", env=server_environment(), **quiet) for _ in range(n)]  # type: ignore[call-overload]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def ask(dsn: str, statement: str) -> Any:
    """The only value of a query."""
    with psycopg.connect(dsn, autocommit=True) as session:
        row = session.execute(statement.encode()).fetchone()
        return None if row is None else row[0]


def wait_until(dsn: str, statement: str, timeout_seconds: float = 300.0) -> None:
    deadline = time.monotonic() + timeout_seconds
    with psycopg.connect(dsn, autocommit=True) as session:
        while (row := session.execute(statement.encode()).fetchone()) is None or not row[0]:
            assert time.monotonic() < deadline, statement
            time.sleep(0.1)


def test_an_idle_coordinator_and_its_standby_outlive_a_server_that_is_away(own_server: Embedded) -> None:
    server, dsn = own_server, own_server.dsn()
    server.prepare(n_slots=1)
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(PREPARE)
    with coordinators(dsn, 2) as processes:
        wait_until(dsn, "SELECT easeml.has_live_coordinator()")
        before = ask(dsn, "SELECT lease_number FROM easeml.coordinator_lease")
        wait_until(dsn, "SELECT count(*) = 2 FROM pg_stat_activity WHERE application_name = 'easeml coordinator'")
        server.stop()
        time.sleep(AWAY_SECONDS)
        server.start()
        wait_until(dsn, f"SELECT lease_number > {before} FROM easeml.coordinator_lease")
        assert [process.poll() for process in processes] == [None, None]
        for _ in range(2):  # whoever holds the lease, then the one that takes over
            ask(dsn, RUN)
            wait_until(dsn, "SELECT bool_and(status = 'finished') FROM easeml.runs")
            holder = ask(dsn, "SELECT process_id FROM easeml.coordinators ORDER BY lease_number DESC LIMIT 1")
            next(process for process in processes if process.pid == holder).kill()
            processes = [process for process in processes if process.pid != holder]


HUNTED = """
SELECT backend_pid FROM easeml.slots WHERE unit_started_at IS NOT NULL
    AND backend_pid IN (SELECT pid FROM pg_stat_activity)
    AND trial_id = (SELECT trial_id FROM easeml.trials WHERE trial_number = 1 AND status <> 'failed')
"""


def test_a_unit_that_crashes_the_server_fails_its_trial_and_no_other_architecture(own_server: Embedded) -> None:
    server, dsn = own_server, own_server.dsn()
    server.prepare(n_slots=1)
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(
            "ALTER SYSTEM RESET synchronous_commit"
        )  # as users have it: what was asked for outlives a crash
        session.execute("SELECT pg_reload_conf()")
        session.execute(PREPARE.replace("120", "30000"))  # units that last long enough to be met
    with coordinators(dsn, 1) as (process,):
        wait_until(dsn, "SELECT easeml.has_live_coordinator()")
        ask(dsn, "SELECT easeml.select_models('points', '{linear,mlp}', n_configs => 2, max_epochs => 8)")
        deadline, reason, killed = time.monotonic() + 300.0, None, set[int]()
        while reason is None and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError, ProcessLookupError):  # the server restarts
                if (pid := ask(dsn, HUNTED)) is not None:
                    os.kill(pid, signal.SIGSEGV)
                    killed.add(pid)
                else:
                    reason = ask(dsn, "SELECT failure_reason FROM easeml.trials WHERE trial_number = 1")
            time.sleep(0.02)
        assert "the server restarted while this unit ran" in str(reason)
        assert len(killed) == 1
        assert ask(dsn, "SELECT count(*) FROM easeml.events WHERE kind = 'crashed'") == 1
        is_finished = None
        while not is_finished and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):  # from the last time that it was killed
                is_finished = ask(dsn, "SELECT status = 'finished' FROM easeml.trials WHERE trial_number = 2")
            time.sleep(0.1)
        assert is_finished
        assert process.poll() is None


BUSY = "SELECT count(*) FROM easeml.slots WHERE unit_started_at IS NOT NULL"
TWO_RUN = "SELECT easeml.select_models('points', '{linear}', n_configs => 2, max_epochs => 4)"


def prepare_long_units(server: Embedded) -> str:
    server.prepare(n_slots=2)
    with psycopg.connect(server.dsn(), autocommit=True) as session:
        session.execute("ALTER SYSTEM RESET synchronous_commit")
        session.execute("SELECT pg_reload_conf()")
        session.execute(PREPARE.replace("120", "30000"))
    return server.dsn()


def test_a_server_that_was_killed_as_a_whole_blames_no_trial(own_server: Embedded) -> None:
    dsn = prepare_long_units(own_server)
    with coordinators(dsn, 1) as (process,):
        wait_until(dsn, "SELECT easeml.has_live_coordinator()")
        ask(dsn, TWO_RUN)
        wait_until(dsn, f"SELECT ({BUSY}) = 2")
        postmaster = int((own_server.cluster / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(2.0)
        own_server.start()
        wait_until(dsn, "SELECT bool_and(status = 'finished') FROM easeml.runs")
        assert ask(dsn, "SELECT bool_and(status = 'finished') FROM easeml.trials")
        assert ask(dsn, "SELECT count(*) FROM easeml.events WHERE kind = 'crashed'") == 0
        assert ask(dsn, "SELECT count(*) FROM easeml.events WHERE kind = 'server away'") > 0
        assert process.poll() is None


class Proxy:
    """Stands between clients and a server's socket, and breaks connections: nobody is told."""

    def __init__(self, folder: Path, server: Embedded) -> None:
        name = f".s.PGSQL.{server.port}"
        self.dsn = psycopg.conninfo.make_conninfo(server.dsn(), host=str(folder))
        self._there = str(server.socket_folder / name)
        self._connections: list[tuple[bytes, socket.socket, socket.socket]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / name))
        self._listener.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, server = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._there)
            except OSError:
                client.close()
                continue
            start = client.recv(65536)
            self._connections.append((start, client, server))
            server.sendall(start)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=ends, daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def reset(self, of: bytes) -> None:
        """Break the connections whose first message names this."""
        for start, *ends in self._connections:
            if of in start:
                for end in ends:
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("of", [b"easeml slot 1", b"easeml"], ids=["one", "all"])
def test_connections_that_break_while_the_server_lives_blame_no_trial(
    own_server: Embedded, tmp_path: Path, of: bytes
) -> None:
    dsn = prepare_long_units(own_server)
    proxy = Proxy(tmp_path, own_server)
    with coordinators(proxy.dsn, 1) as (process,):
        wait_until(dsn, "SELECT easeml.has_live_coordinator()")
        ask(dsn, TWO_RUN)
        wait_until(dsn, f"SELECT ({BUSY}) = 2")
        proxy.reset(of)
        wait_until(dsn, "SELECT bool_and(status = 'finished') FROM easeml.runs")
        assert ask(dsn, "SELECT bool_and(status = 'finished') FROM easeml.trials")
        assert ask(dsn, "SELECT count(*) FROM easeml.events WHERE kind = 'crashed'") == 0
        assert process.poll() is None
