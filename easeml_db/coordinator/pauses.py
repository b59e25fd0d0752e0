"""Pauses in force: of runs, of all units, of a procedure's questions. How long each is, `decisions.retry` says."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Pauses(Generic[Key]):
    """What is paused, until when, and how often in a row."""

    def __init__(self) -> None:
        self._until: dict[Key, float] = {}
        self._n_in_a_row: dict[Key, int] = {}

    def n_in_a_row(self, key: Key) -> int:
        """Count the pauses since something went well."""
        return self._n_in_a_row.get(key, 0)

    def is_paused(self, key: Key, now_seconds: float) -> bool:
        """Return whether a pause is under way."""
        return now_seconds < self._until.get(key, -math.inf)

    def begin(self, key: Key, now_seconds: float, pause_seconds: float) -> bool:
        """Begin a pause unless one is under way; return whether it has begun."""
        if self.is_paused(key, now_seconds):
            return False
        self._until[key] = now_seconds + pause_seconds
        self._n_in_a_row[key] = self.n_in_a_row(key) + 1
        return True

    def went_well(self, key: Key) -> None:
        """Count pauses from zero again; one under way continues."""
        self._n_in_a_row.pop(key, None)

    def forget(self, key: Key) -> None:
        """End a pause and forget the count."""
        self._until.pop(key, None)
        self._n_in_a_row.pop(key, None)

    def take_ended(self, now_seconds: float) -> list[Key]:
        """Return the keys whose pause is over, each once."""
        ended = [key for key, until in self._until.items() if until <= now_seconds]
        for key in ended:
            del self._until[key]
        return ended

    def forget_unless(self, is_open: Callable[[Key], bool]) -> None:
        """Forget the counts of keys that are gone."""
        if len(self._n_in_a_row) > len(self._until):
            self._n_in_a_row = {key: n for key, n in self._n_in_a_row.items() if is_open(key)}

    def next_end(self) -> float:
        """Return when the next pause is over; infinity where there is none."""
        return min(self._until.values(), default=math.inf)

    def first_end(self, keys: Iterable[Key]) -> float:
        """Return when the first of these keys is not paused: 0 for one that is not; infinity of none."""
        return min((self._until.get(key, 0.0) for key in keys), default=math.inf)
