"""A bounded cache of a session. Everything in it can be made again from the tables."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


def _one(value: object) -> float:
    return 1


class Bounded(Generic[T]):
    """A least-recently-used store that never holds more than `limit` units of weight (but always the newest)."""

    def __init__(self, limit: int, weigh: Callable[[T], float] = _one) -> None:
        self.limit = limit
        self._weigh = weigh
        self._items: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value kept under `key`, or make and keep it."""
        if key not in self._items:
            self.put(key, make())
        self._items.move_to_end(key)
        return self._items[key][1]

    def put(self, key: Hashable, value: T) -> None:
        """Keep a value, dropping the least recently used ones."""
        self._items[key] = (self._weigh(value), value)
        self._items.move_to_end(key)
        while len(self._items) > 1 and sum(weight for weight, _ in self._items.values()) > self.limit:
            self._items.popitem(last=False)

    def pop(self, key: Hashable) -> T | None:
        """Remove a value and return it; None if there is none."""
        entry = self._items.pop(key, None)
        return None if entry is None else entry[1]
