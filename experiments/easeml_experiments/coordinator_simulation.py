"""The coordinator's own loop on a simulated clock, for sizes that no machine here has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.settings import Settings
from easeml_db.simulated import SimulatedProcess, SimulatedWorld

# A heartbeat every two simulated seconds would cost more than the units.
SETTINGS = Settings(heartbeat_seconds=1e6, max_attempts=1_000)


def serve(world: SimulatedWorld) -> float:
    """Serve a world's runs to their end; return the real seconds that it took."""
    process = SimulatedProcess(world)
    started = time.perf_counter()
    asyncio.run(Coordinator(process.ports, SETTINGS).serve(until_idle=True))
    return time.perf_counter() - started


def jittered(means: Callable[[str], float], spread: float, seed: int) -> Callable[[int, int, int, str], float]:
    """Return unit times around the mean of their kind, always the same for the same unit: uniform within the spread."""

    def seconds(trial_number: int, step: int, slot_id: int, kind: str) -> float:
        drawn = hash((seed, trial_number, step)) % 10_007 / 10_007  # of whole numbers: the same in every process
        return means(kind) * (1 + spread * (2 * drawn - 1))

    return seconds
