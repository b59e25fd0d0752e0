"""Where BOHB's configs come from: one third at random, the others from a model (hpbandster's defaults).

The model is learnt from the largest number of epochs at which at least d + 3 trials have results, d being the
hyperparameters that vary; the best 15 % of them are good. Without such a budget configs are random.
"""

from __future__ import annotations

from collections.abc import Sequence

from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.decisions.procedures.rungs import Bracket
from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence, generator, seed_of
from easeml_db.decisions.procedures.sampling.tree_parzen import Observation, TreeParzenModel
from easeml_db.decisions.search_space.configs import Config
from easeml_db.decisions.search_space.parsing import SearchSpace, Subspace

GOOD_PERCENT = 15
RANDOM_ONE_IN = 3


class LargestBudgetModel:
    """Draws the config of the next trial from the history alone."""

    def __init__(self, space: SearchSpace, configs: ConfigSequence, seed: int, brackets: Sequence[Bracket]) -> None:
        self._configs = configs
        self._seed = seed
        self._budgets = sorted({rung.n_epochs for bracket in brackets for rung in bracket}, reverse=True)
        self._n_needed = n_varied(space) + 3
        self._model = TreeParzenModel(space, n_good=n_good)

    def next_config(self, history: Sequence[TrialHistory], started: Sequence[Config]) -> Config | None:
        """Return a config for the trial after those of `history` and the configs just `started`."""
        configs = [*(trial.config for trial in history), *started]
        results = self._results(history)
        is_random = int(generator(self._seed, len(configs)).integers(RANDOM_ONE_IN)) == 0
        if not results or is_random:
            return self._configs.first_unseen(configs)
        pending = [*(trial.config for trial in history if trial.is_open and not trial.scores), *started]
        config = self._model.draw(results, pending, configs, seed=seed_of(self._seed, len(configs)))
        return config or self._configs.first_unseen(configs)

    def _results(self, history: Sequence[TrialHistory]) -> list[Observation]:
        """Return the results at the largest budget that has enough of them; a trial that failed on its way is one."""
        for budget in self._budgets:
            reached = [t for t in history if t.n_epochs >= budget or _failed_before(t, budget, self._budgets[0])]
            if len(reached) >= self._n_needed:
                return [Observation(trial.config, trial.score_at(budget)) for trial in reached]
        return []


def n_good(n_results: int) -> int:
    """Return 15 % of the results, at least one."""
    return max(1, GOOD_PERCENT * n_results // 100)


def n_varied(space: SearchSpace) -> int:
    """Count what varies within one config at most, the architecture included."""

    def count(subspace: Subspace) -> int:
        return sum(dimension.domain.n_values != 1 for dimension in subspace.dimensions)

    return int(len(space.subspaces) > 1) + max(count(subspace) for subspace in space.subspaces)


def _failed_before(trial: TrialHistory, budget: int, max_epochs: int) -> bool:
    return trial.status == "failed" and trial.target(max_epochs) >= budget
