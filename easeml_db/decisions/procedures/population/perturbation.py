"""How a copy in population based training differs from its parent.

A hyperparameter is drawn anew with probability 0.25, else multiplied by 0.8 or 1.2 (a range) or moved to the
next choice up or down (a list of numbers); other choices stay. A copy continues from its parent's state, so only
what leaves the form of that state alone may change: unless the user names others, the fractional
hyperparameters (learning_rate, weight_decay), never the architecture.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import cast

import numpy as np

from easeml_db.decisions.search_space.configs import Config, as_value
from easeml_db.decisions.search_space.domains import Choices, Domain, FloatRange
from easeml_db.decisions.search_space.parsing import SearchSpace
from easeml_db.decisions.search_space.specs import RESERVED, Value

RESAMPLE_PROBABILITY = 0.25
FACTORS = (0.8, 1.2)

Domains = Mapping[str, Mapping[str, Domain]]


def varied_names(space: SearchSpace) -> set[str]:
    """Return the hyperparameters that vary in any architecture."""
    return {d.name for subspace in space.subspaces for d in subspace.dimensions if d.domain.n_values != 1}


def perturbable(space: SearchSpace, names: Collection[str] | None) -> Domains:
    """Return by architecture and name what copies may change: those of `names`, or all fractional ones."""
    return {
        subspace.architecture: {
            d.name: d.domain
            for d in subspace.dimensions
            if d.domain.n_values != 1 and (_is_fractional(d.domain) if names is None else d.name in names)
        }
        for subspace in space.subspaces
    }


def perturbed(config: Config, domains: Domains, rng: np.random.Generator) -> Config:
    """Return a new config of the same architecture."""
    copy = dict(config)
    for name, domain in domains[str(config[RESERVED])].items():
        value = domain.draw(rng) if rng.random() < RESAMPLE_PROBABILITY else _moved(copy[name], domain, rng)
        copy[name] = list(value) if isinstance(value, tuple) else value
    return copy


def _moved(raw: object, domain: Domain, rng: np.random.Generator) -> Value:
    up = int(rng.integers(2))
    if isinstance(domain, Choices):
        return _neighbour(raw, domain, 1 if up else -1)
    value = cast("float", raw) * FACTORS[up]
    moved = min(max(value, domain.low), domain.high)
    return float(moved) if isinstance(domain, FloatRange) else round(moved)


def _neighbour(raw: object, domain: Choices, step: int) -> Value:
    """Return the next larger or smaller choice; the same one if there is none, or if the choices are not numbers."""
    if not domain.ordered:
        return as_value(raw)
    position = bisect_left(domain.ordered, cast("float", raw)) + step
    return domain.ordered[min(max(position, 0), len(domain.ordered) - 1)]


def _is_fractional(domain: Domain) -> bool:
    if isinstance(domain, Choices):
        return all(isinstance(option, float) for option in domain.options)
    return isinstance(domain, FloatRange)
