"""Random search: n different configs drawn from the search space, each trained to the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from easeml_db.decisions.procedures.contract import (
    Description,
    PlannedRung,
    Procedure,
    SearchArguments,
    StartTrial,
    TrialDecision,
    TrialHistory,
)
from easeml_db.decisions.procedures.rungs import Rung, planned
from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence

DEFAULT_N_CONFIGS = 8


class RandomProcedure(Procedure):
    """Fewer than `n_configs` where the space holds no more. The seed may be negative, as a bigint may be."""

    description: ClassVar[Description] = Description("configs drawn at random, trained to the end", True)

    def __init__(self, arguments: SearchArguments) -> None:
        super().__init__(arguments)
        self._configs = ConfigSequence(arguments.space, arguments.seed)
        self._n_configs = self._configs.count(self._n_wanted or DEFAULT_N_CONFIGS)

    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Start every config of the sample that has no trial yet."""
        return [StartTrial(config) for config in self._configs.first(self._n_configs)[len(history) :]]

    def preview(self) -> list[PlannedRung]:
        return planned([(Rung(self._n_configs, self.max_epochs),)])
