"""Configs at random: architectures in turn, none twice, fewer when a finite space runs out.

The first k of n configs do not depend on n: a longer search with the same seed begins with the shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np

from easeml_db.decisions.search_space.configs import Config, as_json, config_of
from easeml_db.decisions.search_space.domains import Choices, Domain
from easeml_db.decisions.search_space.parsing import Dimension, SearchSpace, Subspace
from easeml_db.decisions.search_space.specs import Value

MAX_REDRAWS = 200
LARGEST_LISTED = 20_000  # a larger space does not run out: no run draws more than 10,000 configs


def sample(space: SearchSpace, n_configs: int, rng: np.random.Generator) -> list[Config]:
    """Draw at most `n_configs` different configs, one architecture after the other."""
    return list(islice(draws(space, rng), n_configs))


def draws(space: SearchSpace, rng: np.random.Generator) -> Iterator[Config]:
    """Draw different configs for as long as there are any, one architecture after the other."""
    drawers = [_Drawer(subspace) for subspace in space.subspaces]
    while drawers:
        for drawer in tuple(drawers):
            config = drawer.next(rng)
            if config is None:
                drawers.remove(drawer)
            else:
                yield config


def draw(dimensions: Sequence[Dimension], rng: np.random.Generator) -> list[Value]:
    """Draw the values of one config of one architecture, every hyperparameter on its own."""
    return [dimension.domain.draw(rng) for dimension in dimensions]


class _Drawer:
    """Draws without repetition from one subspace: by redrawing, then by listing what is left."""

    def __init__(self, subspace: Subspace) -> None:
        self._subspace = subspace
        self._open = [dimension for dimension in subspace.dimensions if not _is_settled(dimension.domain)]
        self._first = config_of(subspace, [next(iter(dimension.domain.values())) for dimension in subspace.dimensions])
        self._seen: set[str] = set()  # values as Python writes them: equal texts for equal configs only
        self._rest: list[Config] | None = None

    def next(self, rng: np.random.Generator) -> Config | None:
        if self._rest is None:
            for _ in range(MAX_REDRAWS):
                values = draw(self._open, rng)
                key = repr(values)
                if key not in self._seen:
                    self._seen.add(key)
                    return self._config(values)
            self._rest = self._shuffled_rest(rng)
        return self._rest.pop() if self._rest else None

    def _config(self, values: Sequence[Value]) -> Config:
        config = self._first.copy()
        for dimension, value in zip(self._open, values, strict=True):
            config[dimension.name] = as_json(value) if isinstance(value, tuple) else value
        return config

    def _shuffled_rest(self, rng: np.random.Generator) -> list[Config]:
        """List what was not drawn yet; a space too large to list counts as run out."""
        n_values = self._subspace.n_values
        if n_values is None or n_values > LARGEST_LISTED:
            return []
        domains = [dimension.domain.values() for dimension in self._open]
        rest = [values for values in product(*domains) if repr(list(values)) not in self._seen]
        return [self._config(rest[int(position)]) for position in rng.permutation(len(rest))]


def _is_settled(domain: Domain) -> bool:
    """Return whether a domain has a single value, not a list, so that nothing is drawn: most of a config."""
    return isinstance(domain, Choices) and len(domain.options) == 1 and not isinstance(domain.options[0], tuple)
