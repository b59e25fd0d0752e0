"""Grid search: every config of the search space, each trained to the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from easeml_db.errors import InvalidArgument
from easeml_db.procedures.contract import Decision, Start, TrialHistory
from easeml_db.search_space.grid import grid, grid_size
from easeml_db.search_space.parsing import SearchSpace

MAX_CONFIGS = 10_000


class GridProcedure:
    """`n_configs` only guards against surprise: a grid larger than it is refused, never cut."""

    def __init__(self, space: SearchSpace, *, n_configs: int | None = None, seed: int = 0) -> None:
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
        self._space = space

    def ask(self, history: Sequence[TrialHistory]) -> list[Decision]:
        """Start every config of the grid that has no trial yet."""
        configs = islice(grid(self._space), len(history), None)
        return [Start(config) for config in configs]
