"""The arithmetic of rungs against golden values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.procedures.rungs import (
    checked_hyperband,
    default_n_configs,
    fitted,
    halving_bracket,
    hyperband_brackets,
    n_powers,
    planned,
    rung_totals,
)
from easeml_db.errors import InvalidArgument


def text_of(bracket):
    return ",".join(f"{rung.n_trials}@{rung.n_epochs}" for rung in bracket)


@pytest.mark.parametrize(
    ("max_epochs", "eta", "brackets"),
    [
        (81, 3, ["81@1,27@3,9@9,3@27,1@81", "34@3,11@9,3@27,1@81", "15@9,5@27,1@81", "8@27,2@81", "5@81"]),
        (25, 3, ["9@2,3@8,1@25", "5@8,1@25", "3@25"]),
        (1, 3, ["1@1"]),
        (4, 2, ["4@1,2@2,1@4", "3@2,1@4", "3@4"]),
    ],
)
def test_brackets_of_hyperband(max_epochs, eta, brackets):
    assert [text_of(bracket) for bracket in hyperband_brackets(max_epochs, eta)] == brackets


@pytest.mark.parametrize(
    ("limit", "eta", "power"),
    [
        (243, 3, 5),
        (242, 3, 4),
        (81, 3, 4),
        (1000, 10, 3),
        (999, 10, 2),
        (10**6, 10, 6),
        (10**6 - 1, 10, 5),
        (125, 5, 3),
        (1, 2, 0),
    ],
)
def test_powers_are_counted_by_multiplication(limit, eta, power):
    assert n_powers(limit, eta) == power
    assert len(hyperband_brackets(limit, eta)) == power + 1


@given(st.integers(1, 10**12), st.integers(2, 50))
def test_a_power_is_the_largest_within_the_limit(limit, eta):
    s = n_powers(limit, eta)
    assert eta**s <= limit < eta ** (s + 1)


def test_min_epochs_raises_the_first_rung_of_hyperband():
    assert [text_of(bracket) for bracket in hyperband_brackets(81, 3, 9)] == ["9@9,3@27,1@81", "5@27,1@81", "3@81"]


@pytest.mark.parametrize(
    ("arguments", "n_trials", "totals"),
    [
        ((32, 1, 50, 3), [32, 10, 3, 1], [1, 4, 13, 50]),
        ((64, 4, 508, 2), [64, 32, 16, 8, 4, 2, 1], [4, 12, 28, 60, 124, 252, 508]),
        (
            (512, 4, 4096, 2),
            [512, 256, 128, 64, 32, 16, 8, 4, 2, 1],
            [4, 12, 28, 60, 124, 252, 508, 1020, 2044, 4096],
        ),
    ],
)
def test_halving_with_increments_is_that_of_rubberband(arguments, n_trials, totals):
    bracket = halving_bracket(*arguments, increments=True)
    assert [rung.n_trials for rung in bracket] == n_trials
    assert [rung.n_epochs for rung in bracket] == totals


@pytest.mark.parametrize(
    ("arguments", "rungs"),
    [
        ((81, 1, 81, 3), "81@1,27@3,9@9,3@27,1@81"),
        ((9, 1, 81, 3), "9@1,3@3,1@81"),
        ((2, 1, 81, 3), "2@1,1@81"),
        ((1, 1, 81, 3), "1@81"),
        ((1000, 1, 5, 3), "1000@1,333@3,111@5"),
        ((7, 5, 5, 3), "7@5"),
    ],
)
def test_halving_with_totals(arguments, rungs):
    assert text_of(halving_bracket(*arguments)) == rungs


def test_asha_with_increments_is_that_of_cerebro():
    assert rung_totals(1, 13, 3, increments=True) == [1, 4, 13]
    assert rung_totals(1, 9, 3) == [1, 3, 9]


@given(st.integers(1, 500), st.integers(2, 6), st.data())
def test_every_plan_rises_to_max_epochs_and_thins_out(max_epochs, eta, data):
    min_epochs = data.draw(st.integers(1, max_epochs))
    n_trials = data.draw(st.integers(1, 400))
    is_sum = data.draw(st.booleans())
    plan = fitted(hyperband_brackets(max_epochs, eta, min_epochs), n_trials, eta)
    assert sum(bracket[0].n_trials for bracket in plan) <= n_trials
    for bracket in (*plan, halving_bracket(n_trials, min_epochs, max_epochs, eta, increments=is_sum)):
        totals = [rung.n_epochs for rung in bracket]
        counts = [rung.n_trials for rung in bracket]
        assert totals == sorted(set(totals))
        assert totals[-1] == max_epochs
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] >= 1


def test_the_work_of_a_plan_counts_what_is_trained_beyond_the_rung_before():
    rows = planned([halving_bracket(9, 1, 9, 3)])
    assert [(row.rung, row.n_trials, row.n_epochs, row.total_epochs) for row in rows] == [
        (0, 9, 1, 9),
        (1, 3, 3, 6),
        (2, 1, 9, 6),
    ]


def test_too_many_configs_are_refused_unless_n_configs_cuts_them():
    with pytest.raises(InvalidArgument, match="max_epochs: expected brackets of at most 10000 configs, got"):
        checked_hyperband(10**6, 3, 1, None)
    assert text_of(checked_hyperband(10**6, 3, 1, 2)[0]).startswith("2@1,1@5")


@pytest.mark.parametrize(("max_epochs", "n_configs"), [(81, 81), (100, 81), (1, 8), (10**6, 10_000)])
def test_by_default_one_trial_reaches_the_end_by_promotion(max_epochs, n_configs):
    assert default_n_configs(max_epochs, 3, 1) == n_configs
