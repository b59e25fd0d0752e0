"""Attempts at units that failed: their number, and the slot of the last one, which the next attempt avoids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Attempts:
    """Counted by trial, for its next unit."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._slots: dict[int, int] = {}  # of the last attempt

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._counts))

    def __contains__(self, trial_id: object) -> bool:
        return trial_id in self._counts

    def __bool__(self) -> bool:
        return bool(self._counts)

    def count(self, trial_id: int) -> int:
        """Return how many there were."""
        return self._counts.get(trial_id, 0)

    def avoided(self, trial_id: int) -> int | None:
        """Return the slot of the last one."""
        return self._slots.get(trial_id)

    def failed(self, trial_id: int, slot_id: int) -> None:
        """Count one more."""
        self._counts[trial_id], self._slots[trial_id] = self.count(trial_id) + 1, slot_id

    def forget(self, trial_id: int) -> None:
        """Forget the attempts at a unit that is recorded or no longer due."""
        self._counts.pop(trial_id, None)
        self._slots.pop(trial_id, None)

    def another_of(self, trial_id: int, slots: Sequence[int]) -> tuple[int, ...]:
        """Return one of these slots, another one than where the last attempt was."""
        others = tuple(slot for slot in slots if slot != self.avoided(trial_id))
        return (others or tuple(slots))[:1]
