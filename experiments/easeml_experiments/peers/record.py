"""What a method reports of itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from easeml_experiments.peers.training import Outcome


@dataclass
class Record:
    """Times are seconds since 1970; `started` is when the first trial started to train.

    errors: validation errors after each epoch, by trial number. hashes: SHA-256 of the last states.
    held_bytes: training rows that each worker holds. loaded_bytes: rows that were carried to all workers together.
    handed_bytes: states, parameters or gradients that workers handed over. wire_bytes: what the kernel's TCP counters
    saw leave the workers. Of searches also the configs tried, when each epoch's error was known, and what the workers
    spent their seconds on, by activity.
    """

    method: str
    n_workers: int = 1
    started: float = 0.0
    finished: float = 0.0
    errors: dict[int, list[float]] = field(default_factory=dict)
    hashes: dict[int, str] = field(default_factory=dict)
    held_bytes: int = 0
    loaded_bytes: int = 0
    handed_bytes: int = 0
    wire_bytes: int | None = None
    configs: dict[int, dict[str, Any]] = field(default_factory=dict)
    measured_at: dict[int, list[float]] = field(default_factory=dict)
    spent_seconds: dict[str, float] = field(default_factory=dict)


def from_outcomes(method: str, outcomes: Sequence[Outcome], *, n_workers: int, held_bytes: int) -> Record:
    """Return the record of whole trials on workers that each hold all rows."""
    return Record(
        method,
        n_workers,
        started=min(one.started for one in outcomes),
        finished=max(one.finished for one in outcomes),
        errors={one.trial_number: one.errors for one in outcomes},
        hashes={one.trial_number: one.state_sha256 for one in outcomes},
        held_bytes=held_bytes,
        loaded_bytes=held_bytes * n_workers,
        handed_bytes=sum(one.state_bytes for one in outcomes),
    )


def save(record: Record, path: Path) -> None:
    """Write a record where `load` finds it."""
    path.write_text(json.dumps(asdict(record)), encoding="utf-8")


def load(path: Path) -> Record:
    """Read what `save` wrote."""
    known = json.loads(path.read_text(encoding="utf-8"))
    for name in ("errors", "hashes", "configs", "measured_at"):
        known[name] = {int(number): value for number, value in known[name].items()}
    return Record(**known)
