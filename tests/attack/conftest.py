"""A served database under attack: a tenant who works, and others who try to keep it from working.

In `make test` an attack lasts until the victim has got on a little, which it must do while the attack is still under
way. `make attack` gives each one a minute, and measures.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

TABLE = """
CREATE TABLE {name} AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, (ARRAY['red', 'green', 'blue'])[1 + i % 3] AS y
FROM generate_series(1, 240) i
"""
PART_SECONDS = 2.5
# A steady load where speed is measured: being kept waiting counts, not who has more processors.
MEASURED_PAUSE_SECONDS = 0.1
PAUSE_SECONDS = 0.02
# Two milliseconds of work by which the processor's own speed is known: that of a rented one changes by the minute.
YARDSTICK = b"x" * 8_000_000
# Far more than is ever trained: the runs below never end by themselves.
ENDLESS = 1_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what makes the long form of the attacks."""
    parser.addoption("--attack-seconds", type=float, help="how long each nuisance lasts; without it, until progress")
    parser.addoption("--attack-rows", type=int, default=200, help="how many random requests the fuzzer sends")


@dataclass
class Scene:
    """A served database, a victim whose run is under way, and the connection strings of everybody else."""

    root: Session
    victim: Session
    reader: Session
    victim_run: int
    actors: dict[str, str] = field(default_factory=dict)

    def n_steps(self) -> int:
        """Steps that the victim's trials have recorded."""
        return int(
            self.root.value("SELECT sum(n_steps_done)::bigint FROM easeml.trials WHERE run_id = %s", self.victim_run)
        )

    def end_runs(self, tenant: str) -> None:
        """Cancel the open runs of a tenant."""
        open_runs = "SELECT run_id FROM easeml.runs WHERE tenant = %s AND status IN ('queued', 'running')"
        for run_id in self.root.values(open_runs, tenant):
            with suppress(psycopg.DatabaseError):  # it has ended meanwhile
                self.root.execute("SELECT easeml.cancel(%s)", [run_id])

    def predict(self) -> None:
        """Ask the victim's own trial for one prediction."""
        assert self.victim.value("SELECT easeml.predict('work', ARRAY[1.0])") in ("red", "green", "blue")

    def read(self) -> None:
        """Read what a reader reads."""
        assert self.reader.value("SELECT count(*) FROM easeml.leaderboard WHERE run_id = %s", self.victim_run) == 1
        assert self.reader.value("SELECT count(*) FROM easeml.run_status WHERE run_id = %s", self.victim_run) == 1


class Attack:
    """Sessions and threads of an attacker, from when they have done their worst until `stop` is called."""

    def __init__(self, actors: dict[str, str]) -> None:
        self._actors, self._ends, self._stop = actors, ExitStack(), threading.Event()
        self.refusals: list[str] = []

    def session(self, actor: str) -> psycopg.Connection[Any]:
        """Open a further session of an actor: outsider, reader or mallory."""
        session = psycopg.connect(self._actors[actor], autocommit=True)
        self._ends.callback(session.close)
        return session

    def attempt(self, session: psycopg.Connection[Any], statement: str, *values: Any) -> bool:
        """Run a statement that may well be refused; say whether it was let through."""
        try:
            session.execute(statement, values or None)  # type: ignore[arg-type]
        except psycopg.Error as error:
            self.refusals.append(str(error).splitlines()[0])
            return False
        return True

    def hold(self, actor: str, *statements: str) -> None:
        """Run statements in a transaction that stays open until the attack ends."""
        session = self.session(actor)
        session.execute("BEGIN")
        for statement in statements:
            self.attempt(session, "SAVEPOINT s")
            if not self.attempt(session, statement):
                self.attempt(session, "ROLLBACK TO s")

    def repeat(self, actor: str, *statements: str, n_sessions: int = 1) -> None:
        """Run statements again and again until the attack ends; wait until each session has tried them once."""
        begun = [self._repeat(actor, statements) for _ in range(n_sessions)]
        for thread, has_begun in begun:
            while not has_begun.wait(0.05):
                assert thread.is_alive(), self.refusals

    def _repeat(self, actor: str, statements: Sequence[str]) -> tuple[threading.Thread, threading.Event]:
        session, has_begun = self.session(actor), threading.Event()

        def again() -> None:
            while not self._stop.is_set():
                for statement in statements:
                    self.attempt(session, statement)
                has_begun.set()

        thread = threading.Thread(target=again, daemon=True)
        self._ends.callback(thread.join, 60)
        self._ends.callback(session.cancel_safe, timeout=5)
        thread.start()
        return thread, has_begun

    def stop(self) -> None:
        """End all of it."""
        self._stop.set()
        self._ends.close()


@pytest.fixture(scope="module")
def scene(module_coordinated: Session, pytestconfig: pytest.Config) -> Scene:
    """A coordinator serves two slots; the victim's endless run of one trial has measured an epoch."""
    root = module_coordinated
    if pytestconfig.getoption("--attack-seconds"):  # in an hour without vacuum everything would become slower
        root.execute("ALTER SYSTEM RESET autovacuum_naptime")
        root.execute("SELECT pg_reload_conf()")
    victim = root.as_role("victim", "easeml_tenant")
    mallory = root.as_role("mallory", "easeml_tenant")
    for name, session in (("victim", victim), ("mallory", mallory)):
        root.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
        session.execute(TABLE.format(name="rows"))
        session.execute("SELECT easeml.create_dataset('work', 'rows', '{x}', 'y', n_partitions => 2)")
    run_id = start_endless(victim)
    actors = {role: make_conninfo(root.dsn, user=role) for role in ("mallory", "outsider")}
    root.as_role("outsider")
    scene = Scene(root, victim, root.as_role("rita", "easeml_reader"), run_id, actors)
    root.wait_until("SELECT best_checkpoint_id IS NOT NULL FROM easeml.trials WHERE run_id = %s", run_id)
    scene.predict()
    return scene


def start_endless(session: Session) -> int:
    """Start a run of one trial that never ends by itself; return its number."""
    return int(
        session.value(
            f"SELECT easeml.select_models('work', '{{linear}}', n_configs => 1, max_epochs => {ENDLESS}, seed => 1)"
        )
    )


@pytest.fixture
def attack(scene: Scene) -> Iterator[Attack]:
    """An attack that is over when the test is; what mallory started goes with it, and the next need not wait for it."""
    attack = Attack(scene.actors)
    yield attack
    attack.stop()
    scene.end_runs("mallory")
    scene.root.execute("UPDATE easeml.tenant_roles SET paced_until = NULL")


class Watch:
    """What the victim and a reader get done: steps by the service, predictions and reads by threads of theirs."""

    def __init__(self, scene: Scene, pause_seconds: float) -> None:
        self._scene, self._pause_seconds, self._stop = scene, pause_seconds, threading.Event()
        self._fault: Exception | None = None
        self.counts = {"predictions": 0, "reads": 0}
        self._yardsticks, self._yardstick_seconds = 0, 0.0
        acts = {"predictions": scene.predict, "reads": scene.read, "yardsticks": self._measure}
        self._threads = [threading.Thread(target=self._repeat, args=pair, daemon=True) for pair in acts.items()]

    def _repeat(self, name: str, act: Callable[[], None]) -> None:
        try:
            while not self._stop.wait(self._pause_seconds):
                act()
                if name in self.counts:
                    self.counts[name] += 1
        except Exception as error:  # noqa: BLE001  raised again in the test's own thread
            self._fault = error

    def _measure(self) -> None:
        """Take the processor time of a computation that is always the same."""
        started = time.thread_time()
        zlib.crc32(YARDSTICK)
        self._yardstick_seconds += time.thread_time() - started
        self._yardsticks += 1

    def now(self) -> dict[str, int]:
        """Return the counts so far; raise what the victim or the reader met."""
        if self._fault:
            raise self._fault
        return {"steps": self._scene.n_steps(), **self.counts}

    def rates(self, seconds: float) -> dict[str, float]:
        """Return each count's growth per second over so many seconds, and the speed of the processor meanwhile."""
        before, started = self.now(), time.monotonic()
        measured, taken = self._yardsticks, self._yardstick_seconds
        time.sleep(seconds)
        elapsed = time.monotonic() - started
        rates = {name: (count - before[name]) / elapsed for name, count in self.now().items()}
        return {**rates, "processor": (self._yardsticks - measured) / (self._yardstick_seconds - taken)}

    def usual_rates(self, seconds: float) -> dict[str, float]:
        """Return the median over parts of that time: what happens in one of them, as a checkpoint, does not show."""
        n_parts = max(1, round(seconds / PART_SECONDS))
        found = [self.rates(seconds / n_parts) for _ in range(n_parts)]
        return {name: median(rates[name] for rates in found) for name in found[0]}


@contextmanager
def watching(scene: Scene, pause_seconds: float = PAUSE_SECONDS) -> Iterator[Watch]:
    """Have the victim and the reader work for as long as the block lasts."""
    watch = Watch(scene, pause_seconds)
    for thread in watch._threads:
        thread.start()
    try:
        yield watch
    finally:
        watch._stop.set()
        for thread in watch._threads:
            thread.join()


@pytest.fixture
def watch(scene: Scene, pytestconfig: pytest.Config) -> Iterator[Watch]:
    """The victim and the reader at work during a test."""
    is_measured = pytestconfig.getoption("--attack-seconds", None) is not None
    with watching(scene, MEASURED_PAUSE_SECONDS if is_measured else PAUSE_SECONDS) as watch:
        yield watch
