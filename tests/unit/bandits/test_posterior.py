"""The posterior that is updated in place against the closed formula, scikit-learn and textbook Student t scales."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel

from easeml_db.decisions.bandits.posterior import Posterior
from easeml_db.decisions.bandits.prior import Prior

NOISE_VARIANCE = 0.02**2
SEEDS = st.integers(0, 10_000)
PLAYS = st.lists(st.tuples(st.integers(0, 4), st.floats(0.0, 1.0)), max_size=12)  # arms of 5, with repetitions


class Finite(Kernel):
    """Points are numbers of arms, and their covariance is given."""

    def __init__(self, covariance: np.ndarray) -> None:
        self.covariance = covariance

    def __call__(self, x, y=None, eval_gradient=False):
        arms, others = x[:, 0].astype(int), (x if y is None else y)[:, 0].astype(int)
        return self.covariance[np.ix_(arms, others)]

    def diag(self, x):
        return np.diagonal(self.covariance)[x[:, 0].astype(int)]

    def is_stationary(self):
        return False


def random_prior(seed: int, n_arms: int = 5, **options: float) -> Prior:
    rng = np.random.default_rng(seed)
    factor = rng.normal(0, 0.1, (n_arms, n_arms + 2))
    return Prior(rng.uniform(0.3, 0.8, n_arms), factor @ factor.T, NOISE_VARIANCE, **options)


def after(prior: Prior, plays: list[tuple[int, float]]) -> Posterior:
    posterior = Posterior(prior)
    for arm, quality in plays:
        posterior.observe(arm, quality)
    return posterior


def closed_form(prior: Prior, plays: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, variance before the scale, and the squared Mahalanobis distance of the observations."""
    a, y = [arm for arm, _ in plays], np.array([quality for _, quality in plays])
    s = prior.covariance
    gram, cross = s[np.ix_(a, a)] + prior.noise_variance * np.eye(len(a)), s[:, a]
    weights = np.linalg.solve(gram, y - prior.mean[a])
    variance = np.diagonal(s) - np.einsum("ka,ak->k", cross, np.linalg.solve(gram, cross.T))
    return prior.mean + cross @ weights, variance, float((y - prior.mean[a]) @ weights)


@given(SEEDS, PLAYS)
def test_mean_and_variance_are_those_of_the_closed_formula(seed: int, plays: list[tuple[int, float]]) -> None:
    prior = random_prior(seed)
    mean, variance, _ = closed_form(prior, plays)
    posterior = after(prior, plays)
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.variance, variance, rtol=0, atol=1e-10)


@given(SEEDS, PLAYS.filter(bool))
def test_mean_and_deviation_are_those_of_scikit_learn(seed: int, plays: list[tuple[int, float]]) -> None:
    prior = random_prior(seed)
    regressor = GaussianProcessRegressor(Finite(prior.covariance), alpha=NOISE_VARIANCE, optimizer=None)
    arms = np.array([[arm] for arm, _ in plays])
    regressor.fit(arms, np.array([quality - prior.mean[arm] for arm, quality in plays]))
    shift, deviation = regressor.predict(np.arange(5)[:, None], return_std=True)
    posterior = after(prior, plays)
    np.testing.assert_allclose(posterior.mean, prior.mean + shift, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.variance, deviation**2, rtol=0, atol=1e-9)


@given(SEEDS, PLAYS, st.randoms(use_true_random=False), st.sampled_from([math.inf, 4.0]))
def test_the_order_of_observations_does_not_matter(seed, plays, random, freedom) -> None:
    shuffled = plays.copy()
    random.shuffle(shuffled)
    prior = random_prior(seed, degrees_of_freedom=freedom)
    one, other = after(prior, plays), after(prior, shuffled)
    np.testing.assert_allclose(one.mean, other.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-6, atol=1e-10)


@given(SEEDS, PLAYS, st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_pending_arms_shrink_variances_as_observations_at_the_present_mean_do(seed, plays, pending) -> None:
    prior = random_prior(seed)
    posterior, observed = after(prior, plays), after(prior, plays)
    mean = posterior.mean.copy()
    for arm in pending:
        observed.observe(arm, float(observed.mean[arm]))
    np.testing.assert_allclose(posterior.variance_with(pending), observed.variance, rtol=0, atol=1e-10)
    np.testing.assert_allclose(observed.mean, mean, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(posterior.mean, mean)
    assert posterior.n_observed == len(plays)


@given(SEEDS, PLAYS, st.floats(1.0, 50.0))
def test_the_scale_of_a_student_t_process_is_the_textbook_one(seed, plays, freedom) -> None:
    prior = random_prior(seed, degrees_of_freedom=freedom)
    mean, variance, distance = closed_form(prior, plays)
    posterior = after(prior, plays)
    scale = (freedom + distance) / (freedom + len(plays))
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(posterior.variance, scale * variance, rtol=1e-5, atol=1e-9 * scale)


def test_a_pending_arm_does_not_make_a_student_t_process_surer_of_its_scale() -> None:
    prior = random_prior(3, degrees_of_freedom=2.0)
    posterior = after(prior, [(0, 1.0), (1, 0.0)])
    scale = posterior.scale
    _, variance, _ = closed_form(prior, [(0, 1.0), (1, 0.0), (2, 0.5)])
    np.testing.assert_allclose(posterior.variance_with([2]), scale * variance, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("freedom", [math.inf, 3.0])
def test_variances_stay_finite_and_not_negative_when_all_of_200_arms_are_observed(freedom: float) -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(size=200)
    covariance = 0.04 * np.exp(-((points[:, None] - points) ** 2) / 0.5)  # of rank about 10 in double precision
    posterior = Posterior(Prior(np.full(200, 0.5), covariance, 1e-8, degrees_of_freedom=freedom))
    truth = 0.5 + 0.1 * np.sin(5 * points)
    for arm in rng.permutation(200):
        posterior.observe(int(arm), float(truth[arm]))
    assert np.isfinite(posterior.mean).all()
    assert np.isfinite(posterior.variance).all()
    assert (posterior.variance >= 0).all()
    np.testing.assert_allclose(posterior.mean, truth, atol=1e-3)


def test_an_arm_played_often_is_known_as_well_as_the_mean_of_its_plays() -> None:
    posterior = after(Prior(np.array([0.5]), np.array([[1.0]]), 0.01), [(0, 0.7)] * 100)
    assert posterior.variance[0] == pytest.approx(1 / (1 + 100 / 0.01))
    assert posterior.mean[0] == pytest.approx((0.5 + 0.7 * 100 / 0.01) / (1 + 100 / 0.01))


def test_observations_enter_on_the_scale_of_the_link() -> None:
    prior = Prior(np.zeros(2), np.eye(2), 1e-6, link="logit")
    posterior = after(prior, [(0, 0.9), (1, 1.0)])
    assert posterior.mean == pytest.approx([math.log(9), math.log(0.995 / 0.005)], rel=1e-4)
