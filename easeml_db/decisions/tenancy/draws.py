"""Random draws of a policy, which a restart does not repeat."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from easeml_db.decisions.tenancy.contract import Costless

Same = TypeVar("Same", bound="Draws")


class Draws(Costless):
    """A generator for each decision, from the seed and the number of earlier decisions, so that a restart repeats no
    draw.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed, self._n = seed % 2**63, 0

    def copy(self: Same) -> Same:
        """Return independent generators in the present state."""
        return copy.copy(self)

    def generator(self) -> np.random.Generator:
        """Return the generator of the next decision."""
        self._n += 1
        return np.random.default_rng((self._seed, self._n))

    def renew(self, left: int | None = None) -> None:
        """Change nothing: the sequence of draws continues."""

    def memory(self) -> Mapping[str, Any]:
        """Return how many decisions were drawn."""
        return {"n_draws": self._n}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore the number."""
        self._n = int(memory["n_draws"])
