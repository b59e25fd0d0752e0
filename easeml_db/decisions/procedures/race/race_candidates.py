"""What a race knows of one architecture: its trials in the order of their numbers, and what they promise.

spent       seconds that the candidate's epochs took, in the order in which they were measured
improvement a score above the candidate's best by more than the tolerance
promise     seconds that the next improvement is expected to take: the larger of those since the last improvement and
            those that the last one took; a candidate behind the best of the run must also close the gap at its own
            speed (the estimated cost for improvement of FLAML, Wang et al. 2021)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from easeml_db.decisions.procedures.contract import WORST, TrialHistory, finite_or_worst
from easeml_db.decisions.search_space.specs import RESERVED

TOLERANCE = 1e-4  # of the best score: less is no improvement
TRIAL_PATIENCE = 4  # epochs without improvement that a trial may have, and at least a third of all its epochs
CANDIDATE_PATIENCE = 20  # trials that end without improving on the candidate's best
LEAST_SECONDS = 1e-6
FURTHER_EPOCHS = 4  # that a candidate behind the best has to have time for, at least, to be served before others


def improves(score: float, best: float) -> bool:
    """Return whether a score is above the best so far by more than noise."""
    if best == WORST:
        return score > WORST
    return score > best + TOLERANCE * abs(best)


def best_until(trial: TrialHistory, n_epochs: int) -> float:
    """Return a trial's best score within its first epochs."""
    best = trial.best_scores
    return best[min(n_epochs, len(best)) - 1] if best and n_epochs > 0 else WORST


def best_of(trial: TrialHistory) -> float:
    """Return a trial's best score."""
    return best_until(trial, len(trial.scores))


def is_stalled(trial: TrialHistory) -> bool:
    """Return whether to stop training a trial: it no longer improves, or it has no finite score."""
    last, best = 0, WORST
    for epoch, score in enumerate(map(finite_or_worst, trial.scores), 1):
        if improves(score, best):
            last, best = epoch, score
    n_epochs = len(trial.scores)
    return n_epochs > 0 and (best == WORST or n_epochs - last >= max(TRIAL_PATIENCE, n_epochs // 3))


def is_waiting(trial: TrialHistory, max_epochs: int) -> bool:
    """Return whether a trial is at its target, and has epochs left."""
    return trial.is_open and not trial.is_training(max_epochs) and trial.n_epochs < max_epochs


def next_station(n_epochs: int, max_epochs: int) -> int:
    """Return after how many epochs a trial with `n_epochs` is reviewed again: half as many more."""
    return min(max_epochs, n_epochs + max(1, n_epochs // 2))


def seconds_left(trials: Sequence[TrialHistory], max_seconds: float | None) -> float:
    """Return the time that a run had left when its last epoch ended; infinity without a limit."""
    measured = [trial for trial in trials if trial.moments]
    if max_seconds is None or not measured:
        return math.inf
    began = min(trial.moments[0] - _seconds_per_epoch(trial) for trial in measured)
    return max_seconds - (max(trial.moments[-1] for trial in measured) - began)


class RaceTrial:
    """What follows from one trial's history alone."""

    def __init__(self, history: TrialHistory, max_epochs: int) -> None:
        self.history, self.architecture = history, str(history.config[RESERVED])
        self.is_waiting = is_waiting(history, max_epochs)
        self.is_stalled = self.is_waiting and is_stalled(history)
        self.is_busy = history.is_training(max_epochs) and not history.is_held


@dataclass(frozen=True)
class RaceCandidate:
    """The trials of one architecture."""

    trials: tuple[TrialHistory, ...]
    max_epochs: int
    eta: int

    def promotable(self) -> TrialHistory | None:
        """Return the trial to continue first: among the waiting trials in the best 1/eta of those that came this far
        (or the best of them), the one that has come furthest.
        """
        return self._promotable

    @property
    def is_spreading(self) -> bool:
        """Whether its next step would be to try a further config beside a trial that is in training."""
        return self.n_training > 0 and self._promotable is None

    @cached_property
    def is_settled(self) -> bool:
        """Whether its last trials brought no improvement, so that it tries no further config."""
        best, n_since = WORST, 0
        for trial in self.trials:
            if improves(best_of(trial), best):
                best, n_since = best_of(trial), 0
            elif not trial.is_training(self.max_epochs):
                n_since += 1
        return n_since >= CANDIDATE_PATIENCE

    @cached_property
    def n_training(self) -> int:
        """Number of trials that have epochs to do."""
        return sum(trial.is_training(self.max_epochs) for trial in self.trials)

    @cached_property
    def best(self) -> float:
        """The best score of all its trials."""
        return max(map(best_of, self.trials), default=WORST)

    @cached_property
    def is_held(self) -> bool:
        """Whether its arm is not open yet."""
        return any(trial.is_held and trial.is_open for trial in self.trials)

    @cached_property
    def seconds_per_epoch(self) -> float:
        """Seconds of an epoch of its first trial; 0 before one has ended."""
        return next((_seconds_per_epoch(trial) for trial in self.trials if trial.scores), 0.0)

    @cached_property
    def is_measured(self) -> bool:
        """Whether any of its trials has a score."""
        return any(trial.scores for trial in self.trials)

    def burden(self, best_of_run: float) -> float:
        """Return the burden by which candidates share the slots, least first: seconds spent times seconds to the next
        improvement, so that each candidate gets time in proportion to its promise per second.
        """
        spent, seconds = self._promise(best_of_run)
        return spent * seconds * (1 + self.n_training)

    def seconds_behind(self, leader: RaceCandidate) -> float:
        """Return the seconds that its best trial still has to train to reach the best score of the leader's best trial,
        if it stays slower than that one by the same factor as so far; as long as that one if it has no score. The time
        before its first epoch had ended does not count against it.
        """
        theirs, trial = leader._records, self._best_trial
        if not theirs or not self._records or trial is None:
            return theirs[-1][0] if theirs else 0.0
        epoch = _seconds_per_epoch(trial)
        reached = next(seconds for seconds, score in theirs if score >= self.best)
        return len(trial.scores) * epoch * (theirs[-1][0] / max(epoch, reached) - 1)

    @cached_property
    def _promotable(self) -> TrialHistory | None:
        waiting = [t for t in self.trials if is_waiting(t, self.max_epochs) and self._is_among_best(t)]
        return max(waiting, key=lambda trial: (trial.n_epochs, best_of(trial), -trial.trial_number), default=None)

    @cached_property
    def _best_trial(self) -> TrialHistory | None:
        return max(self.trials, key=best_of, default=None)

    @cached_property
    def _records(self) -> list[tuple[float, float]]:
        """(seconds in training until then, score) of each epoch of the best trial that was better than those before."""
        records: list[tuple[float, float]] = []
        trial = self._best_trial
        for n_epochs, score in enumerate(map(finite_or_worst, trial.scores if trial else ()), 1):
            if trial and score > (records[-1][1] if records else WORST):
                records.append((n_epochs * _seconds_per_epoch(trial), score))
        return records

    def _promise(self, best_of_run: float) -> tuple[float, float]:
        spent, best, marks, gain = self._progress
        promise = max(spent - marks[-1], marks[-1] - marks[max(0, len(marks) - 2)], LEAST_SECONDS)
        if not gain or best >= best_of_run:
            return spent, promise
        return spent, max(promise, 2 * (best_of_run - best) * (spent - marks[-2]) / gain)

    @cached_property
    def _progress(self) -> tuple[float, float, list[float], float]:
        """Return the seconds spent, the best score, the seconds until each improvement, and the gain of the last."""
        spent, best, marks, gain = 0.0, WORST, [0.0], 0.0
        for score, seconds in self._epochs():
            spent += seconds
            if improves(score, best):
                gain = score - best if best > WORST else 0.0
                best = score
                marks.append(spent)
        return spent, best, marks, gain

    def _epochs(self) -> Iterator[tuple[float, float]]:
        """Yield (score, seconds) of all epochs in the order in which they were measured."""
        measured = [
            (moment, trial.trial_number, epoch, score, _seconds_per_epoch(trial))
            for trial in self.trials
            for epoch, (moment, score) in enumerate(zip(_moments(trial), trial.scores, strict=True))
        ]
        in_order = sorted(measured, key=lambda entry: entry[:3])
        return ((finite_or_worst(score), seconds) for _, _, _, score, seconds in in_order)

    def _is_among_best(self, trial: TrialHistory) -> bool:
        rivals = self._rivals(len(trial.scores))
        n_better = len(rivals) - bisect_right(rivals, best_of(trial))
        return n_better < max(1, len(rivals) // self.eta)

    def _rivals(self, n_epochs: int) -> list[float]:
        """Return the best scores within so many epochs of the trials that came this far, in ascending order."""
        if n_epochs not in self._rivals_at:
            rivals = [best_until(other, n_epochs) for other in self.trials if len(other.scores) >= n_epochs]
            self._rivals_at[n_epochs] = sorted(rivals)
        return self._rivals_at[n_epochs]

    @cached_property
    def _rivals_at(self) -> dict[int, list[float]]:
        return {}


def _moments(trial: TrialHistory) -> Sequence[float]:
    return trial.moments or [0.0] * len(trial.scores)


def _seconds_per_epoch(trial: TrialHistory) -> float:
    """Return the seconds of an epoch; 1 if unknown."""
    return trial.seconds / len(trial.scores) if trial.seconds and trial.scores else 1.0
