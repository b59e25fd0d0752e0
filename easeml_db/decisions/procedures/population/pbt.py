"""Population based training (Jaderberg et al. 2017), in rounds of `interval` epochs.

At the end of a round each of the worst fifth is given up and replaced by a copy of a random one of the best fifth: its
newest state (`StartTrial.parent`) and its config, perturbed. Failed trials count as worst; failed trials beyond the
worst fifth are not replaced. A trial that is in neither fifth, whatever the others do, goes on at once; the others wait
for the end of the round, so the result does not depend on the order in which trials end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
    ranked,
)
from easeml_db.decisions.procedures.options import MAX_CONFIGS, MAX_EPOCHS, Options
from easeml_db.decisions.procedures.population.perturbation import perturbable, perturbed, varied_names
from easeml_db.decisions.procedures.rungs import Rung, planned
from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence, generator
from easeml_db.decisions.search_space.configs import Config, key_of
from easeml_db.decisions.search_space.refusal import refusal

DEFAULT_POPULATION = 8
MAX_ROUNDS = 10_000
N_REDRAWS = 20


class PopulationProcedure(Procedure):
    """`n_configs` means the size of the population. `perturb` names what copies may change (see `perturbation`)."""

    description: ClassVar[Description] = Description(
        "a population trained side by side; the worst fifth is replaced by perturbed copies of the best",
        options=("population", "interval", "perturb"),
    )

    def __init__(self, arguments: SearchArguments) -> None:
        super().__init__(arguments)
        self._interval = self._options.whole_number("interval", 1, at_least=1, at_most=MAX_EPOCHS)
        _check_rounds(self.max_epochs, self._interval)
        self._domains = perturbable(arguments.space, self._options.names("perturb", varied_names(arguments.space)))
        self._seed = arguments.seed
        self._configs = ConfigSequence(arguments.space, arguments.seed)
        self._population = self._configs.count(_population(self._options, self._n_wanted))

    def preview(self) -> list[PlannedRung]:
        """Return the rounds; at most max(1, population div 5) trials of each are new copies."""
        ends = [*range(self._interval, self.max_epochs, self._interval), self.max_epochs]
        return planned([tuple(Rung(self._population, end) for end in ends)])

    def n_trials(self) -> int:
        """Count the founders and all copies."""
        n_rounds = -(-self.max_epochs // self._interval) - 1
        n_copies = max(1, self._population // 5) if self._population > 1 else 0
        return self._population + n_rounds * n_copies

    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Complete the population, or decide on the first round that is not settled."""
        decisions: list[TrialDecision] = [*self._founders(history)]
        for end in range(self._first_unsettled(history), self.max_epochs, self._interval):
            n_unstarted = self._population - len(history)
            standing = _standing(history, end, self.max_epochs, n_unstarted=max(0, n_unstarted))
            decisions += self._end_of_round(history, standing, end)
            if decisions or not standing.is_over:
                break
        return decisions

    def _first_unsettled(self, history: Sequence[TrialHistory]) -> int:
        """Return the first round at whose end an open trial waits; earlier rounds are decided.

        Without an open trial, it is the first round while founders are still to come, and no round afterwards.
        """
        latest = self.max_epochs if len(history) >= self._population else self._interval
        return min((trial.target(self.max_epochs) for trial in history if trial.is_open), default=latest)

    def _founders(self, history: Sequence[TrialHistory]) -> list[StartTrial]:
        end = min(self._interval, self.max_epochs)
        configs = self._configs.first(self._population)[len(history) :]
        return [StartTrial(config, end) for config in configs]

    def _end_of_round(self, history: Sequence[TrialHistory], standing: _Standing, end: int) -> list[TrialDecision]:
        """Return copies first: their parents must not have gone on."""
        following = min(end + self._interval, self.max_epochs)
        n_made = sum(trial.parent is not None and trial.inherited_epochs == end for trial in history)
        n_copies = standing.n_cut - n_made if standing.is_over and standing.parents else 0
        return [
            *self._copies(history, standing.parents, n_copies, following),
            *(StopTrial(number) for number in standing.out),
            *(ContinueTrial(number, following) for number in standing.going_on),
        ]

    def _copies(
        self, history: Sequence[TrialHistory], parents: Sequence[TrialHistory], n_copies: int, n_epochs: int
    ) -> list[StartTrial]:
        seen = {key_of(trial.config) for trial in history}
        copies = []
        for position in range(len(history), len(history) + n_copies):
            rng = generator(self._seed, position)
            parent = parents[int(rng.integers(len(parents)))]
            config = self._explored(parent.config, seen, rng)
            seen.add(key_of(config))
            copies.append(StartTrial(config, n_epochs, parent.trial_number))
        return copies

    def _explored(self, config: Config, seen: Collection[str], rng: np.random.Generator) -> Config:
        """Perturb a config, and repeat while the result is known; return a known one if no new one is found."""
        copy = config
        for _ in range(N_REDRAWS):
            copy = perturbed(config, self._domains, rng)
            if key_of(copy) not in seen:
                break
        return copy


@dataclass(frozen=True)
class _Standing:
    """One round: the size of either fifth, whether all trials are through, and what is certain about each."""

    n_cut: int
    is_over: bool
    parents: list[TrialHistory]
    out: list[int]
    going_on: list[int]


def _standing(history: Sequence[TrialHistory], end: int, max_epochs: int, *, n_unstarted: int) -> _Standing:
    """Judge the round that ends with `end` epochs; copies made at its end belong to the next one."""
    members = [t for t in history if t.target(max_epochs) >= end > t.inherited_epochs]
    done = [trial for trial in members if trial.n_epochs >= end or not trial.is_open]
    size, n_pending = len(members) + n_unstarted, len(members) - len(done) + n_unstarted
    n_cut = max(1, size // 5) if size > 1 else 0
    scores = {t.trial_number: _standing_score(t, end, max_epochs) for t in done}
    parents, out, going_on = [], [], []
    for position, trial in enumerate(ranked(done, scores)):
        if not trial.is_open or trial.target(max_epochs) > end:
            continue
        if scores[trial.trial_number] == WORST or (n_pending == 0 and position >= size - n_cut):
            out.append(trial.trial_number)
            continue
        if position < n_cut:
            parents.append(trial)
        if n_pending == 0 or n_cut <= position < size - n_cut - n_pending:
            going_on.append(trial.trial_number)
    return _Standing(n_cut, n_pending == 0, parents, out, going_on)


def _standing_score(trial: TrialHistory, end: int, max_epochs: int) -> float:
    """Return its score at the end of the round; the worst for a trial that ended there, which cannot be copied."""
    is_alive = trial.is_open or trial.target(max_epochs) > end
    return trial.score_at(end) if is_alive else WORST


def _check_rounds(max_epochs: int, interval: int) -> None:
    """Refuse a plan with more rounds than a user could read."""
    n_rounds = -(-max_epochs // interval)
    if n_rounds > MAX_ROUNDS:
        got = f"{n_rounds} with {max_epochs} epochs and interval {interval}"
        hint = "Raise procedure_options.interval, or lower max_epochs."
        raise refusal("max_epochs", expected=f"at most {MAX_ROUNDS} rounds", got=got, hint=hint)


def _population(read: Options, n_configs: int | None) -> int:
    if n_configs == 1:
        raise refusal("n_configs", expected="a population of at least 2", got="1")
    population = read.whole_number("population", n_configs or DEFAULT_POPULATION, at_least=2, at_most=MAX_CONFIGS)
    if n_configs is not None and n_configs != population:
        expected = f"the population, {population}, or nothing"
        raise refusal("n_configs", expected=expected, got=str(n_configs), hint="Say the population once.")
    return population
