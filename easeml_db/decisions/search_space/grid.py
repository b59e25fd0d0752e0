"""All configs of a search space, in a fixed order: the last hyperparameter changes fastest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from easeml_db.decisions.search_space.configs import Config, config_of
from easeml_db.decisions.search_space.parsing import Dimension, SearchSpace
from easeml_db.decisions.search_space.refusal import refusal
from easeml_db.decisions.search_space.specs import Value


def grid(space: SearchSpace) -> Iterator[Config]:
    """Walk through all configs, architecture by architecture; a float range must say its `n_points`."""
    for subspace in space.subspaces:
        for values in product(*(_grid_values(dimension) for dimension in subspace.dimensions)):
            yield config_of(subspace, values)


def grid_size(space: SearchSpace) -> int:
    """Count the configs of the grid without making them."""
    return sum(math.prod(_n_grid_values(d) for d in subspace.dimensions) for subspace in space.subspaces)


def _grid_values(dimension: Dimension) -> Sequence[Value]:
    values = dimension.domain.grid_values()
    if values is None:
        raise _needs_points(dimension)
    return values


def _n_grid_values(dimension: Dimension) -> int:
    n_values = dimension.domain.n_grid_values
    if n_values is None:
        raise _needs_points(dimension)
    return n_values


def _needs_points(dimension: Dimension) -> Exception:
    return refusal(
        dimension.path,
        expected="a list, or a range with n_points, for a grid",
        got="a range of endlessly many values",
        hint=f'Write "{dimension.name}": [...], add "n_points" to its range, or use procedure random.',
    )
