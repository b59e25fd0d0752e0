"""The plan of one run while it is carried out: its stages, limits and prices, and which stage the run is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from easeml_db.decisions.planner.job import StageKey
from easeml_db.decisions.planner.prices import PriceList
from easeml_db.words.run import Run
from easeml_db.words.trial import Trial


@dataclass(frozen=True)
class PlannedStage:
    """A planned stage: trials identified by `key`, on instances of one type."""

    key: StageKey
    label: str
    n_trials: int
    instance_type: str
    n_slots: int
    n_instances: int
    width: int
    seconds_mean: float
    seconds_p95: float


@dataclass(frozen=True)
class RunPlan:
    """The plan that holds for a run. Moments are on the coordinator's clock; seconds and cost count from
    `made_seconds`; `cost_before` and `ended_cost` are what instances cost that were gone when it was made, or read."""

    run_id: int
    revision: int
    stages: tuple[PlannedStage, ...]
    prices: PriceList
    provisioner: str
    made_seconds: float
    seconds_mean: float
    seconds_p95: float
    cost_before: float = 0.0
    deadline_seconds: float | None = None
    max_cost: float | None = None
    max_slots: int | None = None
    is_local: bool = True
    n_stages_done: int = 0
    ended_cost: float = 0.0
    open_stage: StageRecord | None = None

    def stage_of(self, keys: Iterable[StageKey], now: StageRecord | None = None) -> PlannedStage | None:
        """Return the planned stage that trials with these keys are in; if there are several, the one under way `now`,
        else the first.
        """
        stages = [stage for stage in self.stages if any(_is_part(key, stage.key) for key in keys)]
        same = [stage for stage in stages if now is not None and stage.key == now.key]
        return next(iter(same or stages), None)

    def after(self, stage: PlannedStage) -> PlannedStage | None:
        """Return the stage that follows."""
        place = self.stages.index(stage) + 1
        return self.stages[place] if place < len(self.stages) else None


@dataclass(frozen=True)
class StageRecord:
    """The outcome of a stage; `cost` and `ended_seconds` once it is over. `n_beside`: the most trials of other arms
    that trained at once during it.
    """

    place: int
    revision: int
    key: StageKey
    label: str
    began_seconds: float
    n_trials: int
    n_slots: int
    cost_before: float
    n_failures: int = 0
    n_beside: int = 0
    ended_seconds: float | None = None
    cost: float | None = None


def planned_stages(rows: Sequence[Mapping[str, Any]]) -> tuple[PlannedStage, ...]:
    """Return stages from rows of easeml.planned_stages."""
    return tuple(
        PlannedStage(
            StageKey(row["arm"], row["bracket"], row["target_epochs"]),
            row["label"],
            row["n_trials"],
            row["instance_type"],
            row["n_slots"],
            row["n_instances"],
            row["width"],
            row["seconds_mean"],
            row["seconds_p95"],
        )
        for row in rows
    )


def stages_under_way(run: Run, trials: Mapping[int, Trial]) -> Counter[StageKey]:
    """Return which stages a run's open trials are in, with how many of them each has."""
    names = {arm.arm_id: arm.name for arm in run.arms}
    return Counter(
        StageKey(names.get(run.arm_of.get(trial_id, 0), ""), trial.bracket, trial.due_epochs)
        for trial_id, trial in trials.items()
    )


def _is_part(key: StageKey, stage: StageKey) -> bool:
    """Return whether trials with a key belong to a stage."""
    has_arm = stage.arm in ("", key.arm)
    return has_arm and (stage.target_epochs == 0 or (stage.bracket, stage.target_epochs) == key[1:])
