"""A database of a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from psycopg.conninfo import make_conninfo

from easeml_db.local.service import QueueInbox, WallClock
from easeml_db.postgres.ports import postgres_ports
from tests.conformance.worlds.world import MAX_EPOCHS, N_PARTITIONS, World

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session


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
