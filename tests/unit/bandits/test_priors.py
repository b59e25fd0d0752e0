"""Priors by name, gaps of a history, and what a prior refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.bandits.history import filled
from easeml_db.decisions.bandits.prior import LINKS, Prior, independent_prior, to_latent, to_quality
from easeml_db.decisions.bandits.priors import DEFAULT, PRIORS, list_priors, make_prior
from easeml_db.errors import InvalidArgument


def history(n: int, k: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.3, 0.9, (n, k))


@st.composite
def connected_gaps(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Additive qualities, and which are known: a path through all rows and columns, and any others."""
    n, k = draw(st.integers(2, 8)), draw(st.integers(2, 8))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    known = rng.uniform(size=(n, k)) < draw(st.floats(0.0, 0.6))
    for step in range(max(n, k)):
        known[min(step, n - 1), min(step, k - 1)] = known[min(step + 1, n - 1), min(step, k - 1)] = True
    return rng.uniform(0.2, 0.5, (n, 1)) + rng.uniform(0.0, 0.4, k), known


@given(connected_gaps())
def test_gaps_of_additive_qualities_are_filled_exactly(data: tuple[np.ndarray, np.ndarray]) -> None:
    qualities, known = data
    np.testing.assert_allclose(filled(np.where(known, qualities, np.nan)), qualities, rtol=0, atol=1e-9)


def test_a_long_chain_of_overlaps_is_enough() -> None:
    n = 60
    qualities = np.linspace(0.2, 0.4, n)[:, None] + np.linspace(0.0, 0.5, n)
    known = np.eye(n, dtype=bool) | np.eye(n, k=1, dtype=bool)
    np.testing.assert_allclose(filled(np.where(known, qualities, np.nan)), qualities, rtol=0, atol=1e-6)


def test_a_failed_run_is_a_gap() -> None:
    gap, failed = history(4), history(4)
    gap[1, 2], failed[1, 2] = np.nan, 0.0
    np.testing.assert_array_equal(filled(failed), filled(gap))
    assert filled(failed)[1, 2] > 0


def test_what_is_known_stays() -> None:
    gaps = np.where(np.random.default_rng(0).uniform(size=(6, 5)) < 0.3, np.nan, history(6))
    full = filled(gaps)
    np.testing.assert_array_equal(full[np.isfinite(gaps)], gaps[np.isfinite(gaps)])
    assert np.isfinite(full).all()


def test_an_arm_that_nobody_tried_gets_the_mean_of_the_row() -> None:
    qualities = np.column_stack([history(4), np.full(4, np.nan)])
    np.testing.assert_allclose(filled(qualities)[:, -1], history(4).mean(axis=1))


def test_a_tenant_without_any_quality_cannot_be_filled() -> None:
    with pytest.raises(InvalidArgument, match="at least one quality of each past tenant"):
        filled(np.array([[0.5, 0.6], [np.nan, 0.0]]))


@pytest.mark.parametrize("name", [DEFAULT, *PRIORS])
def test_a_past_tenant_whose_every_run_failed_tells_nothing(name: str) -> None:
    useless = np.array([[0.0] * 5, [np.nan] * 5])
    prior = make_prior(name, np.vstack([history(6), useless]))
    expected = make_prior(name, history(6))
    np.testing.assert_array_equal(prior.mean, expected.mean)
    np.testing.assert_array_equal(prior.covariance, expected.covariance)


@pytest.mark.parametrize("name", [DEFAULT, *PRIORS])
@pytest.mark.parametrize("n", [0, 1, 3, 4])
def test_too_short_a_history_falls_back_to_independent_arms(name: str, n: int) -> None:
    prior = make_prior(name, history(n))
    wanted = "empirical_logit" if name == DEFAULT else name
    assert prior.name == (wanted if n >= PRIORS[wanted].min_tenants else "independent")
    assert prior.n_arms == 5


def test_failed_tenants_do_not_lengthen_a_short_history() -> None:
    assert make_prior("empirical", np.vstack([history(3), np.zeros((5, 5))])).name == "independent"


def test_an_unknown_prior_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidArgument, match="no prior 'gp'") as caught:
        make_prior("gp", history(5))
    assert caught.value.hint is not None
    assert all(name in caught.value.hint for name in (DEFAULT, *PRIORS))


def test_every_prior_is_listed_and_one_is_the_default() -> None:
    rows = list_priors()
    assert [row["prior"] for row in rows if row["is_default"]] == [DEFAULT]
    assert {row["prior"] for row in rows} == {DEFAULT, *PRIORS}


def test_without_history_arms_are_independent() -> None:
    prior = independent_prior(3)
    assert prior.mean.tolist() == [0.5] * 3
    np.testing.assert_allclose(prior.covariance, 0.25**2 * np.eye(3))
    assert math.sqrt(prior.noise_variance) == pytest.approx(0.02)


@given(st.floats(0.005, 0.995), st.sampled_from(LINKS))
def test_links_have_an_inverse(quality: float, link: str) -> None:
    assert float(to_quality(to_latent(np.array(quality), link), link)) == pytest.approx(quality)


def test_the_logit_scale_is_safe_at_any_distance() -> None:
    assert to_quality(np.array([-1e4, 1e4]), "logit").tolist() == [0.0, 1.0]
    assert np.isfinite(to_latent(np.array([0.0, 1.0]), "logit")).all()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"mean": np.zeros(3)}, "expected a mean of shape"),
        ({"mean": np.zeros((2, 1))}, "expected a mean of shape"),
        ({"noise_variance": 0.0}, "noise variance > 0"),
        ({"noise_variance": math.nan}, "noise variance > 0"),
        ({"degrees_of_freedom": 0.0}, "degrees of freedom > 0"),
        ({"link": "probit"}, "identity or logit, got 'probit'"),
    ],
)
def test_a_prior_that_makes_no_sense_is_refused(change: dict, complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        Prior(**{"mean": np.zeros(2), "covariance": np.eye(2), "noise_variance": 0.1} | change)
