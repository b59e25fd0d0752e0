"""Random configs for procedures: one seeded sequence of distinct configs, the same for every procedure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from easeml_db.decisions.search_space.configs import Config, key_of
from easeml_db.decisions.search_space.parsing import SearchSpace
from easeml_db.decisions.search_space.sampling import draws


class ConfigSequence:
    """The random configs of a run: the first k do not depend on how many are asked for. Any whole seed is fine."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._draws = draws(space, np.random.default_rng(seed % 2**64))
        self._configs: list[Config] = []
        self._sequence_keys: list[str] = []
        self._seen = _Keys()

    def first(self, n_configs: int) -> list[Config]:
        """Return `n_configs` configs, fewer where the space holds no more."""
        self._configs += islice(self._draws, max(n_configs - len(self._configs), 0))
        return self._configs[:n_configs]

    def at(self, position: int) -> Config | None:
        """Return the config at a position from 0; None where the space holds no more."""
        if len(self._configs) <= position:
            self.first(position + 1)
        return self._configs[position] if position < len(self._configs) else None

    def count(self, n_configs: int) -> int:
        """Return `n_configs`, or how many different configs there are where these are fewer."""
        return len(self.first(n_configs))

    def first_unseen(self, seen: Iterable[Config]) -> Config | None:
        """Return the first config of the sequence that is none of `seen`; None when all have been seen."""
        return next(self.unseen(seen), None)

    def unseen(self, seen: Iterable[Config]) -> Iterator[Config]:
        """Yield the configs of the sequence that are none of `seen`, each once, in their order."""
        keys = self._seen.of(seen)
        position = 0
        while (config := self.at(position)) is not None:
            if position == len(self._sequence_keys):
                self._sequence_keys.append(key_of(config))
            if self._sequence_keys[position] not in keys:
                yield config
            position += 1


class _Keys:
    """Keys of configs, each worked out once for as long as the same object is asked about again."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[Config, str]] = {}  # by identity; the config is kept, so that it stays its own

    def of(self, configs: Iterable[Config]) -> set[str]:
        self._keys = {id(config): self._keys.get(id(config)) or (config, key_of(config)) for config in configs}
        return {key for _, key in self._keys.values()}


def generator(seed: int, trial_number: int) -> np.random.Generator:
    """Return the generator for the decisions on one new trial."""
    return np.random.default_rng(np.random.SeedSequence([seed % 2**64, trial_number]))


def seed_of(seed: int, trial_number: int) -> int:
    """Return 32 bits that follow from the seed of the run and the number of one new trial."""
    return int(generator(seed, trial_number).integers(2**32))
