"""A simulated clock: it jumps to the next event when every active process waits, and nothing sleeps."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

from easeml_db.coordinator.ports.messages import Message
from easeml_db.simulated.rows import BrokenRule

INSTANT_SECONDS = 1e-9  # sums of the same durations in another order differ by less


class Waiting(Protocol):
    """Something that waits for messages."""

    inbox: deque[Message]


class SimulatedTime:
    """Events and the processes that wait for them. BrokenRule when the clock passes `horizon_seconds`: then a process
    waits for ever."""

    def __init__(self, horizon_seconds: float) -> None:
        self.now_seconds = 0.0
        self._horizon_seconds = horizon_seconds
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = count()
        self._active: list[Waiting] = []
        self._deadlines: dict[int, float] = {}  # by identity of the process

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Run an action when the clock stands at `seconds`."""
        heapq.heappush(self._events, (max(seconds, self.now_seconds), next(self._counter), action))

    def enter(self, process: Waiting) -> None:
        """Let no time pass from now on unless this process waits."""
        self._active.append(process)

    def leave(self, process: Waiting) -> None:
        """Wait for this process no more."""
        self._deadlines.pop(id(process), None)
        self._active = [other for other in self._active if other is not process]

    async def wait(self, process: Waiting, timeout_seconds: float) -> None:
        """Return when the process has a message or its time is over."""
        await asyncio.sleep(0)  # others have their turn; no time passes
        # A wait always ends later, also one so short that the sum rounds to now.
        deadline = max(self.now_seconds + timeout_seconds, math.nextafter(self.now_seconds, math.inf))
        self._deadlines[id(process)] = deadline if timeout_seconds > 0 else self.now_seconds
        while self._is_waiting(process):
            if all(self._is_waiting(other) for other in self._active):
                self._advance(min(self._deadlines.values()))
            else:
                await asyncio.sleep(0)
        self._deadlines.pop(id(process), None)

    def _is_waiting(self, process: Waiting) -> bool:
        return not process.inbox and self._deadlines.get(id(process), 0.0) > self.now_seconds

    def _advance(self, limit_seconds: float) -> None:
        """Let the time pass to the next event, at most up to the limit, and run all events of that instant.

        Simultaneous events arrive together, as a real inbox delivers everything that waits.
        """
        if self.now_seconds > self._horizon_seconds:
            raise BrokenRule(f"no end after {self.now_seconds} seconds")
        if not self._events or self._events[0][0] > limit_seconds:
            self.now_seconds = limit_seconds
            return
        end_seconds = min(self._events[0][0] + INSTANT_SECONDS, limit_seconds)
        while self._events and self._events[0][0] <= end_seconds:
            self.now_seconds, _, action = heapq.heappop(self._events)
            action()
