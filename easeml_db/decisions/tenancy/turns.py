"""Turns of tenants: no tenant waits longer than a set time for others' arms, however long those arms are.

A turn is a priority, not a reservation: the tenant whose turn it is is served first whenever a slot is idle, and others
get what it leaves. So slots never wait, a unit is never cut short, and an arm that was passed over continues later.

Turns begin once a tenant that wants slots has had none for half of max_wait_seconds; if arms are short, the policy
alone decides. The other half is divided into turns by weight. So each tenant has had a turn after max_wait_seconds,
plus one unit for each turn, because a turn begins with its first unit. No turn is shorter than a second, because every
change of trial reads a state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

LEAST_SECONDS = 1.0


class Turns:
    """Keeps track of how long tenants have waited, which is served first, and which have slots."""

    def __init__(self, max_wait_seconds: float = 60.0) -> None:
        self.max_wait_seconds = max_wait_seconds
        self.first: str | None = None
        self._began = 0.0  # the turn
        self._has_worked = False
        self._waits_since: dict[str, float] = {}
        self._working: frozenset[str] = frozenset()

    def started(self, now_seconds: float, working: Iterable[str]) -> None:
        """Note which tenants have slots, once units have been started."""
        self._working = frozenset(working)
        if not self._has_worked and self.first in self._working:
            self._began, self._has_worked = now_seconds, True

    def choose(self, now_seconds: float, wanting: Collection[str], weight: Callable[[str], float]) -> str | None:
        """Return the tenant to serve first; None: the oldest arm, as always.

        `wanting` are the tenants with something that could start; those that just had a slot count as working.
        """
        waiting = [tenant for tenant in wanting if tenant not in self._working]
        self._waits_since = {tenant: self._waits_since.get(tenant, now_seconds) for tenant in waiting}
        if self.first not in wanting and self.first not in self._working:
            self.first = None
        if not waiting:
            self._began = now_seconds  # the next tenant to wait does so for a whole turn
            return self.first
        since = min(self._waits_since.values()) if self.first is None else self._began
        if now_seconds >= since + self._seconds(wanting, weight):
            if self.first in self._waits_since:  # it could not use its turn: others precede it
                self._waits_since[self.first] = now_seconds
            self.first = min(waiting, key=lambda tenant: (self._waits_since[tenant], tenant))
            self._began, self._has_worked = now_seconds, False
        return self.first

    def _seconds(self, wanting: Collection[str], weight: Callable[[str], float]) -> float:
        """Return how long the turn is, or the waiting before the first. One without a unit is given up at last."""
        half = self.max_wait_seconds / 2
        if self.first is None or not self._has_worked:
            return max(half, LEAST_SECONDS)
        total = math.fsum(weight(tenant) for tenant in {*wanting, *self._working})
        return max(half * weight(self.first) / total, LEAST_SECONDS)
