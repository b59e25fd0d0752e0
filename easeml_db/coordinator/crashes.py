"""Units during which the server crashed, kept until they are recorded: they outlive the coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from easeml_db.coordinator.ports.inbox import Inbox
from easeml_db.coordinator.ports.messages import UnitFailed
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.errors import ServerCrashed


@dataclass
class CarriedOver:
    """What a coordinator has not recorded yet, kept for the next one if the server goes away: units during which the
    server crashed, and slot seconds of failed units by tenant.
    """

    crashed: list[UnitFailed] = field(default_factory=list)
    slot_seconds: dict[str, float] = field(default_factory=dict)


class Crashes:
    """Crashes still to be recorded; the code that starts coordinators keeps the list."""

    def __init__(self, runs: RunStore, crashed: list[UnitFailed]) -> None:
        self._runs, self._crashed = runs, crashed

    def __bool__(self) -> bool:
        return bool(self._crashed)

    def add(self, message: UnitFailed) -> None:
        """Remember a unit."""
        self._crashed.append(message)

    async def remember(self, inbox: Inbox) -> list[UnitFailed]:
        """Keep and return the units that the server's crash ended; they are recorded when the server is back."""
        crashed = []
        while (message := await inbox.next(0.0)) is not None:
            if isinstance(message, UnitFailed) and isinstance(message.error, ServerCrashed):
                crashed.append(message)
        self._crashed += crashed
        return crashed

    async def recorded(self) -> AsyncIterator[tuple[int, list[int]]]:
        """Record the crashes; yield the run of each unit, and the trials that have ended with it."""
        while self._crashed:
            reason = str(self._crashed[0].error)
            for order in self._crashed[0].order.by_trial():
                yield order.unit.run_id, await self._runs.crashed(order.unit.run_id, order.unit.trial_id, reason)
            del self._crashed[0]
