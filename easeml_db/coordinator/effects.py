"""Requests of the parts to the loop: values, which the loop carries out.

A part returns them, or yields them during long work: then the loop handles messages and starts units of others while
the part waits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass


@dataclass(frozen=True)
class HandleMessages:
    """Handle what arrives, waiting for it no longer than this, and fill the slots that are idle since."""

    wait_seconds: float = 0.0


@dataclass(frozen=True)
class OpenSlots:
    """Open and close sessions as the tables now say: slots have come, or gone."""


@dataclass(frozen=True)
class CancelUnits:
    """Cancel what slots do for a run that is not open any more."""

    run_id: int


@dataclass(frozen=True)
class CutTraining:
    """Cancel the training of a run that starts no more, because it may take longer than the run did."""

    run_id: int


@dataclass(frozen=True)
class Stop:
    """End the loop after this turn, as requested."""


Effect = HandleMessages | OpenSlots | CancelUnits | CutTraining | Stop
Work = AsyncGenerator[Effect, None]
