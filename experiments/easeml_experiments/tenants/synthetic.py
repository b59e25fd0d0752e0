"""SYN(sM, alpha), ease.ml, section 5.1: x_ij = b_i + alpha m_ij.

    b_i   N(mu_b, 0.05^2): 100 users with mu_b = 0.75, 100 with 0.25
    f_j   U(0, 1), hidden, one for each model
    m_i   N(0, Sigma), Sigma_jj' = exp(-(f_j - f_j')^2 / sM^2), drawn afresh for each user

Appendix B of the paper has another formula, without alpha. Taken literally, alpha = 1 gives m unit variance: most cells
leave [0, 1], and many models tie at 1. So m is scaled by 0.1 unless `is_literal`. Costs are U(0, 1).
"""

from __future__ import annotations

import numpy as np

from easeml_experiments.tenants.matrices import Matrices

SETTINGS = ((0.01, 0.1), (0.01, 1.0), (0.5, 0.1), (0.5, 1.0))
N_USERS, N_MODELS = 200, 100
BASELINES, BASELINE_DEVIATION, SCALE, JITTER = (0.75, 0.25), 0.05, 0.1, 1e-8


def synthetic(
    s_m: float,
    alpha: float,
    *,
    seed: int = 0,
    n_users: int = N_USERS,
    n_models: int = N_MODELS,
    is_literal: bool = False,
) -> Matrices:
    """Draw the matrices of a setting, qualities clipped to [0, 1]."""
    rng = np.random.default_rng((seed, round(1000 * s_m), round(1000 * alpha)))
    baselines = rng.normal(np.repeat(BASELINES, n_users // 2), BASELINE_DEVIATION)
    hidden = rng.uniform(0.0, 1.0, n_models)
    covariance = np.exp(-((hidden[:, None] - hidden[None, :]) ** 2) / s_m**2) + JITTER * np.eye(n_models)
    deviations = rng.standard_normal((len(baselines), n_models)) @ np.linalg.cholesky(covariance).T
    quality = np.clip(baselines[:, None] + alpha * (1.0 if is_literal else SCALE) * deviations, 0.0, 1.0)
    users = tuple(f"user{n}" for n in range(len(baselines)))
    models = tuple(f"model{n}" for n in range(n_models))
    cost = rng.uniform(0.0, 1.0, quality.shape)
    return Matrices(f"SYN({s_m:g},{alpha:g})", users, models, quality, np.maximum(cost, 1e-9))


def ranked(*, seed: int = 0, n_users: int = 110, n_models: int = 30) -> Matrices:
    """Draw users who agree which models are better: qualities rise evenly by 0.25 over the models, in a random order;
    deviation 0.05 by user, 0.03 by cell.
    """
    rng = np.random.default_rng((seed, n_users, n_models))
    means = rng.permutation(np.linspace(0.625, 0.875, n_models))
    deviations = 0.05 * rng.standard_normal((n_users, 1)) + 0.03 * rng.standard_normal((n_users, n_models))
    users, models = (
        tuple(f"{what}{n}" for n in range(size)) for what, size in (("user", n_users), ("model", n_models))
    )
    cost = rng.uniform(0.05, 1.0, (n_users, n_models))
    return Matrices("RANKED", users, models, np.clip(means + deviations, 0.0, 1.0), cost)
