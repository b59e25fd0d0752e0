"""The model of TPE and BOHB: Optuna's TPESampler, used as a stateless function.

A study in memory is made of the results; the sampler is seeded for the trial that is to be drawn. Trials without a
result count as running, so that the next draw keeps away from them. A study serves further draws from the same
results, as in a bracket that begins: making it takes as long as a draw. Draws leave nothing in it that counts.
Optuna takes a second to import, so it is imported where it is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from easeml_db.decisions.procedures.contract import WORST
from easeml_db.decisions.search_space.configs import Config, as_value, config_of, key_of
from easeml_db.decisions.search_space.domains import Choices, Domain, FloatRange
from easeml_db.decisions.search_space.parsing import SearchSpace, Subspace
from easeml_db.decisions.search_space.specs import RESERVED, Value, value_key

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

N_REDRAWS = 20


class Observation(NamedTuple):
    """A config and its score, higher is better; WORST for a failure."""

    config: Config
    score: float


class TreeParzenModel:
    """Draws configs where good ones are dense: the architecture first, then its hyperparameters.

    `n_good(n)` says how many of n results count as good; None leaves it to Optuna.
    """

    def __init__(self, space: SearchSpace, *, n_good: Callable[[int], int] | None = None) -> None:
        self._subspaces = {subspace.architecture: subspace for subspace in space.subspaces}
        self._n_good = n_good
        self._kept: tuple[Sequence[Observation], Sequence[Config], Study] | None = None

    def draw(
        self, observations: Sequence[Observation], pending: Sequence[Config], seen: Iterable[Config], *, seed: int
    ) -> Config | None:
        """Return a config that is none of `known`; None when so many draws gave only known ones."""
        keys = {key_of(config) for config in seen}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of features that Optuna calls experimental or is to rename
            study = self._study(observations, pending)
            study.sampler = self._sampler(seed)
            drawn = self._drawn(study, keys)
        self._kept = list(observations), list(pending), study
        return drawn

    def _drawn(self, study: Study, keys: Set[str]) -> Config | None:
        """Return the first config drawn that is none of those with these keys."""
        from optuna.trial import TrialState

        asked: list[Trial] = []
        unseen = None
        while unseen is None and len(asked) < N_REDRAWS:
            asked.append(study.ask())
            config = self._config(asked[-1])
            unseen = None if key_of(config) in keys else config
        for trial in asked:
            study.tell(trial, state=TrialState.FAIL)  # samplers pass over it
        return unseen

    def _study(self, observations: Sequence[Observation], pending: Sequence[Config]) -> Study:
        """Return a study of the results and pending trials: that of the last draw, if only pending ones have come."""
        import optuna

        kept, self._kept = self._kept, None
        n_there = len(kept[1]) if kept is not None else 0
        if kept is not None and kept[0] == observations and kept[1] == pending[:n_there]:
            study, n_known = kept[2], n_there
        else:
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            study, n_known = optuna.create_study(direction="maximize"), 0
            worst = min((score for _, score in observations if score > WORST), default=0.0)
            for config, score in observations:
                self._add(study, config, "COMPLETE", score if score > WORST else worst - 1.0 - abs(worst))
        for config in pending[n_known:]:
            self._add(study, config, "RUNNING", None)
        return study

    def _sampler(self, seed: int) -> BaseSampler:
        import optuna

        return optuna.samplers.TPESampler(
            n_startup_trials=0,
            seed=seed % 2**32,
            multivariate=True,
            group=len(self._subspaces) > 1,
            constant_liar=True,
            gamma=self._n_good,
        )

    def _add(self, study: Study, config: Config, state: str, score: float | None) -> None:
        from optuna.trial import TrialState, create_trial

        subspace = self._subspaces[str(config[RESERVED])]
        distributions, values = self._distributions(subspace), self._values(subspace, config)
        trial = create_trial(state=TrialState[state], value=score, params=values, distributions=distributions)
        study.add_trial(trial)

    def _distributions(self, subspace: Subspace) -> dict[str, BaseDistribution]:
        """Return a distribution for all that varies: choices by position, so that any value may be one."""
        from optuna.distributions import CategoricalDistribution

        distributions: dict[str, BaseDistribution] = {}
        if len(self._subspaces) > 1:
            distributions[RESERVED] = CategoricalDistribution(tuple(self._subspaces))
        for dimension in subspace.dimensions:
            if dimension.domain.n_values != 1:
                distributions[f"{subspace.architecture}.{dimension.name}"] = _distribution(dimension.domain)
        return distributions

    def _values(self, subspace: Subspace, config: Config) -> dict[str, object]:
        values: dict[str, object] = {RESERVED: subspace.architecture} if len(self._subspaces) > 1 else {}
        for dimension in subspace.dimensions:
            if dimension.domain.n_values != 1:
                name = f"{subspace.architecture}.{dimension.name}"
                values[name] = _internal(dimension.domain, config[dimension.name])
        return values

    def _config(self, trial: Trial) -> Config:
        names = tuple(self._subspaces)
        subspace = self._subspaces[trial.suggest_categorical(RESERVED, names) if len(names) > 1 else names[0]]
        prefix = f"{subspace.architecture}."
        return config_of(subspace, [_suggested(trial, prefix + d.name, d.domain) for d in subspace.dimensions])


def _distribution(domain: Domain) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Choices):
        return CategoricalDistribution(tuple(range(len(domain.options))))
    if isinstance(domain, FloatRange):
        return FloatDistribution(domain.low, domain.high, log=domain.log)
    return IntDistribution(domain.low, domain.high, log=domain.log)


def _suggested(trial: Trial, name: str, domain: Domain) -> Value:
    if domain.n_values == 1:
        return domain.values()[0]
    if isinstance(domain, Choices):
        return domain.options[trial.suggest_categorical(name, tuple(range(len(domain.options))))]
    if isinstance(domain, FloatRange):
        return min(max(trial.suggest_float(name, domain.low, domain.high, log=domain.log), domain.low), domain.high)
    return trial.suggest_int(name, domain.low, domain.high, log=domain.log)


def _internal(domain: Domain, value: object) -> object:
    """Return a value of a config as Optuna knows it."""
    if not isinstance(domain, Choices):
        return value
    return domain.positions[value_key(as_value(value))]
