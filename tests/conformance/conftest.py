"""Worlds that must keep what the coordinator's ports promise: one in memory, and one on a real PostgreSQL.

A test is a coroutine that is given a `world`; it runs on every world. A further engine adds a class and an entry of
WORLDS. `covers` names the port methods that a test is about; test_coverage.py finds methods that no test names.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.ports.messages import (
    Member,
    Message,
    Order,
    Piloted,
    RunChanged,
    SlotReady,
    SlotsChanged,
    TenantsChanged,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.decisions.planner.job import StageKey
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.run_plan import PlannedStage, RunPlan
from easeml_db.decisions.tenancy.opening import Opening, Standing
from easeml_db.decisions.tenancy.selector import PolicyDecision
from easeml_db.local.service import QueueInbox, WallClock
from easeml_db.postgres.ports import postgres_ports
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.run import Run, Search
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import unit_at
from tests import citus, greenplum
from tests.conftest import temporary_session
from tests.nodes import NODE_ROLE, service_file, two_nodes

if TYPE_CHECKING:
    from pathlib import Path

    from easeml_db.local.server import Embedded
    from easeml_db.postgres.nodes.node_cache import NodeCache
    from tests.conftest import Session

N_PARTITIONS, MAX_EPOCHS = 2, 2
PATIENCE_SECONDS = 120.0  # for a message, on a machine with much else to do
SILENCE_SECONDS = 0.5  # after which a message that must not come has not come
PREPARE = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 60) i;
SELECT easeml.create_dataset('points', 'points', '{x}', 'y', n_partitions => 2)
"""
ASK = """
SELECT easeml.select_models('points', '{linear,mlp}', procedure => %s, max_epochs => 2, search_space =>
    '{"linear": {"learning_rate": 0.1}, "mlp": {"learning_rate": 0.01, "hidden_units": [[8]]}}')
"""
ASK_FOR_TREES = """
SELECT easeml.select_models('points', '{lightgbm}', procedure => 'grid', max_epochs => 2, search_space =>
    '{"trees_per_epoch": 2, "num_leaves": [3]}')
"""
ASK_FOR_ALIKE = """
SELECT easeml.select_models('points', '{mlp}', procedure => 'grid', max_epochs => 2, allocation => 'batched',
    search_space => '{"learning_rate": [0.01, 0.02, 0.03], "hidden_units": [[8]], "batch_size": 2}')
"""
PLAN = """
UPDATE easeml.runs SET price_list = 'local' WHERE run_id = %(run)s;
INSERT INTO easeml.plans (run_id, tenant, revision, reason, is_within_limits, seconds_mean, seconds_p95, cost_mean,
    cost_p95)
SELECT run_id, tenant, 1, 'start', true, 10, 12, 0, 0 FROM easeml.runs WHERE run_id = %(run)s;
INSERT INTO easeml.planned_stages (run_id, tenant, revision, stage, label, arm, bracket, target_epochs, n_trials,
    n_epochs, instance_type, n_slots, n_instances, width, start_seconds, seconds_mean, seconds_p50, seconds_p95,
    cost_mean, cost_p95)
SELECT run_id, tenant, 1, 0, 'all', '', 0, 0, 2, 2, 'cpu slot', 2, 2, 1, 0, 10, 10, 12, 0, 0 FROM easeml.runs
WHERE run_id = %(run)s
"""
HOLD = """
SELECT FROM easeml.runs WHERE run_id = %(run)s FOR UPDATE;
SELECT FROM easeml.trials WHERE run_id = %(run)s FOR UPDATE;
SELECT FROM easeml.arms WHERE run_id = %(run)s FOR UPDATE
"""
# Worlds of other tests are on the same server.
BREAK = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE application_name = %s AND datname = current_database()
"""
UNITS = """
SELECT trial_id, kind, epoch, partition_number FROM easeml.training_timeline WHERE run_id = %s
ORDER BY trial_id, started_at, position
"""


class World(ABC):
    """The ports, and what tests do besides calling them: users ask for runs, things break, a coordinator takes over."""

    ports: Ports
    patience_seconds = PATIENCE_SECONDS

    @property
    @abstractmethod
    def lease_number(self) -> int:
        """The lease that the ports acquired last."""

    @abstractmethod
    def opened(self) -> Any:
        """Open the ports, and close them at the end."""

    def play(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test in an event loop of its own, between opening the ports and closing them."""

        async def play() -> None:
            async with self.opened():
                await test

        asyncio.run(play())

    @abstractmethod
    def ask_for_run(self, *, is_searched: bool = False) -> int:
        """Ask for a run of two arms with a trial each, of two partitions and two epochs; return its number."""

    @abstractmethod
    def ask_for_trees(self) -> int:
        """Ask for a run of one trial that takes both partitions at once; return its number."""

    @abstractmethod
    def ask_for_alike(self) -> int:
        """Ask for a run of three trials that may share a batch; return its number."""

    @abstractmethod
    def ask_for_plan(self) -> int:
        """Ask for a run that follows a plan of one stage on two slots of this server; return its number."""

    @abstractmethod
    def cancel_run(self, run_id: int) -> None:
        """Cancel a run."""

    @abstractmethod
    def resume_run(self, run_id: int) -> None:
        """Resume a cancelled run."""

    @abstractmethod
    def drop_run(self, run_id: int) -> None:
        """Remove a run and all that hangs on it."""

    @abstractmethod
    def pause_trials(self, run_id: int) -> None:
        """Put all trials where they stand after an epoch of a search that lets them wait there."""

    @abstractmethod
    def end_trials(self, run_id: int) -> None:
        """Put all trials where they stand at their end."""

    @abstractmethod
    def held(self, run_id: int) -> AbstractContextManager[None]:
        """Hold the rows of a run, as a user's transaction does."""

    @abstractmethod
    def take_over(self) -> None:
        """Let another coordinator draw the lease."""

    @abstractmethod
    def break_session(self, slot_id: int) -> None:
        """End the session of a slot."""

    @abstractmethod
    def run_status(self, run_id: int) -> str:
        """Return the status of a run."""

    @abstractmethod
    def trials(self, run_id: int) -> list[tuple[str, int]]:
        """Return status and progress of all trials, by number."""

    @abstractmethod
    def units(self, run_id: int) -> list[tuple[int, str, int, int]]:
        """Return trial, kind, epoch and partition of all recorded units."""

    @abstractmethod
    def events(self, run_id: int) -> list[str]:
        """Return the kinds of the events in a run's history."""

    @abstractmethod
    def charged(self, tenant: str) -> float:
        """Return the slot seconds of units that failed or were cancelled, for which a tenant was charged."""

    @abstractmethod
    def n_beliefs(self, run_id: int) -> int:
        """Count the arms of a run about which beliefs are recorded."""

    @abstractmethod
    def n_allocations(self, run_id: int) -> int:
        """Count the trial groups that are recorded."""

    @abstractmethod
    def plan(self, run_id: int) -> str | None:
        """Return the scheduler that a run was last planned with."""

    @abstractmethod
    def set_policy(self, policy: str) -> None:
        """Choose another tenancy policy."""

    # What tests ask of ports again and again

    async def message(self) -> Message:
        """Return the next message that is not about what users change."""
        message = await self.ports.inbox.next(self.patience_seconds)
        while isinstance(message, RunChanged | TenantsChanged | SlotsChanged):
            message = await self.ports.inbox.next(self.patience_seconds)
        assert message is not None, "no message came"
        return message

    async def silence(self) -> None:
        """Check that no message comes but about what users change."""
        message = await self.ports.inbox.next(SILENCE_SECONDS)
        while isinstance(message, RunChanged | TenantsChanged | SlotsChanged):
            message = await self.ports.inbox.next(SILENCE_SECONDS)
        assert message is None

    async def begin(self, n_slots: int = 1) -> None:
        """Acquire the lease and open so many slots at least. Whoever tests in a warm world finds both already."""
        await self.ports.lease.acquire()
        await self.open_slots(n_slots)

    async def ready(self, n_slots: int = 1) -> int:
        """Begin, with a run whose trials may train; return the run."""
        await self.begin(n_slots)
        return await self.opened_run()

    async def answer(self, order: Order) -> UnitRecorded | Piloted | UnitFailed:
        """Start an order, and return its answer."""
        await self.ports.executor.start(order)
        message = await self.message()
        assert isinstance(message, UnitRecorded | Piloted | UnitFailed)
        assert message.order == order
        return message

    async def open_slots(self, n_slots: int = 2) -> list[Slot]:
        """Open the sessions of the first slots and wait until they are warm."""
        slots = (await self.ports.slots.all_slots())[:n_slots]
        await self.ports.executor.open(slots)
        ready = {await self.message() for _ in slots}
        assert ready == {SlotReady(slot.slot_id) for slot in slots}
        return slots

    @staticmethod
    def opening(run: Run, arm: int = 0) -> Opening:
        """Return a decision to open an arm."""
        seen = {"bound": 0.9, "mean": 0.5, "deviation": 0.25, "cost": 1.0, "beta": 3.0, "best": 0.0, "gap": 0.9}
        decision = PolicyDecision(run.run_id, arm, "greedy", **seen, sig=float("nan"), score=0.9, pending=())
        standing = Standing(run.run_id, True, True, None, 0.9, 0.9, 0.0)
        memory = {"policy": {}, "unit_seconds": 2.0}
        return Opening(run.run_id, run.arms[arm].arm_id, "hybrid", decision, 2.0, 1, (), 1, (standing,), memory)

    async def opened_run(self, asked: int | None = None) -> int:
        """Ask for a run and open its arms: its trials may train."""
        run = await self.run(self.ask_for_run() if asked is None else asked)
        for arm in range(len(run.arms)):
            await self.ports.tenancy.open_arm(self.opening(run, arm))
        return run.run_id

    async def run(self, run_id: int) -> Run:
        """Read an open run."""
        run = await self.ports.runs.read(run_id)
        assert run is not None
        return run

    async def order(self, run_id: int, slot_id: int, *, step: int = 0, trial: int = 0) -> Order:
        """Return an order of a trial's unit, under the lease that the world last acquired."""
        unit = unit_at((await self.run(run_id)).trials[trial], step)
        return Order(unit, 7, slot_id, self.lease_number, 1)

    async def gang(self, run_id: int) -> Order:
        """Return an order of a gang of both slots over both partitions, of the trial that can train jointly."""
        run = await self.run(run_id)
        trial = next(k for k, each in enumerate(run.trials) if run.architectures[each.trial_id] == "mlp")
        first, second = [await self.order(run_id, slot, step=slot - 1, trial=trial) for slot in (1, 2)]
        return replace(first, members=(Member(second.unit, 8, 2),))

    async def whole_round(self, run_id: int, slot_id: int, *, step: int = 0) -> Order:
        """Return an order of both partitions at once on one slot, of a trial that takes them so."""
        first, second = [await self.order(run_id, slot_id, step=step + k) for k in range(N_PARTITIONS)]
        return replace(first, members=(Member(second.unit, 8, slot_id),))

    async def batch(self, run_id: int, slot_id: int, *, step: int = 0) -> Order:
        """Return an order of the same step of all trials on one slot."""
        first, *others = [await self.order(run_id, slot_id, step=step, trial=trial) for trial in range(3)]
        return replace(first, members=tuple(Member(each.unit, 8 + k, slot_id) for k, each in enumerate(others)))


class InMemory(World):
    """The simulated world."""

    def __init__(self) -> None:
        slots = [Slot(i, f"slot-{i}", 1) for i in (1, 2)]
        self._world = SimulatedWorld(slots, seconds_of=lambda unit, slot_id: 0.1, warm_seconds=0.1)
        self._process = SimulatedProcess(self._world)
        self.ports, self._tables, self._n_runs = self._process.ports, self._world.tables, 0

    @property
    def lease_number(self) -> int:
        return self._process.lease_number

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield
        await self.ports.executor.close()

    def ask_for_run(self, *, is_searched: bool = False) -> int:
        self._n_runs += 1
        names = ("linear", "mlp")
        run = new_run(self._n_runs, n_trials=2, n_partitions=N_PARTITIONS, max_epochs=MAX_EPOCHS, architectures=names)
        if is_searched:
            run = replace(run, search=Search("[]", None, "successive_halving", max_epochs=MAX_EPOCHS))
        self._world.add_run(run)
        return self._n_runs

    def ask_for_trees(self) -> int:
        self._n_runs += 1
        options = {"n_trials": 1, "n_partitions": N_PARTITIONS, "max_epochs": MAX_EPOCHS}
        self._world.add_run(new_run(self._n_runs, **options, architectures=("trees",)))
        return self._n_runs

    def ask_for_alike(self) -> int:
        self._n_runs += 1
        options = {"n_trials": 3, "n_partitions": N_PARTITIONS, "max_epochs": MAX_EPOCHS, "allocation": "batched"}
        self._world.add_run(new_run(self._n_runs, **options, batch_key_of=lambda number: "alike"))
        return self._n_runs

    def ask_for_plan(self) -> int:
        run_id = self.ask_for_run()
        stage = PlannedStage(StageKey(), "all", 2, "cpu slot", 2, 2, 1, 10.0, 12.0)
        prices = PriceList("local", (InstanceType("cpu slot", "cpu", 1, 1.0),))
        self._tables.plans_table.plans[run_id] = RunPlan(run_id, 1, (stage,), prices, "local", 0.0, 10.0, 12.0)
        return run_id

    def cancel_run(self, run_id: int) -> None:
        self._world.cancel_run(run_id)

    def resume_run(self, run_id: int) -> None:
        self._world.resume_run(run_id)

    def drop_run(self, run_id: int) -> None:
        self._world.drop_run(run_id)

    def pause_trials(self, run_id: int) -> None:
        self._set_trials(run_id, status="paused", n_steps_done=2 * N_PARTITIONS, target_epochs=1)

    def end_trials(self, run_id: int) -> None:
        self._set_trials(run_id, status="finished", n_steps_done=(2 * MAX_EPOCHS + 1) * N_PARTITIONS)

    def _set_trials(self, run_id: int, **values: Any) -> None:
        for trial in self._tables.run(run_id).trials:
            self._tables.trials[trial.trial_id] = replace(trial, **values)

    @contextmanager
    def held(self, run_id: int) -> Iterator[None]:
        self._tables.held.add(run_id)
        yield
        self._tables.held.discard(run_id)

    def take_over(self) -> None:
        self._tables.draw_lease()

    def break_session(self, slot_id: int) -> None:
        self._world.lose_slot(slot_id)

    def run_status(self, run_id: int) -> str:
        return self._tables.run(run_id).status

    def trials(self, run_id: int) -> list[tuple[str, int]]:
        return [(trial.status, trial.n_steps_done) for trial in self._tables.run(run_id).trials]

    def units(self, run_id: int) -> list[tuple[int, str, int, int]]:
        units = [row.order.unit for row in self._tables.units if row.order.unit.run_id == run_id]
        return [(unit.trial_id, unit.kind, unit.epoch, unit.partition_number) for unit in units]

    def events(self, run_id: int) -> list[str]:
        return [kind for kind, _ in self._tables.notes]

    def charged(self, tenant: str) -> float:
        return self._tables.charged[tenant]

    def n_beliefs(self, run_id: int) -> int:
        return len(self._tables.beliefs.get(run_id, ()))

    def n_allocations(self, run_id: int) -> int:
        return sum(len(log.groups) for run, _, log in self._tables.allocations if run == run_id)

    def plan(self, run_id: int) -> str | None:
        return next((scheduler for run, scheduler in reversed(self._tables.plans) if run == run_id), None)

    def set_policy(self, policy: str) -> None:
        self._world.set_tenancy(replace(self._tables.tenancy, policy=policy))


class OnPostgres(World):
    """A database of a real server, with the real stores and the real executor."""

    def __init__(self, database: Session) -> None:
        self._database = database
        database.execute(PREPARE)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        dsn = make_conninfo(self._database.dsn, user="easeml_service")
        async with postgres_ports(dsn, QueueInbox(), WallClock()) as ports:
            self.ports = ports
            yield
            await ports.executor.close()

    @property
    def lease_number(self) -> int:
        return self.ports.lease._session.lease_number  # type: ignore[attr-defined, no-any-return]

    def ask_for_run(self, *, is_searched: bool = False) -> int:
        procedure = "successive_halving" if is_searched else "grid"
        return int(self._database.value(ASK, procedure))

    def ask_for_trees(self) -> int:
        return int(self._database.value(ASK_FOR_TREES))

    def ask_for_alike(self) -> int:
        return int(self._database.value(ASK_FOR_ALIKE))

    def ask_for_plan(self) -> int:
        run_id = self.ask_for_run()
        for statement in PLAN.split(";"):
            self._database.execute(statement, {"run": run_id})  # type: ignore[call-overload]
        return run_id

    def cancel_run(self, run_id: int) -> None:
        self._database.execute("SELECT easeml.cancel(%s)", [run_id])

    def resume_run(self, run_id: int) -> None:
        self._database.execute("SELECT easeml.resume(%s)", [run_id])

    def drop_run(self, run_id: int) -> None:
        self._database.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])

    def pause_trials(self, run_id: int) -> None:
        self._database.execute(
            "UPDATE easeml.trials SET target_epochs = 1, best_epoch = 1, best_metric_value = 0.5 WHERE run_id = %s",
            [run_id],
        )
        self._set_trials(run_id, "paused", 2 * N_PARTITIONS)

    def end_trials(self, run_id: int) -> None:
        self._set_trials(run_id, "finished", (2 * MAX_EPOCHS + 1) * N_PARTITIONS)

    def _set_trials(self, run_id: int, state: str, n_steps_done: int) -> None:
        for values in (("running", 0), (state, n_steps_done)):
            self._database.execute(
                "UPDATE easeml.trials SET status = %s, n_steps_done = %s WHERE run_id = %s", [*values, run_id]
            )

    @contextmanager
    def held(self, run_id: int) -> Iterator[None]:
        other = self._database.again()
        with other.transaction(force_rollback=True):
            for statement in HOLD.split(";"):
                other.execute(statement, {"run": run_id})  # type: ignore[call-overload]
            yield

    def take_over(self) -> None:
        self._database.execute("UPDATE easeml.coordinator_lease SET lease_number = lease_number + 1")

    def break_session(self, slot_id: int) -> None:
        self._database.execute(BREAK, [f"easeml slot {slot_id}"])

    def run_status(self, run_id: int) -> str:
        return str(self._database.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id))

    def trials(self, run_id: int) -> list[tuple[str, int]]:
        rows = self._database.rows(
            "SELECT status, n_steps_done FROM easeml.trials WHERE run_id = %s ORDER BY trial_number", run_id
        )
        return [(row["status"], row["n_steps_done"]) for row in rows]

    def units(self, run_id: int) -> list[tuple[int, str, int, int]]:
        return [tuple(row.values()) for row in self._database.rows(UNITS, run_id)]  # type: ignore[misc]

    def events(self, run_id: int) -> list[str]:
        return self._database.values("SELECT kind FROM easeml.events WHERE run_id = %s ORDER BY event_id", run_id)

    def charged(self, tenant: str) -> float:
        seconds = "SELECT dropped_seconds FROM easeml.tenant_usage WHERE tenant = %s"
        return float(self._database.value(seconds, tenant))

    def n_beliefs(self, run_id: int) -> int:
        return int(self._database.value("SELECT count(*) FROM easeml.posteriors WHERE run_id = %s", run_id))

    def n_allocations(self, run_id: int) -> int:
        return int(self._database.value("SELECT count(*) FROM easeml.trial_groups WHERE run_id = %s", run_id))

    def plan(self, run_id: int) -> str | None:
        (scheduler,) = self._database.values("SELECT planned_scheduler FROM easeml.runs WHERE run_id = %s", run_id)
        return None if scheduler is None else str(scheduler)

    def set_policy(self, policy: str) -> None:
        self._database.execute("SELECT easeml.set_policy(%s)", [policy])


class WarmOnPostgres(OnPostgres):
    """The same for test after test: ports stay open, and both slots keep their sessions, which import torch."""

    def __init__(self, database: Session) -> None:
        super().__init__(database)
        self._loop, self._open = asyncio.new_event_loop(), AsyncExitStack()
        self._is_open = False

    def play(self, test: Coroutine[Any, Any, None]) -> None:
        self._loop.run_until_complete(self._play(test))

    async def _play(self, test: Coroutine[Any, Any, None]) -> None:
        if not self._is_open:
            await self._open.enter_async_context(self.opened())
            self._number = await self.ports.lease.acquire()
            await self.open_slots(2)
            self._is_open = True
        try:
            await test
        except BaseException:
            await self._close()  # who knows what it has left
            raise
        self._database.execute("UPDATE easeml.coordinator_lease SET lease_number = %s", [self._number])
        self._database.execute("UPDATE easeml.slots SET status = 'active', lost_reason = NULL, lost_at = NULL")

    async def begin(self, n_slots: int = 1) -> None:
        pass

    async def _close(self) -> None:
        self._is_open = False
        await self._open.aclose()

    def end(self) -> None:
        """Close all of it."""
        self._loop.run_until_complete(self._close())
        self._loop.close()


@pytest.fixture(scope="module")
def warm_on_postgres(module_database: Session) -> Iterator[WarmOnPostgres]:
    """One world for the tests of a module that are marked as warm."""
    world = WarmOnPostgres(module_database)
    yield world
    world.end()


def on_postgres(request: pytest.FixtureRequest) -> World:
    """Return a world with a database of its own, or that of the module's tests."""
    if request.node.get_closest_marker("warm"):
        world: World = request.getfixturevalue("warm_on_postgres")
        return world
    return OnPostgres(request.getfixturevalue("database"))


class WarmOnNodes(WarmOnPostgres):
    """Both slots are on other servers, each on one of its own that holds both partitions."""

    services = "pg_"  # with the name of the node

    def __init__(self, database: Session, nodes: Mapping[str, Session], engine: str = "postgres") -> None:
        super().__init__(database)
        self.control, self.nodes = database, dict(nodes)
        for place, name in enumerate(nodes, start=1):
            self.add_segment(name, engine)
            move = "UPDATE easeml.slots SET segment_id = easeml.find_segment(%s) WHERE slot_id = %s"
            database.execute(move, [name, place])
        database.execute("UPDATE easeml.datasets SET placement = 'bound'")
        database.execute("SELECT easeml.replicate_dataset('points', 2)")

    def add_segment(self, name: str, engine: str) -> None:
        """Add the segment that is a node."""
        add = "SELECT easeml.add_segment(%s, service => %s, engine => %s)"
        self.control.execute(add, [name, f"{self.services}{name}", engine])

    def break_session(self, slot_id: int) -> None:
        for node in self.nodes.values():
            node.execute(BREAK, [f"easeml slot {slot_id}"])

    @property
    def caches(self) -> dict[int, NodeCache]:
        """What the executor keeps of each node."""
        return self.ports.executor._servers._caches  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def warm_on_nodes(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmOnNodes]:
    """One world for the tests of a module that run on nodes: the control server is a database, and so is each node."""
    with ExitStack() as stack:
        control = stack.enter_context(temporary_session(private_server))
        nodes = stack.enter_context(two_nodes(private_server, tmp_path_factory.mktemp("services")))
        world = WarmOnNodes(control, nodes)
        stack.callback(world.end)
        yield world


class WarmOnCitus(WarmOnNodes):
    """The same on two workers of a Citus cluster, each by a service that no other world has."""

    services = "pg_citus_"


@pytest.fixture(scope="module")
def warm_on_citus(
    private_server: Embedded, snapshot: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WarmOnNodes]:
    """The same on two workers of a Citus cluster, a real one, by the same names."""
    folder = tmp_path_factory.mktemp("services")
    with ExitStack() as stack:
        control = stack.enter_context(temporary_session(private_server))
        cluster = stack.enter_context(citus.cluster_of(("real", "direct"), private_server, snapshot, folder))
        workers = dict(zip(("east", "west"), cluster.workers.values(), strict=True))
        dsns = {name: make_conninfo(worker.dsn, user=NODE_ROLE) for name, worker in workers.items()}
        services = {f"{WarmOnCitus.services}{name}": dsn for name, dsn in dsns.items()}
        stack.enter_context(service_file(folder, services))
        world = WarmOnCitus(control, workers, "citus")
        stack.callback(world.end)
        yield world


class WarmOnCitusCoordinator(WarmOnNodes):
    """The same on two workers of a Citus cluster of which only the coordinator is reached."""

    services = "pg_cluster_"

    def __init__(self, database: Session, cluster: citus.CitusCoordinator) -> None:
        self.cluster = cluster
        self._groups = dict(zip(("east", "west"), cluster.workers, strict=True))
        super().__init__(database, {name: cluster.workers[group] for name, group in self._groups.items()}, "citus")

    def add_segment(self, name: str, engine: str) -> None:
        add = "SELECT easeml.add_segment(%s, service => %s, engine => %s, content => %s)"
        self.control.execute(add, [name, f"{self.services}{name}", engine, self._groups[name]])

    def break_session(self, slot_id: int) -> None:
        for entrance in self.cluster.entrances:
            entrance.execute(BREAK, [f"easeml slot {slot_id}"])


@pytest.fixture(scope="module")
def warm_on_citus_coordinator(
    private_server: Embedded, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WarmOnCitusCoordinator]:
    """One world for the tests of a module whose units Citus delegates: a real cluster, or what looks like one."""
    with ExitStack() as stack:
        control = stack.enter_context(temporary_session(private_server))
        cluster = stack.enter_context(citus.coordinator_of(private_server))
        folder = tmp_path_factory.mktemp("services")
        dsns = {f"pg_cluster_{name}": dsn for name, dsn in zip(("east", "west"), cluster.dsns.values(), strict=True)}
        stack.enter_context(service_file(folder, dsns))
        world = WarmOnCitusCoordinator(control, cluster)
        stack.callback(world.end)
        yield world


class WarmOnGreenplum(WarmOnPostgres):
    """Both slots are on segments of a Greenplum cluster, each on one of its own that holds both partitions."""

    patience_seconds = 5 * PATIENCE_SECONDS  # the processes of a cluster that is real import torch one by one

    def __init__(self, database: Session, cluster: Session) -> None:
        super().__init__(database)
        self.control, self.cluster = database, cluster
        for place in (1, 2):
            database.execute(
                "SELECT easeml.add_segment(%s, service => 'pg_cluster', engine => 'greenplum', content => %s)",
                [f"gp{place}", place - 1],
            )
            move = "UPDATE easeml.slots SET segment_id = easeml.find_segment(%s) WHERE slot_id = %s"
            database.execute(move, [f"gp{place}", place])
        database.execute("UPDATE easeml.datasets SET placement = 'bound'")
        database.execute("SELECT easeml.replicate_dataset('points', 2)")

    def break_session(self, slot_id: int) -> None:
        self.cluster.execute(greenplum.BREAK, [f"easeml slot {slot_id}"])

    @property
    def caches(self) -> dict[int, NodeCache]:
        """What the executor keeps of each segment."""
        return self.ports.executor._servers._caches  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def warm_on_greenplum(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmOnGreenplum]:
    """One world for the tests of a module that run on a Greenplum cluster: a real one, or what looks like one."""
    with ExitStack() as stack:
        control = stack.enter_context(temporary_session(private_server))
        cluster = stack.enter_context(greenplum.cluster_of(private_server))
        dsn = make_conninfo(cluster.dsn, user=NODE_ROLE)
        stack.enter_context(service_file(tmp_path_factory.mktemp("services"), {"pg_cluster": dsn}))
        world = WarmOnGreenplum(control, cluster)
        stack.callback(world.end)
        yield world


# The worlds of a test that does not name its own by the marker `worlds`.
USUAL = ("simulated", "postgres")
# Nodes of every kind; those of a Citus cluster where EASEML_TEST_CITUS names one.
ON_NODES = ("nodes", "citus_coordinator", "citus") if "real" in citus.KINDS else ("nodes", "citus_coordinator")
WORLDS: dict[str, Callable[[pytest.FixtureRequest], World]] = {
    "simulated": lambda request: InMemory(),
    "postgres": on_postgres,
    "nodes": lambda request: request.getfixturevalue("warm_on_nodes"),
    "citus": lambda request: request.getfixturevalue("warm_on_citus"),
    "citus_coordinator": lambda request: request.getfixturevalue("warm_on_citus_coordinator"),
    "greenplum": lambda request: request.getfixturevalue("warm_on_greenplum"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on its worlds."""
    if "world" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("worlds")
        metafunc.parametrize("world", marker.args if marker else USUAL, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """One of the worlds, its ports not yet open."""
    return WORLDS[request.param](request)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Let the world of a test that is a coroutine run it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    arguments["world"].play(pyfuncitem.obj(**arguments))
    return True
