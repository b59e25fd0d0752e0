"""A coordinator process: the loop wired to PostgreSQL, restarted after the server was away, ended by a signal."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from easeml_db.coordinator.counters import Counters
from easeml_db.coordinator.crashes import CarriedOver
from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.ports import Ports
from easeml_db.coordinator.ports.messages import Message, StopRequested
from easeml_db.coordinator.settings import Settings
from easeml_db.errors import OutOfSpace, RowsHeld, ServerBusy, ServerUnavailable, SlotLost, StandbyOnly
from easeml_db.local.journal import Journal
from easeml_db.local.metrics import metrics_on
from easeml_db.postgres import background
from easeml_db.postgres.ports import postgres_ports
from easeml_db.postgres.slots.executor import UNIT_LEASE_SECONDS

RETRY_SECONDS = 1.0
TELL_AGAIN_SECONDS = 60.0
STOP_SECONDS = 5.0
TICK_SECONDS = 0.02


class QueueInbox:
    """Messages of this process in order of arrival."""

    def __init__(self, watchers: Sequence[Callable[[Message], None]] = ()) -> None:
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._watchers = watchers

    def put(self, message: Message) -> None:
        """Deliver a message."""
        for watch in self._watchers:
            watch(message)
        self._queue.put_nowait(message)

    async def next(self, timeout_seconds: float) -> Message | None:
        """Return the next message, or None after the timeout."""
        if not self._queue.empty():
            return self._queue.get_nowait()
        if timeout_seconds <= 0:
            return None
        try:
            return await asyncio.wait_for(self._queue.get(), timeout_seconds)
        except asyncio.TimeoutError:
            return None


class WallClock:
    """The machine's clock, in seconds since 1970 like the times in the tables."""

    def now_seconds(self) -> float:
        """Return seconds since 1970."""
        return time.time()


async def serve(
    dsn: str,
    journal: Journal,
    settings: Settings | None = None,
    *,
    until_idle: bool = False,
    unit_lease_seconds: float = UNIT_LEASE_SECONDS,
    metrics_port: int | None = None,
) -> None:
    """Coordinate until SIGTERM or SIGINT; survive restarts of the server. Raises VersionMismatch at a wrong schema, and
    InvalidArgument where the port for metrics is in use."""
    counters = Counters()
    # Decisions import it when they first need it, which would take the loop a fifth of a second.
    threading.Thread(target=importlib.import_module, args=["scipy.optimize"], daemon=True).start()
    timing = background.begin(_time_turns(counters))
    try:
        async with metrics_on(metrics_port, dsn, counters):
            await _serve(dsn, journal, counters, settings, until_idle=until_idle, unit_lease_seconds=unit_lease_seconds)
    finally:
        timing.cancel()


async def _time_turns(counters: Counters) -> None:
    """Measure what comes between the end of a short sleep and its notice: a machine that is busy with other work makes
    it late, too, so only processor time of this thread counts.
    """
    while True:
        began, used = time.monotonic(), time.thread_time()
        await asyncio.sleep(TICK_SECONDS)
        counters.turn(min(time.monotonic() - began - TICK_SECONDS, time.thread_time() - used))


async def _serve(
    dsn: str,
    journal: Journal,
    counters: Counters,
    settings: Settings | None,
    *,
    until_idle: bool,
    unit_lease_seconds: float,
) -> None:
    stopping = asyncio.Event()
    inboxes: list[QueueInbox] = []
    carried_over = CarriedOver()

    def stop() -> None:
        stopping.set()
        for inbox in inboxes:
            inbox.put(StopRequested())

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    last_message, last_seconds = "", 0.0
    while not stopping.is_set():
        inboxes[:] = [QueueInbox((counters.count, journal.heard))]
        try:
            serving = _serve_once(
                dsn,
                inboxes[0],
                journal.say,
                lambda ports: Coordinator(ports, settings, carried_over),
                counters,
                until_idle=until_idle,
                unit_lease_seconds=unit_lease_seconds,
            )
            await _until_stopped(serving, stopping)
            return
        # RowsHeld: an update of the extension, say, locks whole tables for longer than a statement of ours waits.
        except (OutOfSpace, RowsHeld, ServerBusy, ServerUnavailable, SlotLost, StandbyOnly) as error:
            if str(error) != last_message or time.monotonic() - last_seconds >= TELL_AGAIN_SECONDS:
                last_message, last_seconds = str(error), time.monotonic()
                journal.say(f"{error}; trying again")
            await _pause(stopping)


async def _until_stopped(serving: Coroutine[Any, Any, None], stopping: asyncio.Event) -> None:
    """Serve; when told to stop, leave the loop a moment for an orderly end, then cancel (a standby has no loop yet)."""
    task = asyncio.create_task(serving)
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        await asyncio.wait({task}, timeout=STOP_SECONDS)
        task.cancel()
    stop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _serve_once(
    dsn: str,
    inbox: QueueInbox,
    say: Callable[[str], None],
    coordinator_of: Callable[[Ports], Coordinator],
    counters: Counters,
    *,
    until_idle: bool,
    unit_lease_seconds: float,
) -> None:
    async with postgres_ports(
        dsn,
        inbox,
        WallClock(),
        on_standby=lambda: say("another coordinator is active: waiting as standby"),
        unit_lease_seconds=unit_lease_seconds,
        counted=counters.values,
    ) as ports:
        say("coordinator is up")
        await coordinator_of(ports).serve(until_idle=until_idle)
        say("coordinator has stopped")


async def _pause(stopping: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), RETRY_SECONDS)
    except asyncio.TimeoutError:
        return
