"""Hyperband (Li et al. 2018): brackets of successive halving, from many short trials to few long ones.

Configs are drawn at random and depend on the trial's number alone, so a later bracket may begin as soon as
fewer than `n_parallel` trials train: the same trials go equally far whatever `n_parallel` is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from easeml_db.decisions.procedures.brackets import BracketProcedure
from easeml_db.decisions.procedures.contract import Description, TrialHistory
from easeml_db.decisions.procedures.drawing import ConfigSequence
from easeml_db.decisions.procedures.options import Options, checked_max_epochs, checked_n_configs
from easeml_db.decisions.procedures.rungs import checked_hyperband, fitted
from easeml_db.decisions.search_space.configs import Config
from easeml_db.decisions.search_space.parsing import SearchSpace


class HyperbandProcedure(BracketProcedure):
    """The number of trials follows from max_epochs and eta; `n_configs` cuts the last brackets."""

    description: ClassVar[Description] = Description(
        "brackets of successive halving, from many short trials to few long ones",
        options=("eta", "min_epochs", "n_parallel"),
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
        eta = read.eta()
        brackets = checked_hyperband(last, eta, read.min_epochs(last), checked_n_configs(n_configs))
        self._configs = ConfigSequence(space, seed)
        self._n_trials = self._configs.count(sum(bracket[0].n_trials for bracket in brackets))
        super().__init__(fitted(brackets, self._n_trials, eta), max_epochs=last, n_parallel=read.n_parallel())

    def next_config(self, history: Sequence[TrialHistory], started: Sequence[Config]) -> Config | None:
        position = len(history) + len(started)
        return next(iter(self._configs.first(self._n_trials)[position:]), None)
