"""The coordinator's ports on one PostgreSQL server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.ports.clock import Clock
from easeml_db.coordinator.ports.inbox import Inbox
from easeml_db.coordinator.ports.messages import Message
from easeml_db.postgres.answering.pool import AnsweringProcesses
from easeml_db.postgres.chores.forecasts import Forecasts
from easeml_db.postgres.chores.lock_holders import LockHolders
from easeml_db.postgres.chores.refreshes import Refreshes
from easeml_db.postgres.chores.replan_after_growth import GrownTables
from easeml_db.postgres.chores.vacuum import PostgresStateSpace
from easeml_db.postgres.nodes.states_in_use import StatesInUse
from easeml_db.postgres.on_nodes.kept_sessions import KeptSessions
from easeml_db.postgres.on_nodes.worker import NodeWorker, Requests, node_jobs, packings
from easeml_db.postgres.slots.executor import UNIT_LEASE_SECONDS, PostgresExecutor
from easeml_db.postgres.slots.instance_store import PostgresInstances
from easeml_db.postgres.slots.provisioner import Provisioners
from easeml_db.postgres.slots.servers import Servers
from easeml_db.postgres.slots.slot_store import PostgresSlots
from easeml_db.postgres.stores.allocation_store import PostgresAllocations
from easeml_db.postgres.stores.changes import Changes
from easeml_db.postgres.stores.lease_store import PostgresLease
from easeml_db.postgres.stores.plan_store import PostgresPlans
from easeml_db.postgres.stores.run_store import PostgresRuns
from easeml_db.postgres.stores.search_store import PostgresSearches
from easeml_db.postgres.stores.store_session import StoreSession
from easeml_db.postgres.stores.task_store import PostgresTasks
from easeml_db.postgres.stores.tenancy_store import PostgresTenancy


class FilledInbox(Inbox, Protocol):
    """An inbox into which this process puts messages."""

    def put(self, message: Message) -> None:
        """Deliver a message."""


@asynccontextmanager
async def postgres_ports(
    dsn: str,
    inbox: FilledInbox,
    clock: Clock,
    *,
    on_standby: Callable[[], None] = lambda: None,
    unit_lease_seconds: float = UNIT_LEASE_SECONDS,
    counted: Callable[[], Mapping[str, float]] = dict,
) -> AsyncIterator[Ports]:
    """Open the ports of one coordinator, and close them at the end, which gives the lease away."""
    session, changes = StoreSession(dsn), Changes(dsn, inbox.put)
    lease, space = PostgresLease(session, changes, on_standby, counted), PostgresStateSpace(session)
    chores = (LockHolders(session), Forecasts(session), Refreshes(session), GrownTables(session))
    tasks, answering = PostgresTasks(session), AnsweringProcesses()
    in_use, kept, requests = StatesInUse(), KeptSessions(), Requests(session)
    on_nodes = [NodeWorker(requests, asked) for asked in (packings(kept), node_jobs(in_use))]
    async with AsyncExitStack() as stack:
        for part in (session, changes, lease):
            await part.open()
            stack.push_async_callback(part.close)
        stack.push_async_callback(space.close)
        stack.push_async_callback(tasks.close)
        stack.callback(answering.close)
        for chore in chores:
            stack.push_async_callback(chore.close)
        stack.push_async_callback(kept.close)
        stack.push_async_callback(requests.close)
        for worker in on_nodes:
            stack.push_async_callback(worker.close)
        for chore in chores:
            chore.begin()
        for worker in on_nodes:
            worker.begin()
        yield Ports(
            lease=lease,
            slots=PostgresSlots(session),
            runs=PostgresRuns(session),
            tenancy=PostgresTenancy(session),
            searches=PostgresSearches(session),
            answering=answering,
            allocations=PostgresAllocations(session),
            plans=PostgresPlans(session),
            instances=PostgresInstances(session),
            provisioner=Provisioners(inbox.put),
            space=space,
            tasks=tasks,
            executor=PostgresExecutor(
                Servers(dsn, unit_lease_seconds, in_use), inbox.put, unit_lease_seconds=unit_lease_seconds
            ),
            inbox=inbox,
            clock=clock,
        )
