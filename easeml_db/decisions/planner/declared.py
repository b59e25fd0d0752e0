"""The stages of a procedure that declares them: its rungs, bracket after bracket, arm after arm.

Most procedures say beforehand how many trials reach which epoch, and `preview` returns it. Those that start trials one
by one (tpe, bohb) are planned as if all trials of a rung were there at once. In a search over several architectures at
once it is unknown whose trials are kept, so every order of architectures is equally likely. asha and race declare
nothing (`envelope`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from easeml_db.decisions.planner.job import Load, Stage, StageKey
from easeml_db.decisions.procedures import PROCEDURES, is_run_wide
from easeml_db.decisions.procedures.contract import PlannedRung, StartTrial
from easeml_db.decisions.procedures.creation import SEPARATOR, arm_names, create_procedure
from easeml_db.decisions.search_space.specs import RESERVED
from easeml_db.words.run import Search

UNDECLARED = ("asha", "race")


def declares_stages(procedure: str) -> bool:
    """Return whether a procedure declares beforehand how many trials train how long."""
    return procedure not in UNDECLARED


def declared_stages(search: Search) -> tuple[Stage, ...]:
    """Return the stages of a run in their order. Raises InvalidArgument, as the run would."""
    if search.procedure in PROCEDURES and PROCEDURES[search.procedure].description.is_one_shot:
        return (_one_shot(search),)
    arms = [None] if is_run_wide(search.procedure) else arm_names(search)
    return tuple(stage for arm in arms for stage in _arm_stages(search, arm))


def _one_shot(search: Search) -> Stage:
    started = create_procedure(search).ask([])
    counts = Counter(str(decision.config[RESERVED]) for decision in started if isinstance(decision, StartTrial))
    loads = tuple(Load(name, n_trials, search.max_epochs, is_tested=True) for name, n_trials in counts.items())
    return Stage(loads, search.procedure)


def _arm_stages(search: Search, arm: str | None) -> Iterator[Stage]:
    procedure = create_procedure(search, arm=arm)
    rungs = procedure.preview()
    architectures = (arm or SEPARATOR.join(arm_names(search))).split(SEPARATOR)
    n_brackets = len({rung.bracket for rung in rungs})
    for rung in rungs:
        if rung.total_epochs:
            is_last = rung.n_epochs >= search.max_epochs  # trials that have trained to the end are tested
            alternatives = tuple(_turns(architectures, rung, is_tested=is_last))
            label = stage_label(arm, rung, n_brackets)
            key = StageKey(arm or "", rung.bracket, rung.n_epochs)
            some = alternatives if len(alternatives) > 1 else ()
            is_overlapped = overlaps(rung, rungs, procedure.overlaps_below())
            yield Stage(alternatives[0], label, rung.rung > 0, some, key, is_overlapped=is_overlapped)


def overlaps(rung: PlannedRung, rungs: Sequence[PlannedRung], n_parallel: int) -> bool:
    """Return whether the trials of a rung are so few that the next bracket begins while they train."""
    return rung.n_trials < n_parallel and any(other.bracket > rung.bracket for other in rungs)


def stage_label(arm: str | None, rung: PlannedRung, n_brackets: int) -> str:
    """Return the label of a stage: the same words in the first plan and in later ones."""
    bracket = f"bracket {rung.bracket}, " if n_brackets > 1 else ""
    return f"{arm or 'all'}: {bracket}rung {rung.rung}, to epoch {rung.n_epochs}"


def _turns(architectures: Sequence[str], rung: PlannedRung, *, is_tested: bool) -> Iterator[tuple[Load, ...]]:
    """Yield how the trials of a rung may fall to architectures: as evenly as can be, each of them first once."""
    n, n_trials = len(architectures), rung.n_trials
    n_epochs = rung.total_epochs / n_trials
    before = rung.n_epochs - n_epochs
    for first in range(n if n_trials % n else 1):
        names = [architectures[(first + k) % n] for k in range(min(n, n_trials))]
        counts = [n_trials // n + (k < n_trials % n) for k in range(len(names))]
        loads = (Load(name, count, n_epochs, is_tested, before) for name, count in zip(names, counts, strict=True))
        yield tuple(loads)
