"""Datasets by name, and everything that presets need of them, replayed once however many presets share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_experiments.contract import Options
from easeml_experiments.tenants.curves import draws_of
from easeml_experiments.tenants.decision import Size, measure_decisions
from easeml_experiments.tenants.matrices import Matrices, read_matrices
from easeml_experiments.tenants.protocol import N_REPEATS, Cell, Replayed, check_repeats, check_tested, replay_cell
from easeml_experiments.tenants.regrets import N_ROUNDS, POLICIES, Case, regrets_of
from easeml_experiments.tenants.strategies import strategy
from easeml_experiments.tenants.synthetic import SETTINGS, ranked, synthetic
from easeml_experiments.tenants.workers import Workers, workers

REAL: Mapping[str, tuple[str, str | None]] = {
    "DEEPLEARNING": ("deeplearning_22x8_quality.csv", "deeplearning_22x8_cost.csv"),
    "179CLASSIFIER": ("classifier179_quality.csv", None),
    "OBOE": ("oboe_quality.csv", "oboe_cost.csv"),
    "LCDB": ("lcdb_199x20_quality.csv", "lcdb_199x20_cost.csv"),
}
UNAVAILABLE = "AZUREMLBENCH"
RANKED = "RANKED"
SYN = tuple(f"SYN({s_m:g},{alpha:g})" for s_m, alpha in SETTINGS)
LITERAL = tuple(f"{name} literal" for name in SYN)
QUICK_REPEATS, QUICK_ROUNDS, QUICK_USERS, QUICK_MODELS, QUICK_TESTED = 3, 400, 24, 8, 4


class ReplayCache:
    """`say` is told what goes on; quick: small synthetic matrices in place of all others, little of everything."""

    def __init__(self, options: Options, data: Path | None, pool: Workers) -> None:
        self.options, self._data, self._workers = options, data, pool
        self.n_repeats = check_repeats(options.values.get("repeats", N_REPEATS))
        if options.is_quick:
            self.n_repeats = QUICK_REPEATS
        self._replayed: dict[Cell, Replayed] = {}
        self._matrices = cache(self._read)

    # Datasets

    def has(self, name: str) -> bool:
        """Say whether there are matrices of this name."""
        return self._matrices(name) is not None

    def matrices(self, name: str) -> Matrices:
        """Return the matrices of a name. Raises LookupError where there are none."""
        found = self._matrices(name)
        if found is None:
            raise LookupError(name)
        return found

    def _read(self, name: str) -> Matrices | None:
        seed = self.options.seed
        if self.options.is_quick:
            return synthetic(0.5, 1.0, seed=seed, n_users=QUICK_USERS, n_models=QUICK_MODELS)
        if name == RANKED:
            return ranked(seed=seed)
        if name not in REAL:
            s_m, alpha = SETTINGS[(SYN + LITERAL).index(name) % len(SYN)]
            return replace(synthetic(s_m, alpha, seed=seed, is_literal=name in LITERAL), name=name)
        quality, cost = REAL[name]
        if self._data is None or not (self._data / quality).exists():
            return None
        return read_matrices(name, self._data / quality, self._data / cost if cost else None, seed=seed)

    # Replays

    def replay(self, needs: Mapping[Cell, Iterable[str]]) -> None:
        """Replay strategies on cells, as far as their data are there."""
        for cell, names in needs.items():
            if self.has(cell.data):
                chosen = list(names)
                self.options.say(f"{_words(cell)}: {len(chosen)} strategies")
                self._replayed[cell] = self._run(cell, chosen)

    def _run(self, cell: Cell, names: Iterable[str]) -> Replayed:
        matrices, seed = self.matrices(cell.data), self.options.seed
        run = replace(cell, n_tested=QUICK_TESTED) if self.options.is_quick else cell
        check_tested(matrices, run.n_tested)
        return replay_cell(matrices, run, [strategy(name) for name in names], self.n_repeats, seed, self._workers)

    def __getitem__(self, cell: Cell) -> Replayed:
        """Return what was replayed."""
        return self._replayed[cell]

    @cached_property
    def draws(self) -> NDArray[np.int_]:
        """Repeats drawn for all intervals."""
        return draws_of(self.n_repeats, self.options.seed)

    # What is not a replay of matrices

    @cached_property
    def regrets(self) -> dict[Case, NDArray[np.float64]]:
        """Regret curves by setting and policy."""
        settings = SETTINGS[-1:] if self.options.is_quick else SETTINGS
        n_rounds = QUICK_ROUNDS if self.options.is_quick else N_ROUNDS
        cases = [Case(*setting, policy, lit) for lit in (False, True) for setting in settings for policy in POLICIES]
        self.options.say(f"regret of {len(cases)} cases, {n_rounds} rounds each")
        found = self._workers.map(regrets_of, [(case, self.options.seed, n_rounds) for case in cases])
        return dict(zip(cases, found, strict=True))

    @cached_property
    def decisions(self) -> list[dict[str, Any]]:
        """What a decision costs, on one core of a new process."""
        size = Size(50, 10, 50) if self.options.is_quick else Size()
        self.options.say(f"decisions among {size.n_tenants:,} tenants with {size.n_arms} arms")
        rows = []
        for name in ("default", "ours", "hybrid"):
            with workers(in_process=self.options.is_quick) as fresh:
                rows += fresh.map(measure_decisions, [(name, size, self.options.seed)])
        return rows


def _words(cell: Cell) -> str:
    parts = [cell.data, f"{cell.n_tested} tenants"]
    parts += [f"{cell.train_share:.0%} of the others"] * (cell.train_share < 1)
    parts += [f"history {cell.history}"] * (cell.history != "true")
    parts += [f"{cell.n_devices} devices"] * (cell.n_devices > 1) + ["unit costs"] * cell.is_unit_cost
    return ", ".join(parts)
