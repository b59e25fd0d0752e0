"""Grid search: every config of the search space, each trained to the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
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
from easeml_db.decisions.procedures.options import MAX_CONFIGS
from easeml_db.decisions.procedures.rungs import Rung, planned
from easeml_db.decisions.search_space.grid import grid, grid_size
from easeml_db.decisions.search_space.parsing import SearchSpace
from easeml_db.errors import InvalidArgument


class GridProcedure(Procedure):
    """`n_configs` only guards against surprise: a grid larger than it is refused, never cut."""

    description: ClassVar[Description] = Description("every config of the search space, trained to the end", True)

    def __init__(self, arguments: SearchArguments) -> None:
        super().__init__(arguments)
        self._size = _checked_size(arguments.space, self._n_wanted)
        self._space = arguments.space

    def ask(self, history: Sequence[TrialHistory]) -> list[TrialDecision]:
        """Start every config of the grid that has no trial yet."""
        return [StartTrial(config) for config in islice(grid(self._space), len(history), None)]

    def preview(self) -> list[PlannedRung]:
        return planned([(Rung(self._size, self.max_epochs),)])


def _checked_size(space: SearchSpace, n_configs: int | None) -> int:
    size = grid_size(space)
    if size > MAX_CONFIGS:
        raise InvalidArgument(
            f"search_space: expected a grid of at most {MAX_CONFIGS} configs, got {size}",
            hint="Name fewer choices, or use procedure random with n_configs.",
        )
    if n_configs is not None and n_configs < size:
        raise InvalidArgument(
            f"n_configs: expected at least {size}, the size of the grid, got {n_configs}",
            hint="Leave n_configs out to try the whole grid, or use procedure random.",
        )
    return size
