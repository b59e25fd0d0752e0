"""BOHB (Falkner et al. 2018), asynchronous: Hyperband's brackets, with configs drawn by a model.

A free place (`n_parallel` in all) goes to a trial of a bracket under way that may go on, else to a new trial of
that bracket, else to the next bracket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from easeml_db.decisions.procedures.contract import Description, SearchArguments, TrialHistory
from easeml_db.decisions.procedures.halving.hyperband import HyperbandProcedure
from easeml_db.decisions.procedures.halving.largest_budget import LargestBudgetModel
from easeml_db.decisions.search_space.configs import Config


class BohbProcedure(HyperbandProcedure):
    """The number of trials is Hyperband's; `n_configs` cuts the last brackets."""

    description: ClassVar[Description] = Description(
        "Hyperband whose configs are drawn by a model of the results at the largest budget",
        options=("eta", "min_epochs", "n_parallel"),
    )
    starts_whole_brackets = False

    def __init__(self, arguments: SearchArguments) -> None:
        super().__init__(arguments)
        self._model = LargestBudgetModel(arguments.space, self._configs, arguments.seed, self.brackets)

    def next_config(self, history: Sequence[TrialHistory], started: Sequence[Config]) -> Config | None:
        return self._model.next_config(history, started)
