"""How many of the console's threads each login may hold at once."""

from __future__ import annotations

import threading
from collections import Counter

MOST_OF_ONE = 16
"""A browser asks for six things at once, and what it asked for on the page before may still be under way."""


class Shares:
    """Counts the requests that are being answered, by who asks.

    Nobody holds more than MOST_OF_ONE threads, nor more than half of those that others leave free: so a few logins
    cannot hold them all, and each further one gets at least one.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_threads, self._lock = n_threads, threading.Lock()
        self._held: Counter[str] = Counter()

    def take(self, who: str) -> bool:
        """Take a thread for a request; return whether there is one."""
        with self._lock:
            others = self._held.total() - self._held[who]
            is_free = self._held[who] < max(1, min(MOST_OF_ONE, (self._n_threads - others) // 2))
            self._held[who] += is_free
            return is_free

    def give_back(self, who: str) -> None:
        """Give a thread back."""
        with self._lock:
            self._held[who] -= 1
            if not self._held[who]:
                del self._held[who]
