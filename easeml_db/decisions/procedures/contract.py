"""The ask/tell contract of procedures: which configs are tried, and how long.

A procedure keeps nothing between two calls: `ask` gets the whole history and answers with decisions as
values, so a coordinator that was killed asks again and loses nothing. It is asked when a run starts and
when a trial ends an epoch. Decisions are to be carried out in their order, all of them or the first ones:
a caller that carries out only the first ones gets the others by asking again. A trial that has reached its target
waits until it is continued or stopped; one that has reached `max_epochs` is finished.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

from easeml_db.decisions.procedures.options import Options, checked_max_epochs, checked_n_configs
from easeml_db.decisions.search_space.configs import Config
from easeml_db.decisions.search_space.parsing import SearchSpace
from easeml_db.words.trial import OPEN_TRIAL_STATUSES

WORST = -math.inf


@dataclass(frozen=True)
class StartTrial:
    """Start a new trial with this config; trials are numbered in the order in which they are started.

    It trains until it has `n_epochs` in total (None: max_epochs), then waits. With a `parent` it begins with
    that trial's newest state, and the epochs in it count as its own: a copy is one hop of a checkpoint.
    """

    config: Config
    n_epochs: int | None = None
    parent: int | None = None


@dataclass(frozen=True)
class ContinueTrial:
    """Let a trial that waits for a decision train on, until it has done `n_epochs` in total."""

    trial_number: int
    n_epochs: int


@dataclass(frozen=True)
class StopTrial:
    """Stop a trial for good; it keeps its results."""

    trial_number: int


TrialDecision = StartTrial | ContinueTrial | StopTrial


@dataclass(frozen=True)
class TrialHistory:
    """The history of a trial that a procedure may see.

    `scores[k]` is the score after epoch inherited_epochs + k + 1, higher is better, nan for a failed epoch.
    `status` is waiting, running, paused, finished, failed, cancelled or stopped. `target_epochs` None stands for
    max_epochs; `parent` is the trial number of which this one is a copy, `inherited_epochs` what it got there.
    `moments` says when each score was measured, in seconds since 1970, and `seconds` what its units took in all; a
    history that does not know leaves them out. `is_held` says that the trial's arm is not open yet: it opens, and the
    trial trains, where a slot has nothing else to do.
    """

    trial_number: int
    config: Config
    status: str
    scores: tuple[float, ...] = ()
    target_epochs: int | None = None
    parent: int | None = None
    inherited_epochs: int = 0
    moments: tuple[float, ...] = ()
    seconds: float = 0.0
    is_held: bool = False

    @property
    def n_epochs(self) -> int:
        """Epochs in its newest state, inherited ones included."""
        return self.inherited_epochs + len(self.scores)

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_TRIAL_STATUSES

    def target(self, max_epochs: int) -> int:
        return max_epochs if self.target_epochs is None else self.target_epochs

    def is_training(self, max_epochs: int) -> bool:
        """Return whether it has epochs to do before it waits for a decision."""
        return self.is_open and self.n_epochs < self.target(max_epochs)

    @cached_property
    def best_scores(self) -> tuple[float, ...]:
        """The best score until each of its own epochs; WORST before the first finite one."""
        return tuple(accumulate(map(finite_or_worst, self.scores), max))

    def score_at(self, n_epochs: int) -> float:
        """Return its score after a total number of epochs; WORST if there is none, or it is not finite."""
        position = n_epochs - self.inherited_epochs - 1
        return finite_or_worst(self.scores[position]) if 0 <= position < len(self.scores) else WORST


@dataclass(frozen=True)
class PlannedRung:
    """At most `n_trials` trials of one bracket reach `n_epochs` in total; `total_epochs` is the work of this rung."""

    bracket: int
    rung: int
    n_trials: int
    n_epochs: int
    total_epochs: int


@dataclass(frozen=True)
class Description:
    """The description of a procedure for users. One-shot: all its trials start at once and train to the end. Run-wide:
    it is asked once about the trials of all arms, and not inside every arm.
    """

    summary: str
    is_one_shot: bool = False
    options: tuple[str, ...] = ()
    is_run_wide: bool = False


@dataclass(frozen=True)
class SearchArguments:
    """The arguments of a run for its procedure; `n_configs` None leaves the number of trials to the procedure.
    `portfolio` holds configs by architecture that are known to be good: a procedure that takes them tries them first.
    `max_seconds` is how long the run may take (None: no limit is known).
    """

    space: SearchSpace
    max_epochs: int
    n_configs: int | None = None
    seed: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    portfolio: Mapping[str, Sequence[Config]] = field(default_factory=dict)
    max_seconds: float | None = None


class Procedure(ABC):
    """Decides on the trials of one run from their history alone: same history, same decisions.

    It refuses arguments that it cannot serve when it is made, before anything is written.
    """

    description: ClassVar[Description]

    def __init__(self, arguments: SearchArguments) -> None:
        self._options = Options(arguments.options, self.description.options)
        self.max_epochs = checked_max_epochs(arguments.max_epochs)
        self._n_wanted = checked_n_configs(arguments.n_configs)

    @abstractmethod
    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Return what to do now; `history` has one entry per trial, by trial_number."""

    @abstractmethod
    def preview(self) -> list[PlannedRung]:
        """Return the plan, or caps if it is not fixed: no run takes more trials or epochs."""

    def n_trials(self) -> int:
        """Return how many trials it starts at most."""
        return sum(rung.n_trials for rung in self.preview() if rung.rung == 0)

    def most_trials_of(self, architecture: str) -> int:
        """Return how many trials of one architecture it starts at most."""
        return self.n_trials()

    def overlaps_below(self) -> int:
        """Return the number of trials in training below which a bracket begins beside the one before it; 1: it begins
        after it."""
        return 1

    def bracket_of(self, position: int) -> int:
        """Return the bracket of the trial that is started at `position`, both from 0."""
        return 0

    def is_done(self, history: Sequence[TrialHistory]) -> bool:
        """Return whether no trial will ever be started or continued again."""
        is_busy = any(trial.is_open and trial.n_epochs < self.max_epochs for trial in history)
        return not is_busy and not self.ask(history)


def finite_or_worst(score: float) -> float:
    return score if math.isfinite(score) else WORST


def ranked(trials: Sequence[TrialHistory], scores: Mapping[int, float]) -> list[TrialHistory]:
    """Order trials by `scores` (by trial number), best first; ties go to the lower trial number."""
    return sorted(trials, key=lambda trial: (-scores[trial.trial_number], trial.trial_number))


def n_training(history: Sequence[TrialHistory], max_epochs: int) -> int:
    return sum(trial.is_training(max_epochs) for trial in history)
