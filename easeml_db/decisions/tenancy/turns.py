"""Whose turn it is: no tenant waits longer for others' arms than a set time, however long those arms are.

A turn is an order, no pause: the tenant that has it is served first whenever a slot is idle, and others have what it
leaves. So slots never wait, a unit is never cut short, and an arm that was passed over goes on later.

Where a tenant wants slots and has none, turns last max_wait_seconds times weight / sum of weights. Then each has had
one after max_wait_seconds, plus a unit for each turn: a turn begins with its first unit. No turn is shorter than a
second, since every change of trial reads a state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

LEAST_SECONDS = 1.0


class Turns:
    """Keeps since when tenants have waited, who is served first, and who has slots."""

    def __init__(self, max_wait_seconds: float = 60.0) -> None:
        self.max_wait_seconds = max_wait_seconds
        self.first: str | None = None
        self._began: float | None = None  # the turn, or, while nobody is first, the waiting of somebody
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

        `wanting` have something that could start; those that just had a slot count as working.
        """
        waiting = [tenant for tenant in wanting if tenant not in self._working]
        self._waits_since = {tenant: self._waits_since.get(tenant, now_seconds) for tenant in waiting}
        if self.first is not None and self.first not in wanting and self.first not in self._working:
            self.first, self._began = None, None
        if not waiting:
            self._began = None
        elif self._began is None:
            self._began, self._has_worked = now_seconds, True
        elif now_seconds >= self._began + self._seconds(wanting, weight):
            self.first = min(waiting, key=lambda tenant: (self._waits_since[tenant], tenant))
            self._began, self._has_worked = now_seconds, False
        return self.first

    def _seconds(self, wanting: Collection[str], weight: Callable[[str], float]) -> float:
        """Return how long the turn is, from its beginning. One that waits for its first unit is given up at last."""
        if not self._has_worked:
            return max(self.max_wait_seconds, LEAST_SECONDS)
        holders = self._working if self.first is None else (self.first,)
        total = math.fsum(weight(tenant) for tenant in {*wanting, *self._working})
        share = math.fsum(weight(tenant) for tenant in holders) / total
        return max(self.max_wait_seconds * share, LEAST_SECONDS)
