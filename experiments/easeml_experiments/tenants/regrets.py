"""The theorems' regret R_T on SYN: betas of the theorems, arms may be played again, users as in a replay's repeat."""

from __future__ import annotations

from dataclasses import dataclass, replace

from easeml_db.decisions.bandits.priors import make_prior
from easeml_experiments.tenants.matrices import Floats
from easeml_experiments.tenants.protocol import Bandits, Cell, repeat_of
from easeml_experiments.tenants.replay import regret
from easeml_experiments.tenants.strategies import strategy
from easeml_experiments.tenants.synthetic import synthetic

N_ROUNDS = 12_000
POLICIES = ("round_robin", "greedy", "hybrid")


@dataclass(frozen=True)
class Case:
    """A setting of SYN and a policy."""

    s_m: float
    alpha: float
    policy: str
    is_literal: bool = False

    @property
    def setting(self) -> str:
        """As tables have it."""
        return f"SYN({self.s_m:g},{self.alpha:g}){' literal' * self.is_literal}"


def regrets_of(case: Case, seed: int, n_rounds: int = N_ROUNDS) -> Floats:
    """Return R_T for T = 1..n_rounds, shape (n_rounds,), of the first repeat's ten tenants."""
    matrices = synthetic(case.s_m, case.alpha, seed=seed, is_literal=case.is_literal)
    repeat = repeat_of(matrices, Cell(matrices.name), seed, 0)
    chosen = replace(strategy(case.policy), is_theorem=True)
    bandits = Bandits(repeat, chosen, make_prior(chosen.prior, repeat.training))
    policy, rule = chosen.make_policy(repeat.seed), chosen.make_arm_rule(repeat.models)
    return regret(repeat.quality, repeat.cost, bandits.bandit, policy, rule, n_rounds)
