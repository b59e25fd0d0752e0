"""Hyperband (Li et al. 2018): brackets of successive halving, from many short trials to few long ones.

Configs are drawn at random and depend on the trial's number alone, so a later bracket may begin as soon as
fewer than `n_parallel` trials train: the same trials go equally far whatever `n_parallel` is.
"""

from __future__ import annotations

from typing import ClassVar

from easeml_db.decisions.procedures.contract import Description
from easeml_db.decisions.procedures.halving.brackets import BracketProcedure
from easeml_db.decisions.procedures.rungs import Bracket, checked_hyperband, fitted


class HyperbandProcedure(BracketProcedure):
    """The number of trials follows from max_epochs and eta; `n_configs` cuts the last brackets."""

    description: ClassVar[Description] = Description(
        "brackets of successive halving, from many short trials to few long ones",
        options=("eta", "min_epochs", "n_parallel"),
    )

    def _planned_brackets(self, eta: int) -> list[Bracket]:
        first = self._options.min_epochs(self.max_epochs)
        brackets = checked_hyperband(self.max_epochs, eta, first, self._n_wanted)
        n_trials = self._configs.count(sum(bracket[0].n_trials for bracket in brackets))
        return fitted(brackets, n_trials, eta)
