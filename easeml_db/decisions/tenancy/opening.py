"""The outputs of the pool: an arm to open, with everything that the decision was based on, and beliefs about arms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from easeml_db.decisions.tenancy.selector import PolicyDecision


@dataclass(frozen=True)
class Standing:
    """The standing of a run at a decision, so that its tenant can see why it waited."""

    run_id: int
    is_candidate: bool
    is_chosen: bool
    sig: float | None
    gap: float
    score: float
    best_quality: float


@dataclass(frozen=True)
class Opening:
    """An arm to open, with the basis of the decision; `memory` is the policy's state to keep."""

    run_id: int
    arm_id: int
    policy: str
    decision: PolicyDecision[int]
    cost_seconds: float
    opening_number: int
    pending_arm_ids: tuple[int, ...]
    n_runs: int
    standings: tuple[Standing, ...]
    memory: Mapping[str, Any]

    def row(self) -> dict[str, Any]:
        """Return the decision as JSON values to record."""
        seen = self.decision
        return {
            "arm_id": self.arm_id, "policy": self.policy, "phase": seen.phase, "opening_number": self.opening_number,
            "beta": seen.beta, "mean": seen.mean, "deviation": seen.deviation, "bound": seen.bound, "cost": seen.cost,
            "expected_seconds": self.cost_seconds, "best_quality": seen.best, "sig": finite(seen.sig), "gap": seen.gap,
            "score": seen.score, "history_weight": seen.history_weight, "pending": list(self.pending_arm_ids),
            "n_runs": self.n_runs,
            "standings": [asdict(standing) for standing in self.standings], "memory": dict(self.memory),
        }  # fmt: skip


@dataclass(frozen=True)
class Belief:
    """The present belief about an arm; `bound` is None if the arm is no longer offered."""

    arm_id: int
    mean: float
    deviation: float
    bound: float | None
    cost: float
    expected_seconds: float


def finite(value: float) -> float | None:
    """Return the value, or None where JSON has no word for it."""
    return value if math.isfinite(value) else None
