"""A race of architectures against the clock: each free slot goes to the architecture that promises most per second.

Every architecture is a candidate, and one search sees them all. Each free place (`n_parallel` in all) goes to the
candidate with the least burden (`race_candidates`), which lets its best trial go on to the next station, or tries the
next config: those of the portfolio first, then random ones. A candidate whose arm is not open yet counts with the
longest first epoch so far; when its turn comes, nothing is decided until the coordinator has opened its arm on the slot
that the race let go. So if epochs are short, all candidates begin at once; if they are long, each waits until those
before it have had their chance. A candidate that cannot catch up in the time left, at its pace so far, comes last. The
race stops a trial that no longer improves and retires a candidate after a series of trials without improvement. The run
ends with its last candidate: its time budget is only the latest end.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from easeml_db.decisions.procedures.contract import (
    ContinueTrial,
    Description,
    PlannedRung,
    Procedure,
    SearchArguments,
    StartTrial,
    StopTrial,
    TrialDecision,
    TrialHistory,
)
from easeml_db.decisions.procedures.race.race_candidates import (
    FURTHER_EPOCHS,
    RaceCandidate,
    RaceTrial,
    next_station,
    seconds_left,
)
from easeml_db.decisions.procedures.rungs import Rung, planned
from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence
from easeml_db.decisions.search_space.configs import Config, key_of
from easeml_db.decisions.search_space.parsing import SearchSpace

HELD = 5.0  # burden of a candidate that is not open, in squares of the seconds of the longest epoch so far
DEFAULT_N_CONFIGS = 64  # of each architecture: what two minutes hold of small networks on a small table


class RaceProcedure(Procedure):
    """`n_configs` counts over all architectures. Measurements and their durations decide, so two runs with the same
    seed may train different trials; each of them can be replayed.
    """

    description: ClassVar[Description] = Description(
        "all architectures against the clock: slots go where the metric improves fastest, until nothing improves",
        options=("eta", "n_parallel", "ensemble", "refit"),
        is_run_wide=True,
    )

    def __init__(self, arguments: SearchArguments) -> None:
        super().__init__(arguments)
        self._eta, self._n_parallel = self._options.eta(), self._options.n_parallel()
        self._options.flag("ensemble")  # false: the end of the run makes none (sql/runs/ending.sql)
        self._options.flag("refit")  # false: no member trains again on validation rows (units/refitting.py)
        self._max_seconds = arguments.max_seconds
        self._configs = {
            subspace.architecture: _CandidateConfigs(
                ConfigSequence(SearchSpace((subspace,)), arguments.seed),
                arguments.portfolio.get(subspace.architecture, ()),
                self._n_wanted or DEFAULT_N_CONFIGS,
            )
            for subspace in arguments.space.subspaces
        }
        self._known: list[RaceTrial] = []
        self._raced: dict[str, RaceCandidate] = {}
        n_there = sum(configs.count() for configs in self._configs.values())
        self._n_configs = min(n_there, self._n_wanted or n_there)

    def preview(self) -> list[PlannedRung]:
        """Return caps, because the number of trials for which there is time is unknown."""
        return planned([tuple(Rung(self._n_configs, n_epochs) for n_epochs in dict.fromkeys((1, self.max_epochs)))])

    def most_trials_of(self, architecture: str) -> int:
        return self._configs[architecture].count()

    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Give up trials that improve no more, begin every candidate, and keep `n_parallel` trials in training."""
        decisions: list[TrialDecision] = []
        trials = list(history)
        while (decision := self._next(trials)) is not None:
            decisions.append(decision)
            _carry_out(decision, trials)
        return decisions

    def _next(self, trials: Sequence[TrialHistory]) -> TrialDecision | None:
        facts = self._facts(trials)
        stalled = next((fact for fact in facts if fact.is_stalled), None)
        if stalled is not None:
            return StopTrial(stalled.history.trial_number)
        candidates, n_left = self._candidates(facts), self._n_configs - len(trials)
        unstarted = next((name for name, candidate in candidates.items() if n_left > 0 and not candidate.trials), None)
        if unstarted is not None:
            return self._start(unstarted, 0)
        n_busy = sum(fact.is_busy for fact in facts)
        if n_busy >= self._n_parallel:
            return None
        for name in self._by_burden(candidates, seconds_left(trials, self._max_seconds)):
            if candidates[name].is_held:
                return None
            step = self._step(name, candidates[name], n_left > 0)
            if step is not None:
                return step
        waiting = next((fact for fact in facts if fact.is_waiting), None)
        return StopTrial(waiting.history.trial_number) if waiting is not None and not n_busy else None

    def _facts(self, trials: Sequence[TrialHistory]) -> list[RaceTrial]:
        """Return what follows from each trial; it is remembered of those that are the same objects as last time."""
        del self._known[len(trials) :]
        for place, trial in enumerate(trials):
            if place == len(self._known):
                self._known.append(RaceTrial(trial, self.max_epochs))
            elif self._known[place].history is not trial:
                self._known[place] = RaceTrial(trial, self.max_epochs)
        return self._known

    def _candidates(self, facts: Sequence[RaceTrial]) -> dict[str, RaceCandidate]:
        by_name: dict[str, list[TrialHistory]] = {name: [] for name, configs in self._configs.items() if configs.at(0)}
        for fact in facts:
            by_name[fact.architecture].append(fact.history)
        # A candidate whose trials are the same objects as last time keeps what was computed of it.
        self._raced = {name: self._candidate(name, mine) for name, mine in by_name.items()}
        return self._raced

    def _candidate(self, name: str, mine: Sequence[TrialHistory]) -> RaceCandidate:
        known = self._raced.get(name)
        if known is not None and len(known.trials) == len(mine) and all(map(operator.is_, known.trials, mine)):
            return known
        return RaceCandidate(tuple(mine), self.max_epochs, self._eta)

    def _by_burden(self, candidates: Mapping[str, RaceCandidate], left: float) -> list[str]:
        """Return the candidates in the order of service, with `left` seconds to go; those in their first epoch last."""
        leader = max(candidates.values(), key=lambda candidate: candidate.best)
        dearest = max((candidate.seconds_per_epoch for candidate in candidates.values()), default=0.0)
        # A first trial that failed or was stopped measures nothing, so its candidate keeps no other from opening.
        opened = [candidate for candidate in candidates.values() if candidate.n_training and not candidate.is_held]
        is_opening = dearest > 0 and not all(candidate.is_measured for candidate in opened)
        order = {name: k for k, name in enumerate(candidates)}

        def key(name: str) -> tuple[int, float, int, int]:
            candidate = candidates[name]
            if not candidate.is_held and not candidate.is_measured:
                return 2, 0.0, candidate.n_training, order[name]
            further = FURTHER_EPOCHS * (dearest if candidate.is_held else candidate.seconds_per_epoch)
            is_late = candidate.best < leader.best and max(further, candidate.seconds_behind(leader)) > left
            if candidate.is_held:
                return int(is_opening or is_late), HELD * dearest**2, 0, order[name]
            is_spread = candidate.best < leader.best and candidate.is_spreading
            return int(is_late or is_spread), candidate.burden(leader.best), candidate.n_training, order[name]

        return sorted(candidates, key=key)

    def _step(self, name: str, candidate: RaceCandidate, may_start: bool) -> TrialDecision | None:
        promoted = candidate.promotable()
        if promoted is not None:
            return ContinueTrial(promoted.trial_number, next_station(promoted.n_epochs, self.max_epochs))
        return None if not may_start or candidate.is_settled else self._start(name, len(candidate.trials))

    def _start(self, name: str, position: int) -> StartTrial | None:
        config = self._configs[name].at(position)
        return None if config is None else StartTrial(config, 1)


class _CandidateConfigs:
    """The configs of a candidate by position: the portfolio, then random ones, each once, `n_configs` at most."""

    def __init__(self, sequence: ConfigSequence, portfolio: Sequence[Config], n_configs: int) -> None:
        self._sequence, self._n_configs = sequence, n_configs
        self._configs = list({key_of(config): config for config in portfolio}.values())
        self._unseen: Iterator[Config] = sequence.unseen(list(self._configs))

    def at(self, position: int) -> Config | None:
        """Return the config at a position from 0; None where there are no more."""
        while len(self._configs) <= position < self._n_configs:
            config = next(self._unseen, None)
            if config is None:
                break
            self._configs.append(config)
        return self._configs[position] if position < min(len(self._configs), self._n_configs) else None

    def count(self) -> int:
        """Return how many there are."""
        self.at(self._n_configs - 1)
        return min(len(self._configs), self._n_configs)


def _carry_out(decision: TrialDecision, trials: list[TrialHistory]) -> None:
    """Change the history as the tables will be once the decision is carried out."""
    match decision:
        case StartTrial(config, n_epochs):
            trials.append(TrialHistory(0, config, "waiting", target_epochs=n_epochs))
        case ContinueTrial(number, n_epochs):
            _replace(trials, number, status="waiting", target_epochs=n_epochs)
        case StopTrial(number):
            _replace(trials, number, status="stopped")


def _replace(trials: list[TrialHistory], trial_number: int, **changes: object) -> None:
    place = next(k for k, trial in enumerate(trials) if trial.trial_number == trial_number)
    trials[place] = replace(trials[place], **changes)  # type: ignore[arg-type]
