"""A run: one `select_models` call, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from easeml_db.trial import Trial


@dataclass(frozen=True)
class Run:
    """An open run with all its trials; `started_seconds` is on the coordinator's clock (None: not started).

    `holders` gives the segments that hold each partition, shape (p,); None: every slot may run every partition.
    """

    run_id: int
    seed: int
    state: str
    max_seconds: float | None
    started_seconds: float | None
    trials: tuple[Trial, ...]
    architectures: Mapping[int, str]
    scheduler: str = "auto"
    visit_order: str = "cyclic"
    holders: tuple[frozenset[int], ...] | None = None
