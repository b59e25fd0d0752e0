"""Servers, databases and roles for tests that need PostgreSQL.

One private server serves the whole session (each worker's own, where there are several: a copy of one that was
prepared and stopped); a template database with the extension is cloned for each test (or for each module, where its
tests do not disturb one another). A missing PostgreSQL or PL/Python fails loudly, and never skips.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from easeml_db.local.processes import coordinator_environment
from easeml_db.local.server import DATABASE, Embedded
from tests.disks import open_folder
from tests.warm_coordinator import Forked, end_parents, forked_coordinator
from tests.warm_server import HASH_SEED, SETTING, WarmServer, can_be_warm, leave_parents

# What is imported and collected stays: looking for garbage among it takes a tenth of that time.
gc.disable()
# Threads of several workers that spin for one another's cores take many times as long as one thread each.
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0")
# No test depends on how fast it is: Hypothesis would fail an example that takes 0.2 s beside other load.
# Half of its usual number of examples: every run of the suite draws others.
settings.register_profile("untimed", deadline=None, max_examples=50)
settings.load_profile("untimed")
TEMPLATE = "easeml_template"
# File by file, and not page by page through the log: a third of the time, where files lie in memory.
COPIED = "STRATEGY file_copy"
N_SLOTS = 2
# Nothing of a test has to survive a power failure.
FAST_SETTINGS = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum_naptime": "1h",
    "max_wal_size": "256MB",
}  # fmt: skip
# Folders whose tests take longest come first, so that no worker is left with one of them at the end.
FOLDERS = ("chaos", "acceptance", "integration", "attack", "conformance")
# A wait that ends in failure, not one that measures: long enough for a machine that is busy with other work.
PATIENCE_SECONDS = 300.0
# For a coordinator that is to make batches also where a unit takes longer than is worth one, beside other load.
BATCHES_AT_ANY_SPEED = """
from easeml_db.decisions.hopper import batches
batches.LONGEST_UNIT_SECONDS = batches.LONGEST_BATCH_SECONDS = 1e6
"""
Coordinator = Forked | subprocess.Popen[bytes]
_numbers = count(1)
_administrators: dict[Path, Session] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what has tests run as they do on a machine without a C compiler."""
    parser.addoption("--cold-sessions", action="store_true", help="sessions import torch themselves, as users' do")
    parser.addoption("--hash-seed", type=int, help="the seed of Python's hashes in sessions of warm servers")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed that sessions of warm servers share; workers inherit it."""
    if (chosen := config.getoption("--hash-seed")) is not None:
        os.environ[HASH_SEED] = str(chosen)
    os.environ.setdefault(HASH_SEED, str(random.SystemRandom().randrange(1, 2**32)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to repeat it."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"sessions of warm servers: --hash-seed {os.environ[HASH_SEED]}")


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


def pytest_sessionfinish() -> None:
    """End the processes that coordinators, methods of experiments and servers forked from."""
    end_parents()
    leave_parents()


class Session(psycopg.Connection[dict[str, Any]]):
    """An autocommit connection with dict rows that can open others to its database under other roles."""

    dsn: str
    children: ExitStack

    @classmethod
    def open(cls, dsn: str) -> Session:
        """Connect."""
        session = cls.connect(dsn, autocommit=True, row_factory=dict_row)  # type: ignore[arg-type]
        session.dsn, session.children = dsn, ExitStack()
        return session

    def close(self) -> None:
        """Close this connection and those made from it."""
        if hasattr(self, "children"):  # psycopg closes connections that never came about, too
            self.children.close()
        super().close()

    def rows(self, statement: Any, *values: Any, **named: Any) -> list[dict[str, Any]]:
        """All rows of a query."""
        return self.execute(statement, named or values or None).fetchall()

    def values(self, statement: Any, *values: Any) -> list[Any]:
        """The first column of all rows."""
        return [next(iter(row.values())) for row in self.rows(statement, *values)]

    def value(self, statement: Any, *values: Any) -> Any:
        """The only value of a query."""
        (only,) = self.values(statement, *values)
        return only

    def wait_until(self, statement: Any, *values: Any) -> None:
        """Wait until a query says true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            asked = time.monotonic()
            if self.value(statement, *values):
                return
            if asked > deadline:
                events = self.rows("SELECT kind, message FROM easeml.events ORDER BY event_id DESC LIMIT 20")
                pytest.fail(f"not within {PATIENCE_SECONDS} seconds: {statement} {values}; last events: {events}")
            # Asking again and again must not take the processor from what it waits for.
            time.sleep(max(0.05, 9 * (time.monotonic() - asked)))

    def again(self) -> Session:
        """A further session of the same role: a fresh server process."""
        session = Session.open(self.dsn)
        self.children.callback(session.close)
        return session

    def assert_slot_time_is_counted(self, run_id: int) -> None:
        """The slot time that trials count as they go is that of their recorded units."""
        counted = self.value("SELECT sum(slot_seconds) FROM easeml.trials WHERE run_id = %s", run_id)
        recorded = self.value("SELECT sum(seconds) FROM easeml.training_timeline WHERE run_id = %s", run_id)
        assert counted == pytest.approx(recorded, rel=1e-3)
        cost = self.value("SELECT cost_so_far FROM easeml.run_status WHERE run_id = %s", run_id)
        assert cost == pytest.approx(counted / 3600)

    def as_role(self, role: str, *groups: str) -> Session:
        """A session of another login role, made a member of these groups; it is created where it is missing."""
        if not self.rows("SELECT FROM pg_roles WHERE rolname = %s", role):
            self.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        for group in groups:
            self.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), sql.Identifier(role)))
        session = Session.open(make_conninfo(self.dsn, user=role))
        self.children.callback(session.close)
        return session


# Servers


@contextmanager
def temporary_server(snapshot: Path | None = None) -> Iterator[WarmServer]:
    """A private server in a folder of its own, removed at the end.

    It begins as a copy of a stopped one, with warm sessions; or empty, with sessions as users have them.
    """
    folder = open_folder()
    server = WarmServer(folder)
    try:
        if snapshot:
            copy_folder(snapshot, server.folder)
        server.start()
        if not snapshot:
            set_for_speed(server)
        yield server
    finally:
        if administrator := _administrators.pop(server.folder, None):
            administrator.close()
        server.remove()
        shutil.rmtree(server.folder, ignore_errors=True)  # with what tests have put there


def copy_folder(source: Path, target: Path) -> None:
    """Copy what is in a folder, with owners and modes."""
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)


def set_for_speed(server: Embedded) -> None:
    """Give a running server the settings of tests."""
    with Session.open(server.dsn(database="postgres")) as session:
        for name, value in FAST_SETTINGS.items():
            session.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        session.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def snapshot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stopped server with extension and slots in database easeml and in the template; made once for all workers."""
    own = tmp_path_factory.getbasetemp()
    made = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "server"
    users, me = made.with_suffix(".users"), str(os.getpid())
    users.mkdir(exist_ok=True)
    with _alone(users):
        (users / me).touch()
        if not made.exists():
            _make_snapshot(made, is_warm=can_be_warm() and not request.config.getoption("--cold-sessions"))
    yield made
    with _alone(users):
        (users / me).unlink()
        if not any(users.iterdir()):  # pytest keeps the folders of its last three runs
            shutil.rmtree(made.resolve().parent)
            made.unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other workers waiting during the block."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_snapshot(made: Path, *, is_warm: bool) -> None:
    with temporary_server() as server:
        server.prepare(n_slots=N_SLOTS)
        with Session.open(server.dsn(database="postgres")) as session:
            session.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE {DATABASE} {COPIED}")
            if is_warm:
                session.execute(SETTING)
            library = session.value("SELECT setting || '/plpython3.so' FROM pg_config WHERE name = 'PKGLIBDIR'")
        server.stop()
        finished = open_folder()
        if is_warm:
            server.equip(finished / "parent", library)
        facts = server.folder / "easeml.json"
        known = json.loads(facts.read_text(encoding="utf-8"))
        del known["port"]  # every copy listens on one of its own
        facts.write_text(json.dumps(known), encoding="utf-8")
        (finished / "server").mkdir()
        copy_folder(server.folder, finished / "server")
        made.symlink_to(finished / "server")


@pytest.fixture(scope="session")
def private_server(snapshot: Path) -> Iterator[Embedded]:
    """A running server without a coordinator; its template database has the extension and two slots."""
    with temporary_server(snapshot) as server:
        yield server


@pytest.fixture(scope="session")
def server(snapshot: Path) -> Iterator[Embedded]:
    """A server as `easeml up` leaves it: database easeml, extension, slots, and a coordinator beside it."""
    with temporary_server(snapshot) as server:
        server.start_coordinator()
        yield server


@pytest.fixture
def own_server() -> Iterator[Embedded]:
    """An empty server for one test, which may stop it."""
    with temporary_server() as server:
        yield server


@pytest.fixture
def own_warm_server(snapshot: Path) -> Iterator[Embedded]:
    """A server with extension and slots for one test, which may stop it."""
    with temporary_server(snapshot) as server:
        yield server


# Databases


@contextmanager
def temporary_database(server: Embedded, template: str = "template1") -> Iterator[str]:
    """Connection string of a fresh database, dropped at the end."""
    name = f"test_{next(_numbers)}"
    _administer(server, f"CREATE DATABASE {name} TEMPLATE {template} {COPIED}")
    try:
        yield server.dsn(database=name)
    finally:
        _drop(server, name)


def _drop(server: Embedded, name: str) -> None:
    """Drop a database; on a busy machine its sessions take longer to end than the server waits for them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            _administer(server, f"DROP DATABASE {name} WITH (FORCE)")
            return
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise


def _administer(server: Embedded, statement: str) -> None:
    """Execute a statement in the session that makes and drops databases of a server.

    A session of its own would take the processor for as long as the statement. A test may have restarted the server.
    """
    known = _administrators.get(server.folder)
    try:
        if known:
            known.execute(statement)
            return
    except psycopg.OperationalError:
        if not known.closed:
            raise
    _administrators[server.folder] = Session.open(server.dsn(database="postgres"))
    _administrators[server.folder].execute(statement)


@contextmanager
def temporary_session(server: Embedded) -> Iterator[Session]:
    """A superuser's session in a fresh database with the extension."""
    with temporary_database(server, TEMPLATE) as dsn, Session.open(dsn) as session:
        yield session


@contextmanager
def coordinator_of(session: Session, *arguments: str, prelude: str = "") -> Iterator[Coordinator]:
    """A coordinator process for a database, up when this is entered, killed at the end.

    `prelude` is Python that the process executes first, which is then a new one.
    """
    dsn = make_conninfo(session.dsn, user="easeml_service")
    told = ["coordinator", "--dsn", dsn, *arguments]
    with tempfile.TemporaryFile() as log:
        process: Coordinator
        if prelude:
            command = [sys.executable, "-c", f"{prelude}\nimport easeml_db.__main__", *told]
            # Not in the source tree: `python -c` would import from there.
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", env=coordinator_environment())
        else:
            process = forked_coordinator(told, log.fileno())
        try:
            _wait_until_up(session, process, log)
            yield process
        finally:
            process.kill()
            process.wait()


def _wait_until_up(session: Session, process: Coordinator, log: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not session.value("SELECT easeml.has_live_coordinator()"):
        if process.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            pytest.fail(f"the coordinator did not come up: {log.read().decode()}")
        time.sleep(0.05)


@pytest.fixture
def dsn(private_server: Embedded) -> Iterator[str]:
    """Connection string (superuser) of a fresh, empty database without the extension."""
    with temporary_database(private_server) as dsn:
        yield dsn


@pytest.fixture
def database(private_server: Embedded) -> Iterator[Session]:
    """A superuser's session in a fresh database with the extension and two slots."""
    with temporary_session(private_server) as session:
        yield session


@pytest.fixture(scope="session")
def open_session() -> Callable[[str], Session]:
    """`open_session(dsn)` connects to a database that is not one of the fixtures'."""
    return Session.open


@pytest.fixture
def connect_as(database: Session) -> Callable[..., Session]:
    """`connect_as(role, *groups)`: a session in `database` under a login role that is made where it is missing."""
    return database.as_role


@pytest.fixture
def coordinated(database: Session) -> Iterator[Session]:
    """`database` with a running coordinator."""
    with coordinator_of(database):
        yield database


@pytest.fixture(scope="module")
def module_database(request: pytest.FixtureRequest, private_server: Embedded) -> Iterator[Session]:
    """Like `database`, one for all tests of a module, with N_SLOTS slots where the module says so.

    Where nothing is about several slots, one is enough: a second one would import all libraries, too.
    """
    with temporary_session(private_server) as session:
        if (n_slots := getattr(request.module, "N_SLOTS", N_SLOTS)) != N_SLOTS:
            session.execute("SELECT easeml.set_slots(%s)", [n_slots])
        yield session


@pytest.fixture(scope="module")
def another_coordinator(request: pytest.FixtureRequest, module_database: Session) -> Iterator[Callable[[], None]]:
    """`another_coordinator()` kills the coordinator of `module_database`, if it has one, and starts another.

    Where the module has a PRELUDE, the coordinator executes it first.
    """
    with ExitStack() as running:

        def start() -> None:
            running.close()
            running.enter_context(coordinator_of(module_database, prelude=getattr(request.module, "PRELUDE", "")))

        yield start


@pytest.fixture(scope="module")
def module_coordinated(module_database: Session, another_coordinator: Callable[[], None]) -> Session:
    """`module_database` with a running coordinator."""
    another_coordinator()
    return module_database


@pytest.fixture
def swept(module_coordinated: Session) -> Iterator[Session]:
    """`module_coordinated`, with only the runs that a test asks for."""
    yield module_coordinated
    module_coordinated.execute(
        "SELECT easeml.cancel(run_id) FROM easeml.run_status WHERE status IN ('queued', 'running')"
    )
    module_coordinated.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")


@pytest.fixture(scope="session")
def coordinator() -> Callable[..., AbstractContextManager[Coordinator]]:
    """`with coordinator(database, *arguments):` runs one for as long as the block lasts."""
    return coordinator_of


@contextmanager
def _stopped(session: Session, slot_id: int) -> Iterator[None]:
    pid = _stop_while_it_trains(session, slot_id)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _stop_while_it_trains(session: Session, slot_id: int) -> int:
    """Stop a slot's process in the middle of a unit; return its number.

    A process that is stopped while it records would keep its locks from everybody, the test itself included.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    busy = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE application_name = %s AND state = 'active' AND datname = current_database()"
    )
    # One that reads may hold a lock within the server that no view shows: only one between statements is stopped.
    records = "SELECT count(*) FROM pg_locks WHERE pid = %s AND locktype <> 'virtualxid'"
    while time.monotonic() < deadline:
        for pid in session.values(busy, f"easeml slot {slot_id}"):
            os.kill(pid, signal.SIGSTOP)
            if session.values(busy, f"easeml slot {slot_id}") == [pid] and not session.value(records, pid):
                return int(pid)
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
    pytest.fail(f"slot {slot_id} never trains")


@pytest.fixture(scope="session")
def stopped() -> Callable[[Session, int], AbstractContextManager[None]]:
    """`with stopped(database, 1):` slot 1 takes no notice of anything for as long as the block lasts."""
    return _stopped


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Child processes of the test react to SIGINT: in the background a shell has the whole suite ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def scratch(module_database: Session) -> Iterator[Session]:
    """`module_database` within a transaction that is rolled back: nothing of the test stays."""
    with module_database.transaction(force_rollback=True):
        yield module_database
