"""ASHA (Li et al. 2020): successive halving without a barrier.

On every ask `n_parallel` trials are kept in training, from the top rung down: a trial among the best (through with the
rung) div eta that has not been promoted is promoted, else a new random config starts. A rung that no further trial can
reach promotes at least its best, so that one trial reaches max_epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from easeml_db.decisions.procedures.contract import (
    WORST,
    ContinueTrial,
    Description,
    PlannedRung,
    Procedure,
    SearchArguments,
    StartTrial,
    StopTrial,
    TrialDecision,
    TrialHistory,
    n_training,
    ranked,
)
from easeml_db.decisions.procedures.rungs import Rung, default_n_configs, planned, rung_totals
from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence


class AshaProcedure(Procedure):
    """Without `n_configs` as many as successive halving takes."""

    description: ClassVar[Description] = Description(
        "successive halving without waiting: promotes each trial in the best 1/eta so far",
        options=("eta", "min_epochs", "increments", "n_parallel"),
    )

    def __init__(self, arguments: SearchArguments) -> None:
        super().__init__(arguments)
        self._eta, first = self._options.eta(), self._options.min_epochs(self.max_epochs)
        self._totals = rung_totals(first, self.max_epochs, self._eta, increments=self._options.flag("increments"))
        n_wanted = self._n_wanted or default_n_configs(self.max_epochs, self._eta, first)
        self._configs = ConfigSequence(arguments.space, arguments.seed)
        self._n_configs = self._configs.count(n_wanted)
        self._n_parallel = self._options.n_parallel()

    def preview(self) -> list[PlannedRung]:
        """Return caps: every result beyond the first eta - 1 of a rung may bring one promotion, not more."""
        counts = [self._n_configs]
        for _ in self._totals[1:]:
            counts.append(max(1, counts[-1] - self._eta + 1))
        return planned([tuple(Rung(*row) for row in zip(counts, self._totals, strict=True))])

    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Promote and start until `n_parallel` trials train; stop trials that can no longer be promoted."""
        standings = self._standings(history)
        n_free = max(0, self._n_parallel - n_training(history, self.max_epochs))
        stops = [StopTrial(number) for standing in standings for number in standing.out]
        continues = [decision for standing in standings[::-1] for decision in standing.promotable][:n_free]
        configs = self._configs.first(self._n_configs)[len(history) :][: n_free - len(continues)]
        return [*stops, *continues, *(StartTrial(config, self._totals[0]) for config in configs)]

    def _standings(self, history: Sequence[TrialHistory]) -> list[_Standing]:
        standings = []
        is_closed = len(history) >= self._n_configs
        for here, following in pairwise(self._totals):
            standing = self._standing(history, here, following, is_closed)
            is_closed = standing.is_settled
            standings.append(standing)
        return standings

    def _standing(self, history: Sequence[TrialHistory], here: int, following: int, is_closed: bool) -> _Standing:
        """Judge one rung; `is_closed`: no trial that is not yet in it can get there."""
        members = [trial for trial in history if trial.target(self.max_epochs) >= here]
        done = [trial for trial in members if trial.n_epochs >= here or not trial.is_open]
        is_closed = is_closed and len(done) == len(members)
        best = ranked(done, {trial.trial_number: trial.score_at(here) for trial in done})
        n_best = max(int(is_closed), len(done) // self._eta)
        waiting = [trial for trial in best if trial.is_open and trial.target(self.max_epochs) == here]
        chosen = {t.trial_number for t in best[:n_best] if t.score_at(here) > WORST}
        promotable = [ContinueTrial(t.trial_number, following) for t in waiting if t.trial_number in chosen]
        out = [t.trial_number for t in waiting if is_closed and t.trial_number not in chosen]
        return _Standing(promotable, out, is_settled=is_closed and not promotable)


@dataclass(frozen=True)
class _Standing:
    """One rung: the trials that may be promoted now, best first, those that are out, and whether that is final."""

    promotable: list[ContinueTrial]
    out: list[int]
    is_settled: bool
