"""Units during which the server crashed, kept until they are recorded: they outlive the coordinator."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from easeml_db.coordinator.ports.inbox import Inbox
from easeml_db.coordinator.ports.messages import UnitFailed
from easeml_db.errors import ServerCrashed


@dataclass
class CarriedOver:
    """What a coordinator has not recorded yet, kept for the next one if the server goes away: units during which the
    server crashed, and slot seconds of failed units by tenant.
    """

    crashed: list[UnitFailed] = field(default_factory=list)
    slot_seconds: dict[str, float] = field(default_factory=dict)


class Crashes:
    """Crashes still to be recorded; the code that starts coordinators keeps the list. Where somebody's open transaction
    holds the rows of a run, the run is held back until they are recorded.
    """

    def __init__(self, crashed: list[UnitFailed]) -> None:
        self._crashed = crashed
        self._held_back: set[int] = set()

    def __bool__(self) -> bool:
        """Return whether there is one whose run is not held back."""
        return any(message.order.unit.run_id not in self._held_back for message in self._crashed)

    def all(self) -> list[UnitFailed]:
        """Return the units."""
        return list(self._crashed)

    def add(self, message: UnitFailed) -> None:
        """Remember a unit."""
        self._crashed.append(message)
        self._held_back.discard(message.order.unit.run_id)

    def drop(self, message: UnitFailed) -> None:
        """Forget a unit that is recorded, or was no crash."""
        self._crashed.remove(message)
        self._held_back &= {each.order.unit.run_id for each in self._crashed}

    def hold_back(self, run_id: int) -> None:
        """Note that nothing of a run may start before its crashes are recorded."""
        self._held_back.add(run_id)

    def held_back(self) -> Collection[int]:
        """Return the runs of which nothing may start."""
        return self._held_back

    async def remember(self, inbox: Inbox) -> list[UnitFailed]:
        """Keep and return the units that the server's crash ended; they are recorded when the server is back."""
        crashed = []
        while (message := await inbox.next(0.0)) is not None:
            if isinstance(message, UnitFailed) and isinstance(message.error, ServerCrashed):
                crashed.append(message)
        self._crashed += crashed
        return crashed
