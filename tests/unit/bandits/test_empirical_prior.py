"""Empirical Bayes: the leave-one-out likelihood against the literal computation, and the coverage of new tenants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_t, norm, t

from easeml_db.decisions.bandits.empirical_bayes import LeaveOneOut, empirical_prior
from easeml_db.decisions.bandits.prior import to_latent
from easeml_db.errors import InvalidArgument


def literal(history: np.ndarray, scale: float, share: float, freedom: float) -> float:
    """Mean and covariance of the others, computed anew for each tenant."""
    total = 0.0
    for u, y in enumerate(history):
        others = np.delete(history, u, axis=0)
        shape = scale * np.atleast_2d(np.cov(others, rowvar=False)) + share * np.eye(history.shape[1])
        total += float(multivariate_t(others.mean(axis=0), shape, df=freedom).logpdf(y))
    return total


@given(
    st.integers(0, 1000), st.integers(4, 9), st.integers(1, 12), st.floats(0.05, 20.0), st.floats(0.01, 5.0),
    st.floats(1.0, 100.0),
)  # fmt: skip
def test_the_likelihood_is_that_of_leaving_out_each_tenant_in_turn(seed, n, k, scale, share, freedom) -> None:
    rng = np.random.default_rng(seed)
    history = rng.normal(0.5, 1.0, (n, k)) @ rng.normal(0, 0.5, (k, k))
    fast = LeaveOneOut(history - history.mean(axis=0)).log_likelihood(scale, share, freedom)
    assert fast == pytest.approx(literal(history, scale, share, freedom), rel=1e-6, abs=1e-6)


def gaussian(seed: int, n: int, k: int = 10) -> np.ndarray:
    """Tenants (n, k) of one known normal distribution, the same for each seed."""
    factor = np.random.default_rng(99).normal(0, 0.03, (k, k))
    means = np.random.default_rng(98).uniform(0.4, 0.7, k)
    return np.random.default_rng(seed).multivariate_normal(means, factor @ factor.T + 0.02**2 * np.eye(k), n)


@pytest.mark.parametrize("link", ["identity", "logit"])
@pytest.mark.parametrize("n", [8, 40])
def test_the_fit_is_likelier_than_the_sample_covariance_and_than_its_neighbours(link: str, n: int) -> None:
    history = gaussian(1, n)
    fitted = empirical_prior(history, link=link).fitted
    latent = to_latent(history, link)
    variances = latent.var(axis=0, ddof=1)
    left_out = LeaveOneOut((latent - latent.mean(axis=0)) / np.sqrt(0.5 * variances + 0.5 * variances.mean()))
    best = np.array([fitted["scale"], fitted["diagonal"], fitted["degrees_of_freedom"]])
    value = left_out.log_likelihood(*best)
    assert value > left_out.log_likelihood(1.0, 0.1, 1e3)
    for step in 0.2 * np.vstack([np.eye(3), -np.eye(3)]):
        logs = np.clip(np.log(best) + step, [-6, -9, 0], [4, 3, 5])  # as far as the search goes
        assert value >= left_out.log_likelihood(*np.exp(logs)) - 1e-3


@pytest.mark.parametrize("n", [8, 20, 80])
def test_the_coverage_of_new_tenants_is_near_nominal(n: int) -> None:
    inside = []
    for seed in range(20):
        prior = empirical_prior(gaussian(seed, n))
        new = gaussian(1000 + seed, 50)
        freedom = prior.degrees_of_freedom
        width = np.sqrt(np.diagonal(prior.covariance)) * (norm if math.isinf(freedom) else t(freedom)).ppf(0.95)
        inside.append((np.abs(new - prior.mean) <= width).mean())
    assert 0.85 <= np.mean(inside) <= 0.96  # 0.90 is nominal


def test_few_tenants_make_the_sample_covariance_overconfident_and_calibration_mends_it() -> None:
    def surprise(is_calibrated: bool) -> float:
        prior = empirical_prior(gaussian(0, 8), is_calibrated=is_calibrated)
        gaps = gaussian(1000, 200) - prior.mean
        distance = np.einsum("ni,ij,nj->n", gaps, np.linalg.inv(prior.covariance), gaps) / 10
        return float(np.median(distance))

    assert surprise(True) < 0.7 * surprise(False)


def test_the_prior_has_the_mean_of_past_tenants_and_blends_their_covariance_with_a_diagonal() -> None:
    history = gaussian(2, 30)
    prior = empirical_prior(history)
    sample = np.cov(history, rowvar=False)
    variances = np.diagonal(sample)
    blend = prior.fitted["diagonal"] * np.diag(0.5 * variances + 0.5 * variances.mean())
    np.testing.assert_allclose(prior.mean, history.mean(axis=0))
    np.testing.assert_allclose(prior.covariance, prior.fitted["scale"] * sample + blend)
    assert prior.fitted["n_tenants"] == 30
    assert prior.name == "empirical"


def test_on_the_logit_scale_qualities_near_one_stay_finite() -> None:
    history = np.clip(gaussian(3, 12) + 0.4, 0.01, 1.0)
    prior = empirical_prior(history, link="logit")
    assert (prior.name, prior.link) == ("empirical_logit", "logit")
    assert np.isfinite(prior.mean).all()
    assert np.isfinite(prior.covariance).all()


def test_like_tenants_still_leave_some_doubt() -> None:
    prior = empirical_prior(np.full((5, 3), 0.7))
    assert prior.mean == pytest.approx([0.7] * 3)
    assert (np.linalg.eigvalsh(prior.covariance) > 0).all()


def test_fewer_than_four_tenants_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="expected at least 4 past tenants, got 3"):
        empirical_prior(gaussian(0, 3))
