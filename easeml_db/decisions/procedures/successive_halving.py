"""Successive halving (Jamieson, Talwalkar 2016): of n trials the best n div eta go on, and so on.

One bracket. At rung i a trial has min_epochs * eta^i epochs in total; with `increments` it trains as many more
(RubberBand). Where one trial is left, it runs on to max_epochs. Promotion is early where that is certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from easeml_db.decisions.procedures.brackets import BracketProcedure
from easeml_db.decisions.procedures.contract import Description, TrialHistory
from easeml_db.decisions.procedures.drawing import ConfigSequence
from easeml_db.decisions.procedures.options import Options, checked_max_epochs, checked_n_configs
from easeml_db.decisions.procedures.rungs import default_n_configs, halving_bracket
from easeml_db.decisions.search_space.configs import Config
from easeml_db.decisions.search_space.parsing import SearchSpace


class SuccessiveHalvingProcedure(BracketProcedure):
    """Without `n_configs` as many as let one trial reach max_epochs by promotion, at least 8."""

    description: ClassVar[Description] = Description(
        "many configs for a few epochs; the best 1/eta of them go on, rung by rung",
        options=("eta", "min_epochs", "increments"),
    )

    def __init__(
        self,
        space: SearchSpace,
        *,
        n_configs: int | None = None,
        max_epochs: int,
        seed: int = 0,
        options: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        last, read = checked_max_epochs(max_epochs), Options(options, self.description.options)
        eta, first = read.eta(), read.min_epochs(last)
        self._configs = ConfigSequence(space, seed)
        n_trials = self._configs.count(checked_n_configs(n_configs) or default_n_configs(last, eta, first))
        bracket = halving_bracket(n_trials, first, last, eta, increments=read.flag("increments"))
        super().__init__([bracket], max_epochs=last, n_parallel=1)

    def next_config(self, history: Sequence[TrialHistory], started: Sequence[Config]) -> Config | None:
        position = len(history) + len(started)
        return next(iter(self._configs.first(self.brackets[0][0].n_trials)[position:]), None)
