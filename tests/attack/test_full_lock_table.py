"""A role fills the lock table that all sessions of the server share: others train, predict and log in all the same.

The private server refuses it at once. On a server where everybody may still take locks, the service ends who takes too
many, and what fails meanwhile costs no trial an attempt. `make attack` also measures what the victim keeps.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from easeml_db.local.preparation import prepare_database
from tests.attack.conftest import TABLE, start_endless
from tests.fixtures.coordinators import coordinator_of
from tests.fixtures.databases import Janitor
from tests.fixtures.servers import temporary_server
from tests.fixtures.sessions import PATIENCE_SECONDS, Session

MANY_LOCKS = "SELECT count(pg_advisory_lock(i)) FROM generate_series(1, 1000000) i"
MANY_TABLES = (
    "DO $$ BEGIN FOR i IN 1..100000 LOOP EXECUTE format('CREATE TEMP TABLE t%s (x integer)', i); END LOOP; END $$"
)
MANY_OBJECTS = "SELECT count(lo_create(0)) FROM generate_series(1, 20000)"
UNLINK = "SELECT count(lo_unlink(oid)) FROM pg_largeobject_metadata WHERE lomowner = current_user::regrole"
OWN_TABLES = (
    "DO $$ BEGIN FOR i IN 1..7000 LOOP EXECUTE format('CREATE TABLE IF NOT EXISTS mallory.t%s ()', i);"
    " IF i % 100 = 0 THEN COMMIT; END IF; END LOOP; END $$"
)
LOCKS = "DO $$ BEGIN FOR i IN 1..7000 LOOP EXECUTE format('LOCK TABLE mallory.t%s', i); END LOOP; END $$"
# Who, what it needs beforehand, and what it does in a transaction that stays open.
WAYS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "advisory locks": ("outsider", (), (MANY_LOCKS,)),
    "temporary tables": ("outsider", (), (MANY_TABLES,)),
    "large objects": ("outsider", (MANY_OBJECTS,), (UNLINK,)),
    "locks of its own tables": ("mallory", (OWN_TABLES,), (LOCKS,)),
}


class Filler:
    """Does it again in a new session whenever its session is ended."""

    def __init__(self, dsn: str, before: tuple[str, ...], statements: tuple[str, ...]) -> None:
        self._dsn, self._before, self._statements = dsn, before, statements
        self._stop, self.n_sessions = threading.Event(), 0
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Filler:
        with psycopg.connect(self._dsn, autocommit=True) as session:
            for statement in self._before:
                session.execute(statement.encode())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _repeat(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(psycopg.Error), psycopg.connect(self._dsn, autocommit=True) as session:
                self.n_sessions += 1
                self._fill(session)

    def _fill(self, session: psycopg.Connection) -> None:
        session.execute("BEGIN")
        for statement in self._statements:
            if self._stop.is_set():
                return
            # Advisory locks of a session outlive the error that there is no room for more.
            with contextlib.suppress(psycopg.errors.OutOfMemory):
                session.execute(statement.encode())
        while not self._stop.wait(0.02):
            with contextlib.suppress(psycopg.errors.InFailedSqlTransaction):
                session.execute("SELECT 1")


@pytest.fixture(scope="module")
def foreign() -> Iterator[Session]:
    """A server with PostgreSQL's own settings and rights, coordinated; a victim trains, and mallory is a tenant."""
    with temporary_server() as server:
        with Session.open(server.dsn(database="postgres")) as session:
            session.execute("ALTER SYSTEM SET max_locks_per_transaction = 64")
            session.execute("ALTER SYSTEM SET max_connections = 100")
            session.execute("ALTER SYSTEM SET max_prepared_transactions = 10")
        server.restart()
        with Janitor(server, "easeml"), Session.open(server.dsn()) as root:
            prepare_database(root, n_slots=2)
            with coordinator_of(root):
                _settle(root)
                yield root


def _settle(root: Session) -> None:
    for name in ("victim", "mallory"):
        root.as_role(name, "easeml_tenant")
        root.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
    root.as_role("outsider")
    victim = root.as_role("victim")
    victim.execute(TABLE.format(name="rows"))
    victim.execute("SELECT easeml.create_dataset('work', 'rows', '{x}', 'y', n_partitions => 2)")
    run_id = start_endless(victim)
    root.wait_until("SELECT best_checkpoint_id IS NOT NULL FROM easeml.trials WHERE run_id = %s", run_id)


def steps(root: Session) -> int:
    """Count the victim's steps; the test, too, may find the table full."""
    return int(patiently(lambda: root.value("SELECT sum(n_steps_done)::bigint FROM easeml.trials WHERE run_id = 1")))


def patiently(act: Callable[[], object]) -> object:
    """Do something that may be refused for want of locks."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return act()
        except psycopg.Error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Watch:
    """Counts the victim's successes and refusals."""

    def __init__(self, root: Session) -> None:
        self._root, self._warm = root, root.as_role("victim")
        self._warm.execute("SELECT easeml.predict('work', ARRAY[1.0])")
        self.acts: dict[str, Callable[[], object]] = {
            "predictions": lambda: self._warm.execute("SELECT easeml.predict('work', ARRAY[1.0])"),
            "logins": lambda: psycopg.connect(make_conninfo(root.dsn, user="victim")).close(),
        }

    def rates(self, seconds: float) -> dict[str, float]:
        """Return steps a second, and the share of predictions and logins that were answered."""
        before, began = steps(self._root), time.monotonic()
        tried, done = dict.fromkeys(self.acts, 0), dict.fromkeys(self.acts, 0)
        while time.monotonic() < began + seconds:
            for name, act in self.acts.items():
                tried[name] += 1
                with contextlib.suppress(psycopg.Error):
                    act()
                    done[name] += 1
            time.sleep(0.05)
        elapsed = time.monotonic() - began
        return {"steps": (steps(self._root) - before) / elapsed, **{name: done[name] / tried[name] for name in tried}}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_whoever_fills_the_table_is_ended_and_costs_nobody_a_trial(
    foreign: Session, way: str, pytestconfig: pytest.Config
) -> None:
    seconds = pytestconfig.getoption("--attack-seconds", None) or 3.0
    foreign.execute("DELETE FROM easeml.lock_holders")
    watch = Watch(foreign)
    calm = watch.rates(seconds / 3)
    role, before, statements = WAYS[way]
    with Filler(make_conninfo(foreign.dsn, user=role), before, statements) as filler:
        _wait(lambda: filler.n_sessions >= 3)
        disturbed = watch.rates(seconds)
        begun = steps(foreign)
        _wait(lambda: steps(foreign) > begun + 3)
        for act in watch.acts.values():
            patiently(act)
    shares = {"steps": disturbed["steps"] / calm["steps"], **{name: disturbed[name] for name in watch.acts}}
    print(f"\n| {way} | " + " | ".join(f"{share:.2f}" for share in shares.values()) + " |")
    assert foreign.value("SELECT n_ended >= 2 FROM easeml.lock_holders WHERE role_name = %s", role)
    assert foreign.values("SELECT role_name::text FROM easeml.lock_holders") == [role], "nobody else is ended"
    assert foreign.value("SELECT count(*) FROM easeml.run_events WHERE kind IN ('retry', 'failed')") == 0
    assert foreign.values("SELECT DISTINCT lease_number FROM easeml.coordinators") == [1], "another coordinator"
    if pytestconfig.getoption("--attack-seconds", None):
        assert min(shares.values()) >= 0.5, shares


def test_superusers_and_who_holds_little_are_left_alone(foreign: Session) -> None:
    foreign.execute("DELETE FROM easeml.lock_holders")
    chief, small, large = foreign.again(), foreign.as_role("outsider"), foreign.as_role("outsider")
    chief.execute(MANY_LOCKS.replace("1000000", "4000"))
    small.execute("SELECT pg_advisory_lock(-i) FROM generate_series(1, 60) i")
    with contextlib.suppress(psycopg.Error):  # it may be ended at once
        large.execute("SELECT pg_advisory_lock(-i) FROM generate_series(1000, 3000) i")
    foreign.wait_until("SELECT count(*) > 0 FROM easeml.lock_holders")
    assert foreign.value("SELECT n_ended FROM easeml.lock_holders WHERE role_name = 'outsider'") == 1
    for session in (chief, small):
        assert session.value("SELECT count(*) > 0 FROM pg_locks WHERE pid = pg_backend_pid()")
        session.close()
    with pytest.raises(psycopg.Error):
        large.execute("SELECT 1")


def test_an_administrator_may_have_holders_reported_and_not_ended(foreign: Session) -> None:
    foreign.execute("DELETE FROM easeml.lock_holders")
    large = foreign.as_role("outsider")
    watch = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'easeml_service'"
    watch += " AND state = 'idle in transaction'"
    try:
        foreign.execute("ALTER ROLE easeml_service SET easeml.lock_holders = 'report'")
        foreign.wait_until(f"SELECT count(*) > 0 FROM ({watch}) ended")
        time.sleep(2)  # the session that looks is another one now
        large.execute("SELECT pg_advisory_lock(-i) FROM generate_series(1000, 6000) i")
        foreign.wait_until("SELECT count(*) > 0 FROM easeml.lock_holders")
        time.sleep(2)
        (holder,) = foreign.rows(
            "SELECT role_name::text AS role, n_ended, most_locks > 4000 AS n FROM easeml.lock_holders"
        )
        assert holder == {"role": "outsider", "n_ended": 0, "n": True}
        assert large.value("SELECT 1") == 1
    finally:
        large.close()
        foreign.execute("ALTER ROLE easeml_service RESET easeml.lock_holders")
        foreign.execute(watch)


def test_prepared_transactions_are_reported(foreign: Session) -> None:
    foreign.execute("DELETE FROM easeml.lock_holders")
    session = foreign.again()
    session.execute("BEGIN")
    session.execute("SELECT count(pg_advisory_xact_lock(i)) FROM generate_series(1, 4000) i")
    session.execute("PREPARE TRANSACTION 'forgotten'")
    try:
        foreign.wait_until("SELECT count(*) > 0 FROM easeml.lock_holders")
    finally:
        session.execute("ROLLBACK PREPARED 'forgotten'")
    (holder,) = foreign.rows("SELECT role_name::text AS role, n_ended FROM easeml.lock_holders")
    assert holder == {"role": "", "n_ended": 0}


def _wait(has_come: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not has_come():
        assert time.monotonic() < deadline
        time.sleep(0.05)
