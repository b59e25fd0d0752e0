"""The Executor on one PostgreSQL server: a warm session for each slot, a CALL for each unit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import psycopg

from easeml_db.db.connection import connect, unit_error
from easeml_db.engines.stuck_units import StuckUnits
from easeml_db.errors import EasemlError, SlotLost
from easeml_db.ports import Message, Order, Piloted, SlotReady, SlotStuck, SlotWaiting, UnitFailed, UnitRecorded
from easeml_db.topology import Slot
from easeml_db.training_unit import PILOT
from easeml_db.trial_groups.measuring import Sample

CLOSE_SECONDS = 3.0
RECONNECT_SECONDS = (0.1, 0.5, 1.0, 2.0)
SILENT_ATTEMPTS = 3  # a restart of the server is no news, a slot that cannot come back is
WATCH_SECONDS = 1.0
UNIT_LEASE_SECONDS = 60.0
SETTINGS = {
    "client_connection_check_interval": "1s",  # a killed coordinator's units end within a second
    "statement_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "jit": "off",
}
SHOW_IDLE = """
UPDATE easeml.slots s SET unit_started_at = NULL WHERE s.slot_id = %s AND s.unit_started_at IS NOT NULL
    AND (s.backend_pid = pg_backend_pid() OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = s.backend_pid))
"""
CALLS = {
    "train": "CALL easeml.train_unit(%s::jsonb, NULL)",
    "validate": "CALL easeml.evaluate_unit(%s::jsonb, NULL)",
    "test": "CALL easeml.evaluate_unit(%s::jsonb, NULL)",
    PILOT: "CALL easeml.pilot_unit(%s::jsonb, NULL)",
}


class PostgresExecutor:
    """Runs units by CALL over one session a slot; what comes of them is delivered as messages.

    A unit that shows no sign of life for `unit_lease_seconds` is cancelled, then terminated, then given up.
    """

    def __init__(
        self, dsn: str, deliver: Callable[[Message], None], *, unit_lease_seconds: float = UNIT_LEASE_SECONDS
    ) -> None:
        self._dsn, self._deliver = dsn, deliver
        self._stuck = StuckUnits(dsn, unit_lease_seconds)
        self._watching: asyncio.Task[None] | None = None
        self._slots: dict[int, Slot] = {}
        self._sessions: dict[int, psycopg.AsyncConnection[dict[str, Any]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._orders: dict[int, Order] = {}  # not answered yet, by slot

    async def open(self, slots: Sequence[Slot]) -> None:
        """Open sessions for these slots side by side, and close those of all others."""
        wanted = {slot.slot_id: slot for slot in slots}
        old, self._slots = self._slots, wanted
        for slot_id in set(old) - set(wanted):
            await self._close_slot(slot_id)
        new = [slot for slot_id, slot in wanted.items() if slot_id not in old]
        for slot in new:
            self._tasks[slot.slot_id] = asyncio.create_task(self._connect(slot.slot_id))
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def start(self, order: Order) -> None:
        """Begin a unit on its slot."""
        self._orders[order.slot_id] = order
        self._tasks[order.slot_id] = asyncio.create_task(self._run(order))

    async def cancel(self, slot_id: int) -> None:
        """Ask the slot's unit to stop."""
        session = self._sessions.get(slot_id)
        if session is not None and not session.closed:
            with contextlib.suppress(psycopg.Error):  # no server, nothing to cancel
                await session.cancel_safe()

    async def close(self) -> None:
        """Cancel what runs and close all sessions."""
        await self.open([])
        if self._watching is not None:
            self._watching.cancel()
        await self._stuck.close()

    async def _run(self, order: Order) -> None:
        started = time.monotonic()
        try:
            result = await self._call(order)
        except psycopg.Error as error:
            await self._answer_failure(order, unit_error(error))
        else:
            self._answer(_answer_to(order, time.monotonic() - started, result))

    def _answer(self, message: UnitRecorded | Piloted | UnitFailed | SlotStuck) -> None:
        """Deliver what came of an order, once."""
        if self._orders.pop(message.order.slot_id, None) is message.order:
            self._deliver(message)

    async def _call(self, order: Order) -> dict[str, Any]:
        session = self._sessions.get(order.slot_id)
        if session is None:
            raise psycopg.OperationalError(f"slot {order.slot_id} has no session")
        cursor = await session.execute(CALLS[order.unit.kind], [order_json(order)])
        row = await cursor.fetchone()
        result: dict[str, Any] = (row or {}).get("result") or {}
        return result

    async def _answer_failure(self, order: Order, error: EasemlError) -> None:
        await self._show_idle(order.slot_id)
        self._answer(UnitFailed(order, error))
        if not isinstance(error, SlotLost):
            return
        session = self._sessions.get(order.slot_id)
        if order.slot_id not in self._slots:
            return
        if session is not None and not session.closed:  # only the statement was cancelled
            self._deliver(SlotReady(order.slot_id))
            return
        await self._drop_session(order.slot_id)
        await self._connect(order.slot_id)

    async def _show_idle(self, slot_id: int) -> None:
        """Take a unit that came to nothing off the slot's row; one that is recorded does so itself."""
        session = self._sessions.get(slot_id)
        if session is not None:
            with contextlib.suppress(psycopg.Error):  # a lost session's row is cleared by the next one
                await session.execute(SHOW_IDLE, [slot_id])

    async def _connect(self, slot_id: int) -> None:
        """Open and warm the slot's session, trying until it succeeds, and say so."""
        for attempt in range(1_000_000):
            if slot_id not in self._slots:
                return
            try:
                await self._open_session(slot_id)
            except (EasemlError, psycopg.Error) as error:
                if attempt == SILENT_ATTEMPTS:
                    self._deliver(SlotWaiting(slot_id, f"its session cannot be opened: {error}"))
                await asyncio.sleep(RECONNECT_SECONDS[min(attempt, len(RECONNECT_SECONDS) - 1)])
            else:
                self._deliver(SlotReady(slot_id))
                return

    async def _open_session(self, slot_id: int) -> None:
        session = await connect(self._dsn, f"easeml slot {slot_id}", **SETTINGS)
        # Importing torch takes seconds: better now than within the first unit.
        try:
            await session.execute("SELECT easeml.python_facts()")
        except psycopg.Error:
            await session.close()
            raise
        self._sessions[slot_id] = session
        await self._show_idle(slot_id)

    async def _watch(self) -> None:
        """Look after units that give no sign of life."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            sessions = {slot_id: self._sessions[slot_id] for slot_id in self._orders if slot_id in self._sessions}
            pids = {slot_id: session.info.backend_pid for slot_id, session in sessions.items() if not session.closed}
            for slot_id, silent_seconds in (await self._stuck.given_up(pids)).items():
                await self._give_up(slot_id, silent_seconds)

    async def _give_up(self, slot_id: int, silent_seconds: float) -> None:
        """Leave a slot to its fate; the coordinator fences it before it goes on elsewhere."""
        order = self._orders.get(slot_id)
        if order is None:
            return
        self._slots.pop(slot_id, None)
        task, session = self._tasks.pop(slot_id, None), self._sessions.pop(slot_id, None)
        reason = f"a unit gave no sign of life for {silent_seconds:.0f} s and could not be cancelled or terminated"
        self._answer(SlotStuck(order, reason))
        if task is not None:
            task.cancel()
        if session is not None:
            await session.close()

    async def _drop_session(self, slot_id: int) -> None:
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
        if slot_id in self._orders:
            self._answer(UnitFailed(self._orders[slot_id], SlotLost(f"slot {slot_id} was closed with its unit stuck")))
        await self._drop_session(slot_id)


def order_json(order: Order) -> str:
    """The order as the unit procedures read it."""
    fields = asdict(order.unit) | {key: getattr(order, key) for key in ("seed", "slot_id", "lease_number", "attempt")}
    del fields["run_id"], fields["trial_number"]
    if order.measured_seconds:
        fields["measured_seconds"] = order.measured_seconds
    return json.dumps(fields)


def _answer_to(order: Order, seconds: float, result: dict[str, Any]) -> UnitRecorded | Piloted:
    if order.unit.kind == PILOT:
        measured = result.get("sample")
        sample = None if measured is None else Sample(order.unit.trial_id, tuple(measured.pop("laps")), **measured)
        return Piloted(order, result["train_seconds"], result["evaluate_seconds"], sample)
    return UnitRecorded(order, seconds, int(result.get("pruned_bytes", 0)))
