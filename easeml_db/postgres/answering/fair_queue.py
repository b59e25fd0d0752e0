"""A queue in which a tenant's items wait behind its own only: tenants in turn, one item of each at a time."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Threads take items and say when they are done with one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[Item]] = {}  # of the tenants, the one served longest ago first
        self._served: set[str] = set()
        self._is_closed = False

    def put(self, tenant: str, item: Item) -> None:
        """Add an item."""
        with self._changed:
            self._waiting.setdefault(tenant, deque()).append(item)
            self._changed.notify()

    def take(self) -> tuple[str, Item] | None:
        """Wait for an item whose tenant has none under way; None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                for tenant, items in self._waiting.items():
                    if tenant not in self._served:
                        return tenant, self._taken(tenant, items)
                self._changed.wait()
            return None

    def _taken(self, tenant: str, items: deque[Item]) -> Item:
        self._served.add(tenant)
        item = items.popleft()
        del self._waiting[tenant]  # others come first now
        if items:
            self._waiting[tenant] = items
        return item

    def done(self, tenant: str) -> None:
        """Let the tenant's next item be taken."""
        with self._changed:
            self._served.discard(tenant)
            self._changed.notify()

    def close(self) -> list[Item]:
        """Let nobody wait any more; return the items that are left."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            return [item for items in self._waiting.values() for item in items]
