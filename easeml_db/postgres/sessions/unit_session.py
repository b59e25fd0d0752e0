"""The executor's view of a slot's session, on whichever server it is."""

from __future__ import annotations

from typing import Any, Protocol

Result = dict[str, Any]


class UnitSession(Protocol):
    """A connection on which a slot's units run, and through which they are asked to stop."""

    @property
    def is_closed(self) -> bool:
        """Return whether the connection is lost or closed."""

    @property
    def pid(self) -> int:
        """Return the number of the server's process that trains."""

    async def call(self, procedure: str, text: str) -> Result:
        """Carry out an order and return its result. Raises the class of its error."""

    async def cancel(self) -> None:
        """Ask the unit to stop."""

    async def show_idle(self) -> None:
        """Clear a unit that failed from the slot's row; one that is recorded does so itself."""

    async def close(self) -> None:
        """Close the connection."""
