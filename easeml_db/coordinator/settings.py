"""Settings of the loop."""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.decisions.retry import MAX_ATTEMPTS


@dataclass(frozen=True)
class Settings:
    """Seconds, attempts and bytes that tests set otherwise."""

    heartbeat_seconds: float = 2.0
    max_attempts: int = MAX_ATTEMPTS
    reclaim_bytes: int = 2 << 20  # pruned bytes that are worth a vacuum, and at least this fraction of the live ones:
    reclaim_fraction: float = 0.1  # a vacuum reads the whole index, so its price grows with them
    is_replanning: bool = True  # otherwise a planned run keeps its first plan, whatever happens
