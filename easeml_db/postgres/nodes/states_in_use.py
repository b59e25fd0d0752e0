"""States on nodes to which no row points but which are not garbage, because this process is about to record or read
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StatesInUse:
    """The numbers of these states, on all nodes, and how many want each."""

    def __init__(self) -> None:
        self._users: dict[int, int] = {}

    @contextmanager
    def using(self, checkpoint_id: int) -> Iterator[None]:
        """Keep a state from being taken for garbage."""
        self._users[checkpoint_id] = self._users.get(checkpoint_id, 0) + 1
        try:
            yield
        finally:
            self._users[checkpoint_id] -= 1
            if not self._users[checkpoint_id]:
                del self._users[checkpoint_id]

    def numbers(self) -> set[int]:
        """Return the states that are in use now."""
        return set(self._users)
