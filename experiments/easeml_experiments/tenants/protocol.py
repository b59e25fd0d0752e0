"""Repeats: which users are tested, which train the prior, and what every strategy does with the same tenants.

Per repeat, from (seed, repeat) alone: a random permutation of users; the first n_tested are the tenants, all at time
0; of the others all, or a share, train the priors. Costs are divided by the mean over all cells of the matrix.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from easeml_db.decisions.bandits.acquisition import ConfidenceBounds, Theorem
from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.bandits.priors import make_prior
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.errors import InvalidArgument
from easeml_experiments.tenants.curves import Curves
from easeml_experiments.tenants.histories import told
from easeml_experiments.tenants.matrices import Floats, Matrices
from easeml_experiments.tenants.oracle import oracles
from easeml_experiments.tenants.replay import Trace, replay
from easeml_experiments.tenants.servers import DefaultServer, PolicyServer, Server
from easeml_experiments.tenants.strategies import Strategy
from easeml_experiments.tenants.workers import Workers

N_TESTED, N_REPEATS = 10, 50
OWN_LOSS = 0.05


@dataclass(frozen=True)
class Cell:
    """What is replayed on a dataset: `train_share` of the users that are not tested train the prior; with
    `is_unit_cost` all costs are 1, so that cost is the number of runs."""

    data: str
    n_tested: int = N_TESTED
    train_share: float = 1.0
    n_devices: int = 1
    budget: float = 1.0
    is_unit_cost: bool = False
    n_models: int | None = None
    history: str = "true"


@dataclass(frozen=True, eq=False)
class Repeat:
    """The tenants of one repeat: `quality` and `cost` (n, K); `training` (m, K) qualities of other users; the seed of
    policies that draw."""

    quality: Floats
    cost: Floats
    training: Floats
    models: tuple[str, ...]
    seed: int


@dataclass(frozen=True, eq=False)
class Run:
    """What a strategy reached in a repeat, at the costs where that changed: `loss`, and `shortfall`, 1 less the mean
    over tenants of best so far / best possible. `own_cost` is the cost until each tenant's own loss was OWN_LOSS."""

    cost: Floats
    loss: Floats
    shortfall: Floats
    n_freezes: int = 0
    own_cost: Floats | None = None


def repeat_of(matrices: Matrices, cell: Cell, seed: int, number: int) -> Repeat:
    """Draw a repeat."""
    rng = np.random.default_rng((seed, number))
    order = rng.permutation(len(matrices.users))
    tested, others = order[: cell.n_tested], order[cell.n_tested :]
    training = others[: max(1, round(cell.train_share * len(others)))]
    training = training[(matrices.quality[training] > 0).any(axis=1)]  # nothing but failures says nothing
    cost = np.where(matrices.offered, 1.0, np.nan) if cell.is_unit_cost else matrices.cost / np.nanmean(matrices.cost)
    policy_seed = int(rng.integers(2**31))
    chosen = _models(matrices, cell, rng)
    quality, models = matrices.quality[:, chosen], tuple(matrices.models[k] for k in chosen)
    tested = tested[np.isfinite(quality[tested]).any(axis=1)]
    history = told(quality[training], cell.history, rng)
    return Repeat(quality[tested], cost[tested][:, chosen], history, models, policy_seed)


def _models(matrices: Matrices, cell: Cell, rng: np.random.Generator) -> np.ndarray:
    """Return the models of a repeat, in their order."""
    n_models = len(matrices.models)
    if cell.n_models is None or cell.n_models >= n_models:
        return np.arange(n_models)
    return np.sort(rng.choice(n_models, cell.n_models, replace=False))


def check_tested(matrices: Matrices, n_tested: int) -> None:
    """Refuse a number of tenants that leaves nobody to train the prior. Raises InvalidArgument."""
    most = len(matrices.users) - 2
    if not 1 <= n_tested <= most:
        raise InvalidArgument(
            f"--tested: expected 1 to {most} of the {len(matrices.users)} users of {matrices.name}, got {n_tested}"
        )


def check_repeats(n_repeats: int) -> int:
    """Return a number of repeats. Raises InvalidArgument."""
    if n_repeats < 1:
        raise InvalidArgument(f"--repeats: expected at least 1, got {n_repeats}")
    return n_repeats


def run_repeat(
    matrices: Matrices, cell: Cell, strategies: Sequence[Strategy], seed: int, number: int
) -> dict[str, Run]:
    """Run a repeat of all strategies on the same tenants, with the same priors, and of the oracles."""
    repeat = repeat_of(matrices, cell, seed, number)
    # A new server makes its own prior.
    names = {each.prior for each in strategies if not each.is_default}
    priors = {name: make_prior(name, repeat.training) for name in names}
    runs = {each.name: _run(repeat, cell, each, None if each.is_default else priors[each.prior]) for each in strategies}
    known = {name: Run(cost, loss, loss) for name, (cost, loss) in oracles(repeat.quality, repeat.cost).items()}
    return runs | known


def _run(repeat: Repeat, cell: Cell, strategy: Strategy, prior: Prior | None) -> Run:
    server = _server(repeat, strategy, prior)
    trace = replay(server, repeat.quality, repeat.cost, budget=cell.budget, n_devices=cell.n_devices)
    return _changes(trace, repeat.quality)


def _server(repeat: Repeat, strategy: Strategy, prior: Prior | None) -> Server:
    if prior is None:
        return DefaultServer(repeat.quality, repeat.cost, repeat.training)
    policy, rule = strategy.make_policy(repeat.seed), strategy.make_arm_rule(repeat.models)
    return PolicyServer(len(repeat.quality), Bandits(repeat, strategy, prior).bandit, policy, rule)


@dataclass(frozen=True, eq=False)
class Bandits:
    """Makes the bandits of a repeat."""

    repeat: Repeat
    strategy: Strategy
    prior: Prior

    def bandit(self, tenant: int) -> RunBandit:
        """Return the bandit of a tenant as it arrives."""
        offered = np.isfinite(self.repeat.quality[tenant])
        costs = (
            np.where(offered, self.repeat.cost[tenant], 1.0) if self.strategy.is_cost_aware else np.ones(len(offered))
        )
        return RunBandit(
            self.prior, costs, self._confidence(), offered=offered,
            allow_replays=self.strategy.is_theorem, is_robust=self.strategy.is_robust,
        )  # fmt: skip

    def _confidence(self) -> ConfidenceBounds:
        if not self.strategy.is_theorem:
            return ConfidenceBounds()
        n, k = self.repeat.quality.shape
        return ConfidenceBounds(theorem=Theorem(n, k, float(np.nanmax(self.repeat.cost))))


def _changes(trace: Trace, quality: Floats) -> Run:
    """Return the points of a trace where the loss changes, and the last."""
    possible, own = np.nanmax(quality, axis=1), np.full(len(quality), np.inf)
    shares = np.where(possible > 0, 0.0, 1.0)
    shortfalls = [1.0 - float(shares.mean())]
    for tenant, arm, cost in zip(trace.tenants, trace.arms, trace.cost[1:], strict=True):
        if quality[tenant, arm] >= possible[tenant] - OWN_LOSS:
            own[tenant] = min(own[tenant], cost)
        if possible[tenant] > 0:
            shares[tenant] = max(shares[tenant], quality[tenant, arm] / possible[tenant])
        shortfalls.append(1.0 - float(shares.mean()))
    kept = np.flatnonzero(np.diff(trace.loss, prepend=np.inf, append=np.inf)[:-1] != 0)
    kept = np.union1d(kept, [len(trace.loss) - 1])
    return Run(trace.cost[kept], _clean(trace.loss[kept]), _clean(np.array(shortfalls)[kept]), trace.n_freezes, own)


def _clean(values: Floats) -> Floats:
    """Let sums of many gains end at zero, not near it."""
    return np.where(values < 1e-12, 0.0, values)


@dataclass(frozen=True, eq=False)
class Replayed:
    """All repeats of a cell: runs by strategy, and the seconds that they took. Costs of curves are shares of the time
    that one device would need for everything."""

    cell: Cell
    runs: Mapping[str, Sequence[Run]]
    seconds: float

    def losses(self, name: str) -> Curves:
        """Return loss curves of a strategy or oracle."""
        return self._curves(name, [run.loss for run in self.runs[name]])

    def shortfalls(self, name: str) -> Curves:
        """Return curves of what is missing from the best possible."""
        return self._curves(name, [run.shortfall for run in self.runs[name]])

    def n_frozen(self, name: str) -> int:
        """Count the repeats in which greedy was frozen."""
        return sum(run.n_freezes > 0 for run in self.runs[name])

    def _curves(self, name: str, values: Sequence[Floats]) -> Curves:
        n = self.cell.n_devices
        return Curves([run.cost / n for run in self.runs[name]], values, self.cell.budget / n, name == "oracle_bound")


def replay_cell(
    matrices: Matrices, cell: Cell, strategies: Iterable[Strategy], n_repeats: int, seed: int, workers: Workers
) -> Replayed:
    """Run all repeats side by side."""
    started = time.perf_counter()
    chosen = list(strategies)
    repeats = workers.map(run_repeat, [(matrices, cell, chosen, seed, number) for number in range(n_repeats)])
    names = repeats[0]
    return Replayed(cell, {name: [each[name] for each in repeats] for name in names}, time.perf_counter() - started)
