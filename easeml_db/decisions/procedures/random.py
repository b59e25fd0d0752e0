"""Random search: n different configs drawn from the search space, each trained to the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from easeml_db.decisions.procedures.contract import (
    Description,
    PlannedRung,
    Procedure,
    StartTrial,
    TrialDecision,
    TrialHistory,
)
from easeml_db.decisions.procedures.drawing import ConfigSequence
from easeml_db.decisions.procedures.options import Options, checked_max_epochs, checked_n_configs
from easeml_db.decisions.procedures.rungs import Rung, planned
from easeml_db.decisions.search_space.parsing import SearchSpace

DEFAULT_N_CONFIGS = 8


class RandomProcedure(Procedure):
    """Fewer than `n_configs` where the space holds no more. The seed may be negative, as a bigint may be."""

    description: ClassVar[Description] = Description("configs drawn at random, trained to the end", True)

    def __init__(
        self,
        space: SearchSpace,
        *,
        n_configs: int | None = None,
        max_epochs: int,
        seed: int = 0,
        options: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        Options(options, self.description.options)
        self.max_epochs = checked_max_epochs(max_epochs)
        self._configs = ConfigSequence(space, seed)
        self._n_configs = self._configs.count(checked_n_configs(n_configs) or DEFAULT_N_CONFIGS)

    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Start every config of the sample that has no trial yet."""
        return [StartTrial(config) for config in self._configs.first(self._n_configs)[len(history) :]]

    def preview(self) -> list[PlannedRung]:
        return planned([(Rung(self._n_configs, self.max_epochs),)])
