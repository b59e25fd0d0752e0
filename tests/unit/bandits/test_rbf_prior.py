"""ease.ml's prior: its hyperparameters against brute force, and its likelihood against scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.bandits.rbf import rbf_prior

AMPLITUDES = np.geomspace(1e-4, 1.0, 9)
NOISE_VARIANCES = np.geomspace(1e-7, 0.1, 7)
LEAST_NOISE_RATIO = 1e-6  # the search keeps the covariance well conditioned


def drawn(seed: int, n: int, k: int, noise: float = 0.03) -> np.ndarray:
    """Qualities (n, k) that vary smoothly over hidden places of the arms."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(size=k)
    covariance = 0.02 * np.exp(-((places[:, None] - places) ** 2) / 0.1) + 1e-9 * np.eye(k)
    smooth = rng.multivariate_normal(np.full(k, 0.6), covariance, size=n)
    return smooth + noise * rng.standard_normal((n, k))


def distances(history: np.ndarray) -> np.ndarray:
    return ((history[:, :, None] - history[:, None, :]) ** 2).mean(axis=0)


def log_likelihood(history: np.ndarray, amplitude: float, length: float, noise_variance: float) -> float:
    """The printed formula: the sum over past tenants of log N(y_u; grand mean, covariance + s2 I)."""
    k = history.shape[1]
    covariance = amplitude * np.exp(-distances(history) / (2 * length**2)) + noise_variance * np.eye(k)
    return float(multivariate_normal(np.full(k, history.mean()), covariance).logpdf(history).sum())


def fitted(prior: Prior) -> tuple[float, float, float]:
    return prior.fitted["amplitude"], prior.fitted["length"], prior.fitted["noise_variance"]


@pytest.mark.parametrize(
    ("seed", "n", "k", "noise"), [(0, 3, 5, 0.03), (1, 8, 6, 0.1), (2, 15, 4, 0.01), (3, 1, 7, 0.03)]
)
def test_no_hyperparameters_of_a_dense_grid_are_likelier(seed: int, n: int, k: int, noise: float) -> None:
    history = drawn(seed, n, k, noise)
    middle = np.sqrt(np.median(distances(history)[~np.eye(k, dtype=bool)]))
    lengths = middle * np.geomspace(0.03, 10.0, 24)
    grid = itertools.product(AMPLITUDES, lengths, NOISE_VARIANCES)
    best = max(log_likelihood(history, a, length, s2) for a, length, s2 in grid if s2 >= LEAST_NOISE_RATIO * a)
    assert log_likelihood(history, *fitted(rbf_prior(history))) >= best - 1e-3 * abs(best)


def test_the_likelihood_of_one_tenant_is_that_of_scikit_learn_where_no_amplitude_is_likelier() -> None:
    history = drawn(4, 1, 8, 0.05)
    amplitude, length, noise_variance = fitted(rbf_prior(history))
    kernel = ConstantKernel(amplitude) * RBF(length) + WhiteKernel(noise_variance)
    y = history[0] - history[0].mean()
    regressor = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(history.T, y)
    value, gradient = regressor.log_marginal_likelihood(regressor.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(log_likelihood(history, amplitude, length, noise_variance), rel=1e-8)
    assert gradient[0] + gradient[2] == pytest.approx(0.0, abs=1e-4)  # amplitude and noise in a fixed ratio


def test_the_prior_is_the_kernel_over_quality_vectors_with_the_grand_mean() -> None:
    history = drawn(5, 6, 5)
    prior = rbf_prior(history)
    amplitude, length, noise_variance = fitted(prior)
    np.testing.assert_allclose(prior.covariance, amplitude * np.exp(-distances(history) / (2 * length**2)), rtol=1e-9)
    assert prior.mean == pytest.approx(np.full(5, history.mean()))
    assert prior.noise_variance == noise_variance
    assert (prior.name, prior.link) == ("rbf", "identity")


def test_models_that_did_alike_are_believed_alike() -> None:
    history = drawn(6, 10, 4)
    history[:, 1] = history[:, 0] + 0.001
    history[:, 3] = 1.0 - history[:, 0]
    covariance = rbf_prior(history).covariance
    assert covariance[0, 1] > 0.99 * covariance[0, 0]
    assert covariance[0, 3] < covariance[0, 1]


@pytest.mark.parametrize("history", [np.full((3, 4), 0.7), np.array([[0.6]]), np.array([[0.2, 0.9]])])
def test_a_history_that_shows_no_differences_still_gives_a_prior(history: np.ndarray) -> None:
    prior = rbf_prior(history)
    assert np.isfinite(prior.covariance).all()
    assert prior.mean == pytest.approx(np.full(history.shape[1], history.mean()))


def test_gaps_do_not_change_what_full_additive_data_say() -> None:
    rng = np.random.default_rng(7)
    full = rng.uniform(0.3, 0.6, (6, 1)) + rng.uniform(0, 0.3, 5)
    gaps = full.copy()
    gaps[0, 0] = gaps[3, 2] = np.nan
    gaps[1, 4] = 0.0  # a failed run
    np.testing.assert_allclose(rbf_prior(gaps).covariance, rbf_prior(full).covariance, rtol=1e-3)
