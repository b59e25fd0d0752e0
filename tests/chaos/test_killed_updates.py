"""The whole server is killed while the extension is updated: the database is wholly of one version, and goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db import __version__
from easeml_db.local.server import DATABASE, Embedded
from tests.fixtures.servers import FAST_SETTINGS, temporary_server
from tests.fixtures.sessions import Session
from tests.integration.catalogue.test_upgrades import RELEASED, finished, objects, rows_of, start
from tests.nodes import NodeServer

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from stored_rows.catalogue_rows import TINY, fill

if TYPE_CHECKING:
    Coordinator = Callable[[Session], AbstractContextManager[Any]]

N_SLOTS = 1
UPDATE = "ALTER EXTENSION easeml UPDATE"
VERSION = "SELECT extversion FROM pg_extension WHERE extname = 'easeml'"
WAITS = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
# What another transaction has in hand, so that the update waits: before it changes anything, among the functions, and
# when only privileges are left.
MOMENTS = (
    "LOCK TABLE easeml.checkpoints IN ACCESS SHARE MODE",
    "ALTER FUNCTION easeml.version() COST 7",
    "GRANT USAGE ON SCHEMA easeml TO PUBLIC",
)


@pytest.fixture(scope="module")
def killed() -> Iterator[Embedded]:
    """A server that may be killed: it writes down what it commits."""
    with temporary_server() as server:
        server.prepare(n_slots=2)
        with Session.open(server.dsn()) as session:
            for name in FAST_SETTINGS:
                session.execute(f"ALTER SYSTEM RESET {name}")
            session.execute("SELECT pg_reload_conf()")
        yield server


def kill(server: Embedded) -> None:
    """Kill every process of the server, and start it again."""
    NodeServer("killed", server, server.dsn()).kill()


def kill_while_it_waits(server: Embedded, dsn: str, moment: str, *statements: str) -> None:
    """Kill the server while a session executes these statements, at the moment when it waits for another."""
    with closing(Session.open(dsn)) as other, closing(Session.open(dsn)) as updating, ThreadPoolExecutor(1) as thread:
        other.execute("BEGIN")
        other.execute(moment)
        pid = updating.info.backend_pid
        under_way = thread.submit(updating.execute, "; ".join(statements))
        other.wait_until(WAITS, pid)
        kill(server)
        with pytest.raises(psycopg.OperationalError):
            under_way.result()


@pytest.fixture
def former(killed: Embedded) -> str:
    """Connection string of a database that has the released version, with rows in all tables."""
    with Session.open(killed.dsn(database="postgres")) as root:
        root.execute("CREATE DATABASE former")
    dsn = killed.dsn(database="former")
    with Session.open(dsn) as session:
        session.execute(f"CREATE EXTENSION easeml VERSION '{RELEASED[-1]}' CASCADE")
        fill(session, TINY)
    return dsn


def test_a_database_has_the_former_version_or_the_next_whenever_the_server_is_killed(
    killed: Embedded, former: str
) -> None:
    with Session.open(former) as session:
        before = objects(session), rows_of(session)
    for moment in MOMENTS:
        kill_while_it_waits(killed, former, moment, UPDATE)
        with Session.open(former) as session:
            assert session.value(VERSION) == RELEASED[-1]
            assert (objects(session), rows_of(session)) == before, moment
    with Session.open(former) as session:
        session.execute(UPDATE)
        kept = rows_of(session)
        kill(killed)
    with Session.open(former) as session, Session.open(killed.dsn()) as fresh:
        assert session.value(VERSION) == __version__
        assert objects(session) == objects(fresh)
        assert rows_of(session) == kept
        session.execute(UPDATE)


def test_an_update_that_waits_for_whom_it_keeps_waiting_lets_go_and_tries_again(database: Session) -> None:
    as_former = f"UPDATE pg_extension SET extversion = '{RELEASED[-1]}' WHERE extname = 'easeml'"
    database.execute(as_former)
    last = "SELECT max(oid)::regclass::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'r'"
    with closing(Session.open(database.dsn)) as reader, ThreadPoolExecutor(1) as thread:
        reader.execute("SET deadlock_timeout = '60s'")  # so it is the update that finds the circle
        reader.execute("BEGIN")
        reader.execute(f"LOCK TABLE {database.value(last)} IN ACCESS SHARE MODE")
        with closing(Session.open(database.dsn)) as updating:
            updating.execute("SET deadlock_timeout = '3s'")
            under_way = thread.submit(updating.execute, UPDATE)
            database.wait_until(WAITS, updating.info.backend_pid)
            reader.execute("SELECT FROM easeml.leaderboard")
            reader.execute("COMMIT")
            under_way.result()
    assert database.value(VERSION) == __version__


def test_an_update_that_waits_for_an_open_transaction_keeps_nobody_else_waiting(database: Session) -> None:
    database.execute(f"UPDATE pg_extension SET extversion = '{RELEASED[-1]}' WHERE extname = 'easeml'")
    last = "SELECT max(oid)::regclass::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'r'"
    with (
        closing(Session.open(database.dsn)) as holder,
        closing(Session.open(database.dsn)) as updating,
        ThreadPoolExecutor(1) as thread,
    ):
        with holder.transaction():
            holder.execute(f"LOCK TABLE {database.value(last)} IN ACCESS SHARE MODE")
            under_way = thread.submit(updating.execute, UPDATE)
            database.wait_until(WAITS, updating.info.backend_pid)
            database.execute("SET lock_timeout = '30s'")
            database.execute("SELECT FROM easeml.leaderboard")
        under_way.result()
    assert database.value(VERSION) == __version__


def test_a_run_goes_on_to_the_same_bytes_when_the_server_is_killed_in_an_update(
    killed: Embedded, coordinator: Coordinator
) -> None:
    ends = []
    # The server cannot be without the new version: the row that names it is all that is of the former one.
    as_former = f"UPDATE pg_extension SET extversion = '{RELEASED[-1]}' WHERE extname = 'easeml'"
    for name in ("undisturbed", "updated"):
        with Session.open(killed.dsn(database="postgres")) as root:
            root.execute(f"CREATE DATABASE {name} TEMPLATE {DATABASE}".encode())
        dsn = killed.dsn(database=name)
        with Session.open(dsn) as session:
            start(session)
            with coordinator(session) as process:
                if name == "updated":
                    session.wait_until("SELECT count(*) > 20 FROM easeml.training_units")
                    kill_while_it_waits(killed, dsn, MOMENTS[-1], "BEGIN", as_former, UPDATE)
                    with Session.open(dsn) as again, again.transaction():
                        again.execute(as_former)
                        again.execute(UPDATE)
                with Session.open(dsn) as again:
                    ends.append(finished(again))
                assert process.poll() is None
    assert ends[0] == ends[1]
