"""Random search: n different configs drawn from the search space, each trained to the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from easeml_db.procedures.contract import Decision, Start, TrialHistory
from easeml_db.search_space.parsing import SearchSpace
from easeml_db.search_space.sampling import sample

DEFAULT_N_CONFIGS = 8


class RandomProcedure:
    """Fewer than `n_configs` where the space holds no more. The seed may be negative, as a bigint may be."""

    def __init__(self, space: SearchSpace, *, n_configs: int | None = None, seed: int = 0) -> None:
        self._space = space
        self._n_configs = DEFAULT_N_CONFIGS if n_configs is None else n_configs
        self._seed = seed % 2**64

    def ask(self, history: Sequence[TrialHistory]) -> list[Decision]:
        """Start every config of the sample that has no trial yet."""
        configs = sample(self._space, self._n_configs, np.random.default_rng(self._seed))
        return [Start(config) for config in configs[len(history) :]]
