"""Scores of arms against random draws, numeric integration and the printed formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, logit
from scipy.stats import norm

from easeml_db.decisions.bandits.acquisition import (
    ConfidenceBounds,
    Theorem,
    expected_improvement,
    probability_of_improvement,
)
from easeml_db.errors import InvalidArgument

MEANS, DEVIATIONS, BESTS = st.floats(-3.0, 3.0), st.floats(0.05, 4.0), st.floats(0.01, 0.99)


def one(score, mean: float, variance: float, best: float, link: str) -> float:
    """The score of a single arm."""
    return float(score(np.array([mean]), np.array([variance]), best, link)[0])


@pytest.mark.parametrize("link", ["identity", "logit"])
@pytest.mark.parametrize(("mean", "deviation", "best"), [(0.6, 0.2, 0.5), (0.4, 0.3, 0.6), (0.0, 1.0, 0.3)])
def test_improvement_is_that_of_random_draws(link: str, mean: float, deviation: float, best: float) -> None:
    draws = mean + deviation * np.random.default_rng(0).standard_normal(400_000)
    gains = np.maximum((draws if link == "identity" else expit(draws)) - best, 0.0)
    error = 5 / math.sqrt(len(draws))
    improvement = one(expected_improvement, mean, deviation**2, best, link)
    assert improvement == pytest.approx(gains.mean(), abs=error * gains.std())
    probability = one(probability_of_improvement, mean, deviation**2, best, link)
    assert probability == pytest.approx((gains > 0).mean(), abs=error)


@given(MEANS, DEVIATIONS, BESTS)
def test_improvement_on_the_logit_scale_is_the_integral(mean: float, deviation: float, best: float) -> None:
    start = max((float(logit(best)) - mean) / deviation, -10.0)
    exact, _ = quad(
        lambda z: (expit(mean + deviation * z) - best) * norm.pdf(z), start, max(start, 0.0) + 10.0, epsabs=1e-12
    )
    assert one(expected_improvement, mean, deviation**2, best, "logit") == pytest.approx(exact, rel=1e-4, abs=1e-10)


@given(MEANS, DEVIATIONS, BESTS, st.sampled_from(["identity", "logit"]))
def test_improvement_is_never_negative_and_at_least_that_of_the_middle(mean, deviation, best, link) -> None:
    improvement = one(expected_improvement, mean, deviation**2, best, link)
    assert improvement >= 0.0
    if link == "identity":  # the improvement is convex in the quality
        assert improvement >= mean - best - 1e-12


@given(MEANS, BESTS, DEVIATIONS, DEVIATIONS)
def test_improvement_grows_with_the_variance(mean: float, best: float, one_deviation: float, other: float) -> None:
    narrow, wide = sorted([one_deviation, other])
    scores = expected_improvement(np.full(2, mean), np.array([narrow, wide]) ** 2, best)
    assert scores[1] >= scores[0] - 1e-12


@given(st.floats(-6.0, 0.0), st.floats(0.5, 0.99), DEVIATIONS, DEVIATIONS)
def test_improvement_on_the_logit_scale_grows_with_the_variance_of_an_arm_below_the_best(mean, best, a, b) -> None:
    narrow, wide = sorted([a, b])
    scores = expected_improvement(np.full(2, mean), np.array([narrow, wide]) ** 2, best, "logit")
    assert scores[1] >= scores[0] * (1 - 1e-4)


@pytest.mark.parametrize("link", ["identity", "logit"])
def test_without_variance_the_improvement_is_what_the_mean_gains(link: str) -> None:
    means = np.array([0.2, 0.9]) if link == "identity" else logit(np.array([0.2, 0.9]))
    assert expected_improvement(means, np.zeros(2), 0.5, link) == pytest.approx([0.0, 0.4], abs=1e-9)
    assert probability_of_improvement(means, np.zeros(2), 0.5, link) == pytest.approx([0.0, 1.0])


def test_nothing_improves_on_a_quality_of_one_and_everything_on_none() -> None:
    means, variances = np.array([0.0, 4.0]), np.array([1.0, 9.0])
    assert expected_improvement(means, variances, 1.0, "logit") == pytest.approx([0.0, 0.0], abs=1e-12)
    whole = [quad(lambda z, m=m, d=d: expit(m + d * z) * norm.pdf(z), -9, 9)[0] for m, d in ((0.0, 1.0), (4.0, 3.0))]
    assert expected_improvement(means, variances, 0.0, "logit") == pytest.approx(whole, rel=1e-4)


def test_beta_is_that_of_algorithm_1() -> None:
    assert ConfidenceBounds().beta(8, 3) == pytest.approx(math.log(8 * 9 / 0.1))
    assert ConfidenceBounds(delta=0.5).beta(1, 1) == pytest.approx(math.log(2))


def test_the_theorems_beta_knows_all_tenants() -> None:
    bounds = ConfidenceBounds(theorem=Theorem(n_tenants=10, max_arms=100, max_cost=3.0))
    assert bounds.beta(8, 3) == pytest.approx(2 * 3.0 * math.log(math.pi**2 * 10 * 100 * 9 / (6 * 0.1)))
    alone = ConfidenceBounds(theorem=Theorem(n_tenants=1, max_arms=8, max_cost=3.0))
    assert alone.beta(8, 2) == pytest.approx(2 * 3.0 * math.log(math.pi**2 * 8 * 4 / 0.6))


@given(st.integers(1, 500), st.integers(1, 1000), st.floats(0.001, 0.999))
def test_beta_is_positive(n_arms: int, t: int, delta: float) -> None:
    assert ConfidenceBounds(delta=delta).beta(n_arms, t) > 0


@given(st.floats(0.0, 1.0), st.floats(0.01, 1.0), st.floats(0.01, 100.0), st.floats(0.1, 20.0))
def test_only_the_exploration_term_of_a_bound_sees_the_cost(mean, deviation, cost, beta) -> None:
    arms = np.array([mean]), np.array([deviation**2]), np.array([cost])
    (aware,) = ConfidenceBounds().bounds(*arms, beta)
    (oblivious,) = ConfidenceBounds(is_cost_aware=False).bounds(*arms, beta)
    assert aware == pytest.approx(mean + math.sqrt(beta / cost) * deviation)
    assert oblivious == pytest.approx(mean + math.sqrt(beta) * deviation)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(InvalidArgument, match="delta: expected a number between 0 and 1"):
        ConfidenceBounds(delta=delta)
