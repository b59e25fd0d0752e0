"""BOHB (Falkner et al. 2018), asynchronous: Hyperband's brackets, with configs drawn by a model.

A free place (`n_parallel` in all) goes to a trial of a bracket under way that may go on, else to a new trial of
that bracket, else to the next bracket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from easeml_db.decisions.procedures.brackets import BracketProcedure
from easeml_db.decisions.procedures.contract import Description, TrialHistory
from easeml_db.decisions.procedures.drawing import ConfigSequence
from easeml_db.decisions.procedures.largest_budget import LargestBudgetModel
from easeml_db.decisions.procedures.options import Options, checked_max_epochs, checked_n_configs
from easeml_db.decisions.procedures.rungs import checked_hyperband, fitted
from easeml_db.decisions.search_space.configs import Config
from easeml_db.decisions.search_space.parsing import SearchSpace


class BohbProcedure(BracketProcedure):
    """The number of trials is Hyperband's; `n_configs` cuts the last brackets."""

    description: ClassVar[Description] = Description(
        "Hyperband whose configs are drawn by a model of the results at the largest budget",
        options=("eta", "min_epochs", "n_parallel"),
    )
    starts_whole_brackets = False

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
        configs = ConfigSequence(space, seed)
        brackets = fitted(brackets, configs.count(sum(bracket[0].n_trials for bracket in brackets)), eta)
        super().__init__(brackets, max_epochs=last, n_parallel=self._width(read))
        self._model = LargestBudgetModel(space, configs, seed, self.brackets)

    def next_config(self, history: Sequence[TrialHistory], started: Sequence[Config]) -> Config | None:
        return self._model.next_config(history, started)

    def _width(self, read: Options) -> int:
        return read.n_parallel()
