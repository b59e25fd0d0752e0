"""What a simulated world does to units: how long they take, which metrics arms reach, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from easeml_db.coordinator.ports.messages import Order
from easeml_db.errors import EasemlError
from easeml_db.words.training_unit import TrainingUnit

SecondsOf = Callable[[TrainingUnit, int], float]
SlowdownOf = Callable[[int], float]
QualityOf = Callable[[int, int], float]


def half(run_id: int, arm_id: int) -> float:
    return 0.5


def same(trial_number: int, epoch: int) -> float:
    return 0.5


def no_slowdown(n_packed: int) -> float:
    return 1.0


@dataclass(frozen=True)
class Faults:
    """What goes wrong with units when they end (in a gang, with any of its ranks): `failure_of` returns the error
    (TrialFailed: the trial's own; SlotLost: nothing was recorded); with `is_answer_lost` the unit is recorded and its
    session breaks. A unit with `stuck_seconds` > 0 is given up after its lease, but continues and tries to be recorded
    after that time.
    """

    failure_of: Callable[[Order], EasemlError | None] = lambda order: None
    is_answer_lost: Callable[[Order], bool] = lambda order: False
    stuck_seconds: Callable[[Order], float] = lambda order: 0.0
