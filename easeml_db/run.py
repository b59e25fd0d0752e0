"""A run: one `select_models` call, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from easeml_db.trial import Trial


@dataclass(frozen=True)
class Run:
    """An open run with all its trials; `started_seconds` is on the coordinator's clock (None: not started)."""

    run_id: int
    seed: int
    state: str
    max_seconds: float | None
    started_seconds: float | None
    trials: tuple[Trial, ...]
    architectures: Mapping[int, str]
