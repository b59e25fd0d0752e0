"""Successive halving (Jamieson, Talwalkar 2016): of n trials the best n div eta go on, and so on.

One bracket. At rung i a trial has min_epochs * eta^i epochs in total; with `increments` it trains as many more
(RubberBand). Where one trial is left, it runs on to max_epochs. Promotion is early where that is certain.
"""

from __future__ import annotations

from typing import ClassVar

from easeml_db.decisions.procedures.contract import Description
from easeml_db.decisions.procedures.halving.brackets import BracketProcedure
from easeml_db.decisions.procedures.rungs import Bracket, default_n_configs, halving_bracket


class SuccessiveHalvingProcedure(BracketProcedure):
    """Without `n_configs` as many as let one trial reach max_epochs by promotion, at least 8."""

    description: ClassVar[Description] = Description(
        "many configs for a few epochs; the best 1/eta of them go on, rung by rung",
        options=("eta", "min_epochs", "increments"),
    )

    def _planned_brackets(self, eta: int) -> list[Bracket]:
        last, first = self.max_epochs, self._options.min_epochs(self.max_epochs)
        n_trials = self._configs.count(self._n_wanted or default_n_configs(last, eta, first))
        return [halving_bracket(n_trials, first, last, eta, increments=self._options.flag("increments"))]

    def _width(self) -> int:
        return 1
