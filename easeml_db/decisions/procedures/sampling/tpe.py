"""TPE (Bergstra et al. 2011): configs where good ones are dense, each trained to the end.

The first `n_startup` results come from random configs; then a model of all results so far draws (`tree_parzen`).
`n_parallel` trials are kept in training. A trial counts with its best epoch, a failed one as the worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import ClassVar

from easeml_db.decisions.procedures.contract import (
    WORST,
    Description,
    PlannedRung,
    Procedure,
    SearchArguments,
    StartTrial,
    TrialDecision,
    TrialHistory,
    finite_or_worst,
    n_training,
)
from easeml_db.decisions.procedures.options import MAX_CONFIGS
from easeml_db.decisions.procedures.rungs import Rung, planned
from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence, seed_of
from easeml_db.decisions.procedures.sampling.tree_parzen import Observation, TreeParzenModel
from easeml_db.decisions.search_space.configs import Config

DEFAULT_N_CONFIGS = 32
DEFAULT_N_STARTUP = 10


class TpeProcedure(Procedure):
    """A smaller `n_parallel` learns more from the same number of configs and uses fewer slots."""

    description: ClassVar[Description] = Description(
        "a model of earlier results draws each next config, which is trained to the end",
        options=("n_parallel", "n_startup"),
    )

    def __init__(self, arguments: SearchArguments) -> None:
        super().__init__(arguments)
        self._n_parallel = self._options.n_parallel()
        self._n_startup = self._options.whole_number("n_startup", DEFAULT_N_STARTUP, at_least=1, at_most=MAX_CONFIGS)
        self._seed = arguments.seed
        self._configs = ConfigSequence(arguments.space, arguments.seed)
        self._n_configs = self._configs.count(self._n_wanted or DEFAULT_N_CONFIGS)
        self._model = TreeParzenModel(arguments.space)

    def preview(self) -> list[PlannedRung]:
        return planned([(Rung(self._n_configs, self.max_epochs),)])

    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Start new trials until `n_parallel` are in training."""
        n_free = self._n_parallel - n_training(history, self.max_epochs)
        configs = [trial.config for trial in history]
        n_new = max(0, min(n_free, self._n_configs - len(configs)))
        results = self._results(history)
        if len(results) < self._n_startup:
            return [StartTrial(config) for config in islice(self._configs.unseen(configs), n_new)]
        starts: list[TrialDecision] = []
        while len(starts) < n_new:
            config = self._drawn(results, history, configs)
            if config is None:
                break
            starts.append(StartTrial(config))
            configs.append(config)
        return starts

    def _drawn(
        self, results: Sequence[Observation], history: Sequence[TrialHistory], configs: Sequence[Config]
    ) -> Config | None:
        pending = [trial.config for trial in history if trial.is_training(self.max_epochs)] + list(
            configs[len(history) :]
        )
        config = self._model.draw(results, pending, configs, seed=seed_of(self._seed, len(configs)))
        return config or self._configs.first_unseen(configs)

    def _results(self, history: Sequence[TrialHistory]) -> list[Observation]:
        ended = [trial for trial in history if not trial.is_training(self.max_epochs)]
        return [Observation(t.config, _best(t)) for t in ended if t.scores or t.status == "failed"]


def _best(trial: TrialHistory) -> float:
    """Return the score of its best epoch; a trial that failed is the worst, whatever it had before."""
    if trial.status == "failed":
        return WORST
    return max((finite_or_worst(score) for score in trial.scores), default=WORST)
