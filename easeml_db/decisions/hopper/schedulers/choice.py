"""The scheduler that serves a run, made from the known times and the slots in service, and its expected makespan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from easeml_db.decisions.hopper.schedulers.contract import Placement, Scheduler, Workload
from easeml_db.decisions.hopper.schedulers.estimates import UnitSeconds
from easeml_db.decisions.hopper.schedulers.registry import (
    FALLBACK,
    MAX_REARRANGED,
    choose_scheduler,
    make_scheduler,
)
from easeml_db.errors import InvalidArgument
from easeml_db.words.run import Run
from easeml_db.words.training_unit import round_number
from easeml_db.words.trial import Trial

MAX_CELLS = 5_000_000  # trial numbers times partitions; tenants who insert trials may number them as they like
MILP_SECONDS = 0.05  # what the coordinator, which does nothing else meanwhile, can be away for
PILOTED = frozenset({"auto", "vector_rearrangement", "milp"})


@dataclass(frozen=True)
class SchedulerChoice:
    """The scheduler of a run from now on: the simulated makespan of its remaining work, the bound that no schedule
    beats, both in seconds (None: not simulated), and the reason in words.
    """

    run_id: int
    scheduler: str
    simulated_seconds: float | None
    bound_seconds: float | None
    reason: str


class Planning:
    """Makes schedulers; a choice between several stays until it is reset."""

    def __init__(self) -> None:
        self._chosen: str | None = None
        self._new_choice: SchedulerChoice | None = None

    def forget(self) -> None:
        """Choose anew the next time."""
        self._chosen = None

    def is_as_asked(self, run: Run) -> bool:
        """Return whether a run has the scheduler that it asks for, on any slots."""
        return self._chosen == asked_scheduler(run)

    def take_choice(self) -> SchedulerChoice | None:
        """Return the choice made since the last call, if any."""
        choice, self._new_choice = self._new_choice, None
        return choice

    def scheduler(self, run: Run, trials: Mapping[int, Trial], seconds: UnitSeconds, placement: Placement) -> Scheduler:
        """Make the requested scheduler or, if it cannot serve these slots, one that always can."""
        if _n_rows(run) * placement.n_partitions > MAX_CELLS:
            if self._chosen != FALLBACK:
                self._choose(
                    SchedulerChoice(run.run_id, FALLBACK, None, None, "too many trials and partitions to plan for")
                )
            return make_scheduler(FALLBACK, Workload((), placement, run.visit_order), seed=run.seed)
        workload = workload_of(run, trials, seconds, placement)
        try:
            name = self._chosen or self._plan(run, workload)
            if name in ("vector_rearrangement", "milp") and _n_rows(run) > MAX_REARRANGED:
                raise InvalidArgument(f"expected at most {MAX_REARRANGED} trials, got {_n_rows(run)}")
            return make_scheduler(name, workload, seed=run.seed, time_limit_seconds=MILP_SECONDS)
        except InvalidArgument as error:
            self._choose(SchedulerChoice(run.run_id, FALLBACK, None, None, f"{run.scheduler} cannot serve: {error}"))
            return make_scheduler(FALLBACK, workload, seed=run.seed)

    def _plan(self, run: Run, workload: Workload) -> str:
        """Choose the scheduler and remember its expected makespan."""
        name = asked_scheduler(run)
        if name != run.scheduler:
            reason = "the procedure starts and stops trials on the way"
            return self._choose(SchedulerChoice(run.run_id, name, None, None, reason))
        if name != "auto":
            return self._choose(SchedulerChoice(run.run_id, name, None, None, "as asked for"))
        choice = choose_scheduler(workload)
        reason = _in_words(choice.alternatives)
        return self._choose(
            SchedulerChoice(run.run_id, choice.name, choice.makespan_seconds, choice.bound_seconds, reason)
        )

    def _choose(self, choice: SchedulerChoice) -> str:
        self._chosen, self._new_choice = choice.scheduler, choice
        return choice.scheduler


def asked_scheduler(run: Run) -> str:
    """Return the scheduler asked for, or one that needs no plan where trials come and go."""
    return FALLBACK if run.search is not None and run.scheduler in PILOTED else run.scheduler


def workload_of(run: Run, trials: Mapping[int, Trial], seconds: UnitSeconds, placement: Placement) -> Workload:
    """Return the remaining work as whole epochs: one unit stands for training and validation of one partition."""
    p = placement.n_partitions
    rows = [(0.0,) * p] * _n_rows(run)
    for trial in trials.values():
        architecture = run.architectures[trial.trial_id]
        kinds = ("train", "validate")
        unit_seconds = sum(seconds.expected(trial.trial_id, architecture, kind) for kind in kinds)
        rows[trial.trial_number - 1] = (unit_seconds,) * p
    n_rounds = max((t.max_epochs - round_number(t) // 2 for t in trials.values()), default=1)
    return Workload(tuple(rows), placement, run.visit_order, n_rounds=max(n_rounds, 1))


def _n_rows(run: Run) -> int:
    """Count the rows of a workload: one for each trial number."""
    return max((trial.trial_number for trial in run.trials), default=0)


def _in_words(alternatives: Mapping[str, float]) -> str:
    if not alternatives:
        return "too many units to simulate"
    return "simulated seconds: " + ", ".join(f"{name} {seconds:.4g}" for name, seconds in alternatives.items())
