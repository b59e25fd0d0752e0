"""The remaining work of a run under way, as stages: its present trials, and those that its procedure will add.

A trial in training has the epochs up to its target left. In a rung, trials that have reached it are done; those not yet
started or promoted are as many as the plan says, each with all epochs of the rung. A procedure without stages is
simulated on from the run's present progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from easeml_db.decisions.planner.declared import declares_stages, overlaps, stage_label
from easeml_db.decisions.planner.envelope import Past, envelope
from easeml_db.decisions.planner.job import Load, Stage, StageKey
from easeml_db.decisions.procedures.contract import PlannedRung, TrialHistory
from easeml_db.decisions.procedures.creation import SEPARATOR, create_procedure
from easeml_db.words.run import Search


@dataclass(frozen=True)
class TrialState:
    """A trial: its arm and bracket, epochs done (a part of one counts), and those up to which it trains now.

    `is_open`: it has not ended for good."""

    architecture: str
    arm: str
    bracket: int
    n_epochs: float
    target_epochs: float
    is_open: bool

    @property
    def left(self) -> float:
        """Epochs that it has to do now."""
        return max(0.0, self.target_epochs - self.n_epochs) if self.is_open else 0.0


@dataclass(frozen=True)
class ArmState:
    """An arm that is not closed, and the trials it has, with their histories for a procedure without stages."""

    name: str
    trials: Sequence[TrialState]
    history: Sequence[TrialHistory] = ()


def remaining_stages(
    search: Search | None, arms: Sequence[ArmState], past: Past, *, seed: int = 0
) -> tuple[Stage, ...]:
    """Return the stages that are left, none where nothing is; `search` None: all trials are there already.

    Raises NotReady, InvalidArgument."""
    if search is None:
        loads = _loads((trial for arm in arms for trial in arm.trials), is_tested=True)
        return (Stage(loads, "trials that are left"),) if loads else ()
    if declares_stages(search.procedure):
        return tuple(stage for arm in arms for stage in _rungs_left(search, arm))
    if search.procedure == "race":
        history = sorted((trial for arm in arms for trial in arm.history), key=lambda trial: trial.trial_number)
        return envelope(search, past, None, history, seed=seed)
    return tuple(stage for arm in arms for stage in envelope(search, past, arm.name, arm.history, seed=seed))


def _loads(trials: Iterable[TrialState], *, is_tested: bool) -> tuple[Load, ...]:
    # Rounded, so that trials that are almost equally far make one load.
    counted = Counter(
        (trial.architecture, round(trial.left, 3), round(trial.n_epochs)) for trial in trials if trial.left > 0
    )
    return tuple(
        Load(name, count, left, is_tested, before) for (name, left, before), count in counted.items() if left > 0
    )


def _rungs_left(search: Search, arm: ArmState) -> Iterator[Stage]:
    """Yield the rest of each rung, bracket after bracket."""
    before = 0
    procedure = create_procedure(search, arm=arm.name)
    rungs = procedure.preview()
    for rung in rungs:
        before = 0 if rung.rung == 0 else before
        loads = _left_of(rung, before, arm, is_tested=rung.n_epochs >= search.max_epochs)
        if loads:
            key = StageKey(arm.name, rung.bracket, rung.n_epochs)
            is_overlapped = overlaps(rung, rungs, procedure.overlaps_below())
            label = stage_label(arm.name, rung, len({other.bracket for other in rungs}))
            yield Stage(loads, label, rung.rung > 0, key=key, is_overlapped=is_overlapped)
        before = rung.n_epochs


def _left_of(rung: PlannedRung, before: int, arm: ArmState, *, is_tested: bool) -> tuple[Load, ...]:
    mine = [trial for trial in arm.trials if trial.bracket == rung.bracket]
    n_there = sum(trial.n_epochs >= rung.n_epochs for trial in mine)
    under_way = [trial for trial in mine if trial.left > 0 and before < trial.target_epochs <= rung.n_epochs]
    loads = _loads(under_way, is_tested=is_tested)
    n_missing = rung.n_trials - n_there - len(under_way)
    if n_missing <= 0 or rung.n_epochs <= before:
        return loads
    # It is unknown which trials survive: assume them spread evenly over the architectures of the arm.
    names = arm.name.split(SEPARATOR)
    counts = Counter(names[k % len(names)] for k in range(n_missing))
    more = float(rung.n_epochs - before)
    return (*loads, *(Load(name, count, more, is_tested, before) for name, count in counts.items()))
