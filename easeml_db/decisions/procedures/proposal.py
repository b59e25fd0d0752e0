"""The first trials of a run and its limits: functions from JSON to JSON, called in the server and from Python.

The trials of a one-shot procedure all exist from the start, and belong to the arms of their architectures. Any other
procedure runs once inside every arm, over that arm's hyperparameters; with the option `joint` it runs once over all
architectures, which then are one arm. Its trials are numbered so that no number depends on which arm is opened first:
trial k of arm j, both from 0, of n arms is trial k n + j + 1 of the run. Seeds and visit orders derive from it. A
run-wide procedure (race) also runs once, over arms that stay apart: its trials are numbered as they are started.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import update_wrapper
from typing import TypeVar

from easeml_db.decisions.procedures import PROCEDURES, is_run_wide
from easeml_db.decisions.procedures.contract import Procedure, StartTrial
from easeml_db.decisions.procedures.creation import arm_names, create_procedure, read_search
from easeml_db.decisions.search_space.refusal import refusal
from easeml_db.decisions.search_space.specs import RESERVED
from easeml_db.words.run import Search

MAX_TRIALS = 1_000_000  # over all arms of a run
Row = dict[str, object]
T = TypeVar("T")


@dataclass(frozen=True)
class ArmSearch:
    """One arm and the procedure that runs inside it."""

    name: str
    procedure: Procedure


def taking_arguments(function: Callable[[Search], T]) -> Callable[..., T]:
    """Make `function(search)` callable with the arguments that SQL has for it."""

    def run(
        architectures_json: str,
        search_space_json: str | None,
        procedure: str,
        n_configs: int | None,
        max_epochs: int,
        seed: int,
        options_json: str | None,
        portfolio_json: str | None = None,
    ) -> T:
        return function(
            Search(
                *(architectures_json, search_space_json, procedure, n_configs, max_epochs, seed, options_json),
                portfolio_json,
            )
        )

    update_wrapper(run, function)
    return run


def for_sql(function: Callable[..., object]) -> Callable[..., str]:
    """Make `function(search)` callable in the same way; its answer becomes JSON."""
    return update_wrapper(taking_arguments(lambda search: json.dumps(function(search))), function)


def _begun(search: Search) -> Row:
    """Return a run's arms and first trials as a JSON object; an error names the path of the wrong value.

    is_one_shot  whether these are all trials
    n_configs    trials at most, over all arms
    arms         [{"architecture", "planned_epochs"}], epochs of all its trials at most; where one procedure decides on
                 all arms, its share of those of the run
    trials       [{"arm", "trial_number", "architecture", "config", "target_epochs", "bracket"}]; a target of null
                 stands for max_epochs
    """
    if _is_one_shot(search):
        return _one_shot(create_procedure(search), search.max_epochs)
    return _run_wide(search) if is_run_wide(search.procedure) else _staged(_arm_searches(search))


begun_search, begin_search = taking_arguments(_begun), for_sql(_begun)


@for_sql
def preview(search: Search) -> list[Row]:
    """Return the plan as a JSON array of {"arm", "bracket", "rung", "n_trials", "n_epochs", "total_epochs"}.

    n_epochs is what a trial of the rung has in total, total_epochs the work of all its trials beyond the rung before.
    For asha these are caps; for pbt a rung is a round, and each round replaces some trials.
    """
    if _is_one_shot(search) or is_run_wide(search.procedure):
        arms = [ArmSearch("|".join(read_search(search).architectures), create_procedure(search))]
    else:
        arms = _arm_searches(search)
    return [{"arm": arm.name, **asdict(rung)} for arm in arms for rung in arm.procedure.preview()]


def trial_number_of(position: int, arm_position: int, n_arms: int) -> int:
    """Return the number within the run of the trial at `position` of an arm, both from 0."""
    return position * n_arms + arm_position + 1


def _is_one_shot(search: Search) -> bool:
    return search.procedure in PROCEDURES and PROCEDURES[search.procedure].description.is_one_shot


def _run_wide(search: Search) -> Row:
    procedure = create_procedure(search)
    n_epochs = sum(rung.total_epochs for rung in procedure.preview())
    shares = {name: procedure.most_trials_of(name) for name in arm_names(search)}
    starts = [decision for decision in procedure.ask([]) if isinstance(decision, StartTrial)]
    return {
        "is_one_shot": False,
        "n_configs": procedure.n_trials(),
        "arms": [
            {"architecture": name, "planned_epochs": max(1, round(n_epochs * n / sum(shares.values())))}
            for name, n in shares.items()
        ],
        "trials": [_trial(str(start.config[RESERVED]), number, start) for number, start in enumerate(starts, 1)],
    }


def _one_shot(procedure: Procedure, max_epochs: int) -> Row:
    configs = [decision.config for decision in procedure.ask([]) if isinstance(decision, StartTrial)]
    counts = Counter(str(config[RESERVED]) for config in configs)
    return {
        "is_one_shot": True,
        "n_configs": len(configs),
        "arms": [{"architecture": name, "planned_epochs": n * max_epochs} for name, n in counts.items()],
        "trials": [_trial(str(c[RESERVED]), number, StartTrial(c)) for number, c in enumerate(configs, 1)],
    }


def _staged(arms: Sequence[ArmSearch]) -> Row:
    plans = [arm.procedure.preview() for arm in arms]
    n_trials = sum(arm.procedure.n_trials() for arm in arms)
    if n_trials > MAX_TRIALS:
        hint = "Lower max_epochs or n_configs; for pbt, raise the interval."
        raise refusal("n_configs", expected=f"at most {MAX_TRIALS} trials over all arms", got=str(n_trials), hint=hint)
    return {
        "is_one_shot": False,
        "n_configs": n_trials,
        "arms": [
            {"architecture": arm.name, "planned_epochs": sum(rung.total_epochs for rung in plan)}
            for arm, plan in zip(arms, plans, strict=True)
        ],
        "trials": [
            _trial(arm.name, trial_number_of(position, j, len(arms)), start, arm.procedure.bracket_of(position))
            for j, arm in enumerate(arms)
            for position, start in enumerate(d for d in arm.procedure.ask([]) if isinstance(d, StartTrial))
        ],
    }


def _arm_searches(search: Search) -> list[ArmSearch]:
    return [ArmSearch(name, create_procedure(search, arm=name)) for name in arm_names(search)]


def _trial(arm: str, trial_number: int, start: StartTrial, bracket: int = 0) -> Row:
    config = dict(start.config)
    return {
        "arm": arm,
        "trial_number": trial_number,
        "architecture": config.pop(RESERVED),
        "config": config,
        "target_epochs": start.n_epochs,
        "bracket": bracket,
    }
