"""The Executor on PostgreSQL: a warm session for each slot, a CALL for each unit."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import psycopg

from easeml_db.coordinator.ports.messages import (
    Message,
    Order,
    Piloted,
    SlotReady,
    SlotStuck,
    SlotWaiting,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.decisions.trial_groups.measuring import Sample
from easeml_db.errors import EasemlError, SlotLost, from_sqlstate
from easeml_db.postgres import background
from easeml_db.postgres.sessions.gang_call import GangCall, Outcome, Tokens
from easeml_db.postgres.sessions.unit_session import Result, UnitSession
from easeml_db.postgres.slots.servers import Servers
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import PILOT

CLOSE_SECONDS = 3.0
CANCEL_SECONDS = 0.05  # for which the loop waits; a server that answers has been asked by then
RECONNECT_SECONDS = (0.1, 0.5, 1.0, 2.0)
SILENT_ATTEMPTS = 3  # a restart of the server is no news, a slot that cannot come back is
WATCH_SECONDS = 1.0
UNIT_LEASE_SECONDS = 60.0
PATIENCE = 0.5  # of ranks with a silent peer, as a share of the lease: they are through before it is given up


class PostgresExecutor:
    """Runs each unit by a CALL on its slot's session, and gangs by one CALL on each; outcomes are delivered as
    messages.

    A unit that shows no sign of life for `unit_lease_seconds` is cancelled, then terminated, then given up.
    """

    def __init__(
        self, servers: Servers, deliver: Callable[[Message], None], *, unit_lease_seconds: float = UNIT_LEASE_SECONDS
    ) -> None:
        self._servers, self._deliver = servers, deliver
        self._patience_seconds = PATIENCE * unit_lease_seconds
        self._tokens = Tokens()
        self._watching: asyncio.Task[None] | None = None
        self._slots: dict[int, Slot] = {}
        self._sessions: dict[int, UnitSession] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}  # of their orders, by slot
        self._connecting: dict[int, asyncio.Task[None]] = {}  # by slot
        self._orders: dict[int, Order] = {}  # not answered yet, by slot
        self._calls: dict[int, GangCall] = {}  # their calls, by slot
        self._asking: dict[asyncio.Task[None], int] = {}  # the slots whose units are being asked to stop

    async def open(self, slots: Sequence[Slot]) -> None:
        """Open sessions for these slots side by side, and close those of all others."""
        slots_by_id = {slot.slot_id: slot for slot in slots}
        old, self._slots = self._slots, slots_by_id
        for slot_id in set(old) - set(slots_by_id):
            await self._close_slot(slot_id)
        new = [slot for slot_id, slot in slots_by_id.items() if slot_id not in old]
        for slot in new:
            self._begin_to_connect(slot.slot_id)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def start(self, order: Order) -> None:
        """Begin a unit on its slot, or a gang on its slots."""
        task = asyncio.create_task(self._run(order))
        for slot_id in order.slot_ids:
            self._orders[slot_id], self._tasks[slot_id] = order, task

    async def cancel(self, slot_id: int) -> None:
        """Ask the slot's unit to stop; its gang stops with it. A server that is slow to answer is asked in the
        background: only the slot's own next unit waits for it.
        """
        session = self._sessions.get(slot_id)
        if session is not None:
            asking = background.begin(session.cancel())
            self._asking[asking] = slot_id
            asking.add_done_callback(self._asking.pop)
            await asyncio.wait([asking], timeout=CANCEL_SECONDS)

    async def close(self) -> None:
        """Cancel running units and close all sessions."""
        await self.open([])
        for task in (self._watching, *self._asking):
            if task is not None:
                task.cancel()
        await self._servers.close()

    async def _run(self, order: Order) -> None:
        await self._wait_for_cancels(order.slot_ids)
        started = time.monotonic()
        await self._renew_worn_out(order)
        token = self._tokens.of(order.slot_ids) if order.is_gang else ""
        sessions = [self._sessions.get(slot_id) for slot_id in order.slot_ids]
        call = GangCall(order, sessions, token, self._patience_seconds)
        self._calls |= dict.fromkeys(order.slot_ids, call)
        outcome = await call.run()
        if outcome.result is not None:
            self._answer(_answer_to(order, time.monotonic() - started, outcome.result))
            return
        self._tokens.forget(order.slot_ids)
        await self._answer_failure(order, outcome)

    async def _wait_for_cancels(self, slot_ids: Sequence[int]) -> None:
        """Wait until no earlier unit of these slots is being asked to stop: the request would stop the next one."""
        asking = [task for task, slot_id in self._asking.items() if slot_id in slot_ids]
        if asking:
            await asyncio.wait(asking)

    def _answer(self, message: UnitRecorded | Piloted | UnitFailed | SlotStuck) -> None:
        """Deliver the outcome of an order, once."""
        order = message.order
        if self._orders.get(order.slot_id) is order:
            for slot_id in order.slot_ids:
                del self._orders[slot_id]
                self._calls.pop(slot_id, None)
            self._deliver(message)

    async def _answer_failure(self, order: Order, outcome: Outcome) -> None:
        alive = [slot_id for slot_id in order.slot_ids if slot_id not in outcome.stuck]
        for slot_id in alive:
            if slot_id in self._sessions:
                await self._sessions[slot_id].show_idle()
        if outcome.stuck:
            reason = "a unit gave no sign of life and could be neither cancelled nor terminated"
            self._answer(SlotStuck(order, reason, outcome.stuck))
        else:
            self._answer(UnitFailed(order, outcome.error or SlotLost("no rank said why")))
        is_lost = outcome.stuck or isinstance(outcome.error, SlotLost)
        for slot_id in alive:
            session = self._sessions.get(slot_id)
            if session is None or session.is_closed:
                await self._drop_session(slot_id)
                self._begin_to_connect(slot_id)
            elif is_lost and slot_id in self._slots:  # only the statement was cancelled
                self._deliver(SlotReady(slot_id))

    async def _renew_worn_out(self, order: Order) -> None:
        """Give sessions that keep too many broken groups a new process before they get one more."""
        worn_out = self._tokens.worn_out(order.slot_ids) if order.is_gang else ()
        for slot_id in worn_out:
            await self._drop_session(slot_id)
            if slot_id not in self._slots:
                continue
            with contextlib.suppress(EasemlError, psycopg.Error):  # the call says so
                self._sessions[slot_id] = await self._servers.open_session(self._slots[slot_id])

    def _begin_to_connect(self, slot_id: int) -> None:
        """Open the slot's session in the background, unless that is under way."""
        task = self._connecting.get(slot_id)
        if slot_id in self._slots and (task is None or task.done()):
            self._connecting[slot_id] = asyncio.create_task(self._connect(slot_id))

    async def _connect(self, slot_id: int) -> None:
        """Open and warm the slot's session, trying until it succeeds, and say so."""
        for attempt in range(1_000_000):
            if slot_id not in self._slots:
                return
            try:
                self._sessions[slot_id] = await self._servers.open_session(self._slots[slot_id])
            except (EasemlError, psycopg.Error) as error:
                if attempt == SILENT_ATTEMPTS:
                    self._deliver(SlotWaiting(slot_id, f"its session cannot be opened: {error}"))
                await asyncio.sleep(RECONNECT_SECONDS[min(attempt, len(RECONNECT_SECONDS) - 1)])
            else:
                self._deliver(SlotReady(slot_id))
                return

    async def _watch(self) -> None:
        """Cancel, terminate and give up units that show no sign of life."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            sessions = {slot_id: self._sessions[slot_id] for slot_id in self._orders if slot_id in self._sessions}
            pids = {slot_id: session.pid for slot_id, session in sessions.items() if not session.is_closed}
            for slot_id in await self._servers.given_up(pids):
                await self._give_up(slot_id)

    async def _give_up(self, slot_id: int) -> None:
        """Abandon a slot and its session; the coordinator fences the unit before it is repeated elsewhere."""
        call = self._calls.get(slot_id)
        if call is None:
            return
        self._slots.pop(slot_id, None)
        self._tasks.pop(slot_id, None)
        self._tokens.session_gone(slot_id)
        session = self._sessions.pop(slot_id, None)
        call.give_up(slot_id)
        if session is not None:
            await session.close()

    async def _drop_session(self, slot_id: int) -> None:
        self._tokens.session_gone(slot_id)
        session = self._sessions.pop(slot_id, None)
        if session is not None:
            await session.close()

    async def _close_slot(self, slot_id: int) -> None:
        """Cancel the slot's unit, wait for its answer, and close the session; give up on a stuck one."""
        await self.cancel(slot_id)
        task = self._tasks.pop(slot_id, None)
        if task is not None:
            await asyncio.wait([task], timeout=CLOSE_SECONDS)
            task.cancel()
        connecting = self._connecting.pop(slot_id, None)
        if connecting is not None:
            connecting.cancel()
        order = self._orders.get(slot_id)
        await self._drop_session(slot_id)
        if order is not None:
            self._answer(UnitFailed(order, SlotLost(f"slot {slot_id} was closed with its unit stuck")))
            for other in order.slot_ids:  # of its gang: their answers are no longer awaited
                if other in self._slots:
                    await self._drop_session(other)
                    self._begin_to_connect(other)


def _answer_to(order: Order, seconds: float, result: Result) -> UnitRecorded | Piloted:
    if order.unit.kind == PILOT:
        measured = result.get("sample")
        sample = (
            None if measured is None else Sample(order.unit.trial_id, tuple(measured.pop("iteration_ends")), **measured)
        )
        return Piloted(order, result["train_seconds"], result["evaluate_seconds"], sample)
    failures = {int(trial_id): from_sqlstate(**error) for trial_id, error in result.get("failures", {}).items()}
    return UnitRecorded(order, seconds, int(result.get("pruned_bytes", 0)), failures)
