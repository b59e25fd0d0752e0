"""One run's bandit: beliefs about its arms, the arms under way, and the numbers by which policies compare runs.

t       arms opened so far (the papers' plays), those under way included, plus 1
E       least bound of the arms opened, each as it was before its opening (infinite before the first)
sig     E minus the LAST quality seen: the gap that is surely left, may be negative (ease.ml, algorithm 2, line 6)
best    largest quality so far, 0 before the first
gap     largest bound of the arms still offered, minus best (line 8)
"""

from __future__ import annotations

import math

import numpy as np

from easeml_db.decisions.bandits.acquisition import ConfidenceBounds
from easeml_db.decisions.bandits.costs import check_costs
from easeml_db.decisions.bandits.posterior import Posterior
from easeml_db.decisions.bandits.prior import Prior, Vector, to_quality
from easeml_db.decisions.bandits.robust import RobustPosterior
from easeml_db.errors import InvalidArgument


class RunBandit:
    """A bandit over the K arms of a run. `costs` (K,) are in units of the mean cost, `offered` (K,) says which arms
    the run has; an arm is opened once unless `allow_replays`; `is_robust` guards against a prior that misleads."""

    def __init__(
        self,
        prior: Prior,
        costs: Vector,
        confidence: ConfidenceBounds | None = None,
        *,
        offered: np.ndarray | None = None,
        allow_replays: bool = False,
        is_robust: bool = False,
    ) -> None:
        self.posterior = RobustPosterior(prior) if is_robust else Posterior(prior)
        self.prior = prior
        self.costs = self._checked(costs)
        self.confidence = confidence or ConfidenceBounds()
        self.offered = np.ones(prior.n_arms, dtype=bool) if offered is None else offered.copy()
        self.allow_replays = allow_replays
        self.n_arms = max(int(self.offered.sum()), 1)  # K of beta, which a run without arms needs as well
        self.pending: list[int] = []
        self.t, self.least_bound, self.sig, self.best = 1, math.inf, math.nan, 0.0
        self._renew()

    def _renew(self) -> None:
        """Compute the bounds at the present t, shape (K,); minus infinity where an arm is not offered."""
        posterior = self.posterior
        # Arms under way narrow the belief about arms like them before their results are known (GP-BUCB).
        self.expert_variances = [expert.variance_with(self.pending) for expert in self.experts]
        self.variance = self.expert_variances[0]
        if isinstance(posterior, RobustPosterior):
            self.variance = posterior.mixed(self.expert_variances)
        latent = self.confidence.bounds(posterior.mean, self.variance, self.costs, self.beta)
        # Back to qualities: E, sig and gap are differences from observed qualities.
        self.bounds: Vector = np.where(self.offered, to_quality(latent, self.prior.link), -np.inf)

    @property
    def experts(self) -> tuple[Posterior, ...]:
        """The beliefs that make up the posterior: one, unless it is robust."""
        return self.posterior.experts if isinstance(self.posterior, RobustPosterior) else (self.posterior,)

    @property
    def log_evidence(self) -> Vector:
        """Logarithms of the densities that the experts had given to the results, shape (E,)."""
        return np.atleast_1d(self.posterior.log_evidence)

    @property
    def can_open(self) -> bool:
        """Return whether an arm is left."""
        return bool(self.offered.any())

    @property
    def beta(self) -> float:
        """Return the weight of the variance in the bounds at the present t."""
        return self.confidence.beta(self.n_arms, self.t)

    @property
    def gap(self) -> float:
        """Return the largest bound of the arms still offered, minus best so far: the estimated regret."""
        return float(self.bounds.max()) - self.best

    def begin(self, arm: int) -> float:
        """Open an arm; return the bound that it had."""
        if not self.offered[arm]:
            raise InvalidArgument(f"arm {arm} is not offered: it was opened before, or the run does not have it")
        bound = float(self.bounds[arm])
        self.begun(arm, bound)
        return bound

    def begun(self, arm: int, bound: float) -> None:
        """Record that an arm was opened with this bound, now or by another process."""
        # Line 6 takes the least y_t' + sig_t' of earlier plays t'; that sum is E at t', so a running minimum will do.
        self.least_bound = min(self.least_bound, bound)
        # At the opening and not at the result: beta must count the plays under way.
        self.t += 1
        self.pending.append(arm)
        self.offered[arm] &= self.allow_replays
        self._renew()

    def finish(self, arm: int, quality: float) -> None:
        """Record the quality of an arm that was under way."""
        if arm not in self.pending:
            raise InvalidArgument(f"arm {arm} is not under way: begin it before its quality is known")
        self.pending.remove(arm)
        self.sig = self.least_bound - quality
        self.best = max(self.best, quality)
        self.posterior.observe(arm, quality)
        self._renew()

    def set_costs(self, costs: Vector) -> None:
        """Replace the estimates of all costs, or their scale."""
        self.costs = self._checked(costs)
        self._renew()

    def _checked(self, costs: Vector) -> Vector:
        n_arms = self.prior.n_arms
        if costs.shape != (n_arms,):
            raise InvalidArgument(f"costs: expected {n_arms}, one for each arm, got shape {costs.shape}")
        check_costs(costs)
        return costs
