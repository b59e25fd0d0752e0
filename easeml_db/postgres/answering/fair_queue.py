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
        self._long: dict[str, Item] = {}  # that are known to take long; the rest of their tenants waits for them
        self._served: set[str] = set()
        self._is_closed = False

    def put(self, tenant: str, item: Item) -> None:
        """Add an item."""
        with self._changed:
            self._waiting.setdefault(tenant, deque()).append(item)
            self._changed.notify_all()

    def put_back(self, tenant: str, item: Item) -> bool:
        """Keep an item that is under way for the threads that take long ones; return whether the queue is open."""
        with self._changed:
            self._long[tenant] = item
            self._changed.notify_all()
            return not self._is_closed

    def take(self, *, is_long: bool = False) -> tuple[str, Item] | None:
        """Wait for an item whose tenant has none under way; None once the queue is closed."""
        with self._changed:
            while not self._is_closed:
                if is_long and self._long:
                    tenant = next(iter(self._long))
                    return tenant, self._long.pop(tenant)
                for tenant, items in self._waiting.items() if not is_long else ():
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
            self._changed.notify_all()

    def close(self) -> list[Item]:
        """Let nobody wait any more; return the items that are left."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            return [*self._long.values(), *(item for items in self._waiting.values() for item in items)]
