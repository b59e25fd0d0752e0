"""Promotion in a synchronous bracket, as early as it is certain.

When D of a rung's n trials have results and n_next go on, the best D - (n - n_next) are safe whatever the
others do, and those behind the best n_next are out: the same trials go on as with a barrier, only sooner.
A trial that failed, or has no finite score, is the worst and never goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from easeml_db.decisions.procedures.contract import WORST, ContinueTrial, StopTrial, TrialHistory, ranked
from easeml_db.decisions.procedures.rungs import Bracket


def bracket_decisions(
    bracket: Bracket, trials: Sequence[TrialHistory], *, n_unstarted: int = 0, is_early: bool = True
) -> tuple[list[ContinueTrial], list[StopTrial]]:
    """Return what is certain about the trials of one bracket; `n_unstarted` of it have no trial yet.

    With `is_early` false nothing is decided before all trials of a rung have results (the barrier of the papers).
    """
    continues: list[ContinueTrial] = []
    stops: list[StopTrial] = []
    n_to_come = n_unstarted
    for rung, following in pairwise(bracket):
        here = [trial for trial in trials if trial.target(bracket[-1].n_epochs) >= rung.n_epochs]
        done = _ranking(here, rung.n_epochs, bracket[-1].n_epochs)
        n_pending = len(here) - len(done) + n_to_come
        n_promoted = n_hopeful = 0
        for position, (trial, score) in enumerate(done):
            if trial.target(bracket[-1].n_epochs) > rung.n_epochs:
                n_promoted += 1
            elif not trial.is_open or (n_pending and not is_early):
                n_hopeful += trial.is_open
            elif position >= following.n_trials or score == WORST:
                stops.append(StopTrial(trial.trial_number))
            else:
                n_hopeful += 1
                if position + n_pending < following.n_trials:
                    continues.append(ContinueTrial(trial.trial_number, following.n_epochs))
        n_to_come = max(0, min(following.n_trials - n_promoted, n_pending + n_hopeful))
    return continues, stops


def _ranking(trials: Sequence[TrialHistory], n_epochs: int, max_epochs: int) -> list[tuple[TrialHistory, float]]:
    """Rank the trials that are through with a rung; one that ended without going on gives its place away."""
    done = [trial for trial in trials if trial.n_epochs >= n_epochs or not trial.is_open]
    scores = {
        trial.trial_number: trial.score_at(n_epochs) if trial.is_open or trial.target(max_epochs) > n_epochs else WORST
        for trial in done
    }
    return [(trial, scores[trial.trial_number]) for trial in ranked(done, scores)]
