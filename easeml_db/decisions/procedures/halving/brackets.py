"""Brackets of rungs, one after the other: what successive halving, Hyperband and BOHB have in common.

Trials are started in the order of the brackets, so a trial's number says which bracket it is in. Within a
bracket rungs are synchronous (`promotion`). A new bracket begins when fewer than `n_parallel` trials train,
either with all its trials at once, or with as many as `n_parallel` lets train, others following one by one.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from easeml_db.decisions.procedures.contract import (
    ContinueTrial,
    PlannedRung,
    Procedure,
    SearchArguments,
    StartTrial,
    StopTrial,
    TrialDecision,
    TrialHistory,
    n_training,
)
from easeml_db.decisions.procedures.halving.promotion import bracket_decisions
from easeml_db.decisions.procedures.rungs import Bracket, planned
from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence
from easeml_db.decisions.search_space.configs import Config


class BracketProcedure(Procedure):
    """Walks through its brackets, with random configs; a subclass says which brackets, and may draw the configs."""

    starts_whole_brackets = True
    is_early = True

    def __init__(self, arguments: SearchArguments) -> None:
        super().__init__(arguments)
        self._configs = ConfigSequence(arguments.space, arguments.seed)
        self.brackets = tuple(self._planned_brackets(self._options.eta()))
        self._n_parallel = self._width()
        self._firsts = [0, *accumulate(bracket[0].n_trials for bracket in self.brackets)]

    @abstractmethod
    def _planned_brackets(self, eta: int) -> Sequence[Bracket]:
        """Return the brackets in their order, with no more trials than there are configs."""

    def _width(self) -> int:
        """Return the number of trials in training below which a new bracket begins."""
        return self._options.n_parallel()

    def next_config(self, history: Sequence[TrialHistory], started: Sequence[Config]) -> Config | None:
        """Return the config of the trial after those of `history` and the configs just `started`."""
        return self._configs.at(len(history) + len(started))

    def preview(self) -> list[PlannedRung]:
        return planned(self.brackets)

    def overlaps_below(self) -> int:
        return self._n_parallel

    def bracket_of(self, position: int) -> int:
        return bisect_right(self._firsts, position) - 1

    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Stop trials that are out, continue those that are safe, and start new trials if there is room."""
        continues, stops = self._within_brackets(history)
        n_busy = n_training(history, self.max_epochs)
        if not self.starts_whole_brackets:
            continues = continues[: max(0, self._n_parallel - n_busy)]
        starts = self._starts(history, n_busy + len(continues))
        return [*stops, *continues, *starts]

    def _within_brackets(self, history: Sequence[TrialHistory]) -> tuple[list[ContinueTrial], list[StopTrial]]:
        """Decide on the trials of every bracket that has begun, older brackets and higher rungs first."""
        continues: list[ContinueTrial] = []
        stops: list[StopTrial] = []
        for bracket, first in zip(self.brackets, self._firsts, strict=False):
            trials = history[first : first + bracket[0].n_trials]
            if trials:
                n_unstarted = bracket[0].n_trials - len(trials)
                more, less = bracket_decisions(bracket, trials, n_unstarted=n_unstarted, is_early=self.is_early)
                continues += more[::-1]
                stops += less
        return continues, stops

    def _starts(self, history: Sequence[TrialHistory], n_busy: int) -> list[StartTrial]:
        starts: list[StartTrial] = []
        for position, n_epochs in self._openings(len(history)):
            goes_with_others = self.starts_whole_brackets and position not in self._firsts
            if n_busy >= self._n_parallel and not goes_with_others:
                break
            config = self.next_config(history, [start.config for start in starts])
            if config is None:
                break
            starts.append(StartTrial(config, n_epochs))
            n_busy += 1
        return starts

    def _openings(self, n_started: int) -> Iterator[tuple[int, int]]:
        """Walk through (position, epochs of the first rung) of the trials that have not been started."""
        for bracket, first in zip(self.brackets, self._firsts, strict=False):
            for position in range(max(first, n_started), first + bracket[0].n_trials):
                yield position, bracket[0].n_epochs
