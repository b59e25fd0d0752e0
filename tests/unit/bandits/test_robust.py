"""A robust belief: its experts, their evidence, and the mixture that they make."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import multivariate_normal, multivariate_t, norm

from easeml_db.decisions.bandits.acquisition import expected_improvement, improvement_bound
from easeml_db.decisions.bandits.posterior import Posterior
from easeml_db.decisions.bandits.prior import Prior, independent_prior, to_latent
from easeml_db.decisions.bandits.robust import EXPERTS, WEIGHTS, RobustPosterior, experts_of, weighted

SEEDS = st.integers(0, 10_000)
PLAYS = st.lists(st.tuples(st.integers(0, 4), st.floats(0.01, 0.99)), min_size=1, max_size=8)
FREEDOMS = st.sampled_from([3.0, 12.5, math.inf])


def some_prior(seed: int, freedom: float = math.inf, link: str = "logit") -> Prior:
    rng = np.random.default_rng(seed)
    factor = rng.normal(0, 0.4, (5, 7))
    return Prior(rng.uniform(-1.0, 2.0, 5), factor @ factor.T, 0.05, link, freedom)


def covariance(process) -> np.ndarray:
    return np.array([process.covariances(arm) for arm in range(len(process.mean))])


def with_weights(weights, posterior: RobustPosterior) -> RobustPosterior:
    posterior.weights = np.array(weights)
    return posterior


@given(SEEDS)
def test_the_experts_are_those_of_the_table(seed: int) -> None:
    prior = some_prior(seed)
    history, ranking, vague = experts_of(prior)
    centre, direction = prior.mean.mean(), prior.mean - prior.mean.mean()
    assert history is prior
    for process in (ranking, vague):
        np.testing.assert_allclose(process.mean, centre)
        np.testing.assert_allclose(process.variances, np.diagonal(covariance(process)))
        assert np.linalg.eigvalsh(covariance(process)).min() > -1e-9
    np.testing.assert_allclose(covariance(ranking), prior.covariance + np.outer(direction, direction))
    own = (direction**2).mean() + np.diagonal(prior.covariance).mean()
    common = max(prior.covariance.mean(), 0.0)
    np.testing.assert_allclose(covariance(vague), np.outer(direction, direction) + common + own * np.eye(5))


@given(SEEDS, PLAYS, FREEDOMS)
def test_the_evidence_is_the_density_of_the_results(seed: int, plays, freedom: float) -> None:
    prior = some_prior(seed, freedom)
    arms, y = [arm for arm, _ in plays], to_latent(np.array([quality for _, quality in plays]), "logit")
    posterior = RobustPosterior(prior)
    for arm, quality in plays:
        posterior.observe(arm, quality)
    for process, found in zip(experts_of(prior), posterior.log_evidence, strict=True):
        shape = covariance(process)[np.ix_(arms, arms)] + prior.noise_variance * np.eye(len(arms))
        mean = process.mean[arms]
        density = multivariate_normal(mean, shape) if math.isinf(freedom) else multivariate_t(mean, shape, freedom)
        assert found == pytest.approx(density.logpdf(y), rel=1e-7, abs=1e-7)


@given(SEEDS, PLAYS, FREEDOMS)
def test_the_weights_are_prior_weight_times_evidence(seed: int, plays, freedom: float) -> None:
    posterior = RobustPosterior(some_prior(seed, freedom))
    assert posterior.weights == pytest.approx(WEIGHTS)
    for arm, quality in plays:
        posterior.observe(arm, quality)
    expected = np.array(WEIGHTS) * np.exp(posterior.log_evidence - posterior.log_evidence.max())
    assert posterior.weights == pytest.approx(expected / expected.sum())


@given(SEEDS, PLAYS, FREEDOMS)
def test_a_mixture_that_trusts_the_history_alone_is_the_single_belief(seed: int, plays, freedom: float) -> None:
    single, mixture = Posterior(some_prior(seed, freedom)), RobustPosterior(some_prior(seed, freedom))
    for arm, quality in plays:
        single.observe(arm, quality)
        mixture.observe(arm, quality)
    mixture = with_weights((1.0, 0.0, 0.0), mixture)
    np.testing.assert_allclose(mixture.mean, single.mean)
    variances = [expert.variance for expert in mixture.experts]
    np.testing.assert_allclose(mixture.mixed(variances), single.variance, atol=1e-12)


@given(SEEDS, PLAYS)
def test_mean_and_variance_are_the_moments_of_the_mixture(seed: int, plays) -> None:
    mixture = RobustPosterior(some_prior(seed))
    for arm, quality in plays:
        mixture.observe(arm, quality)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(EXPERTS), 200_000, p=mixture.weights)
    means = np.array([expert.mean for expert in mixture.experts])[chosen, 0]
    deviations = np.sqrt([expert.variance for expert in mixture.experts])[chosen, 0]
    draws = rng.normal(means, deviations)
    variance = mixture.mixed([expert.variance for expert in mixture.experts])[0]
    assert draws.mean() == pytest.approx(mixture.mean[0], abs=6 * math.sqrt(variance / len(draws)))
    assert draws.var() == pytest.approx(variance, rel=0.08)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.floats(0.05, 0.95))
def test_the_improvement_of_a_mixture_is_the_weighted_sum(seed: int, best: float) -> None:
    mixture = RobustPosterior(some_prior(seed))
    mixture.observe(0, 0.6)
    means = np.array([expert.mean[1] for expert in mixture.experts])
    variances = np.array([expert.variance[1] for expert in mixture.experts])
    found = mixture.weights @ expected_improvement(means, variances, best, "logit")

    def gain(x: float) -> float:
        density = mixture.weights @ norm.pdf(x, means, np.sqrt(variances))
        return float(max(expit(x) - best, 0.0) * density)

    start = math.log(best / (1 - best))
    exact = sum(quad(gain, start + k, start + k + 1, epsabs=1e-13)[0] for k in range(40))
    assert found == pytest.approx(exact, rel=1e-4, abs=1e-9)


@given(
    st.lists(st.floats(-4, 4), min_size=3, max_size=3), st.floats(0.05, 3.0), st.floats(0.2, 0.98),
    st.sampled_from(["logit", "identity"]),
)  # fmt: skip
def test_a_bound_is_at_least_the_improvement_and_at_most_three_times_that(means, deviation, best, link) -> None:
    mean, variance = np.array(means), np.full(3, deviation**2)
    exact = expected_improvement(mean, variance, best, link)
    bound = improvement_bound(mean, variance, best, link)
    assert (bound >= exact * (1 - 1e-4) - 1e-12).all()
    assert (bound <= 3.0 * exact + 1e-9).all()


def test_without_a_history_there_is_one_expert() -> None:
    posterior = RobustPosterior(independent_prior(4))
    posterior.observe(1, 0.7)
    assert len(posterior.experts) == 1
    assert posterior.weights == pytest.approx([1.0])


def test_a_reversed_ranking_is_found_out_by_two_results() -> None:
    mean = np.linspace(-1.0, 2.0, 12)
    posterior = RobustPosterior(Prior(mean, 0.05 * np.eye(12) + 0.02, 1e-3, "logit", 8.0))
    posterior.observe(11, 0.30)
    posterior.observe(0, 0.85)
    assert posterior.weights[0] < 0.05
    assert posterior.mean[1] > posterior.mean[10]


def test_evidence_that_no_float_can_hold_still_gives_weights() -> None:
    assert weighted(np.array([0.9, 0.1]), np.array([-5000.0, -5001.0])).sum() == pytest.approx(1.0)
    assert weighted(np.array([0.9, 0.1]), np.array([3000.0, -math.inf])) == pytest.approx([1.0, 0.0])
