"""Synchronous rungs: the same trials go on whenever the others end, early or behind a barrier."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.contract import ContinueTrial, SearchArguments, StopTrial, TrialHistory
from easeml_db.decisions.procedures.halving.promotion import bracket_decisions
from easeml_db.decisions.procedures.rungs import Rung, halving_bracket

BRACKET = (Rung(5, 1), Rung(2, 3))

scores_of_a_trial = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, math.nan]), min_size=9, max_size=9)


def waiting(*scores):
    """Trials of one rung: a number has ended with that score, None still trains, 'failed' failed."""
    return [
        TrialHistory(
            number,
            {},
            "failed" if score == "failed" else "waiting",
            () if score in (None, "failed") else (score,),
            1,
        )
        for number, score in enumerate(scores, 1)
    ]


def run(table, order, *, is_early):
    """Train one bracket on a table (trial, epoch) of scores; returns the epochs that each trial got."""
    bracket = halving_bracket(len(table), 1, 9, 3)
    rng = np.random.default_rng(order)
    trials = [TrialHistory(i + 1, {}, "waiting", (), bracket[0].n_epochs) for i in range(len(table))]
    while True:
        continues, stops = bracket_decisions(bracket, trials, is_early=is_early)
        for decision in continues:
            trials[decision.trial_number - 1] = replace(
                trials[decision.trial_number - 1], target_epochs=decision.n_epochs
            )
        for decision in stops:
            trials[decision.trial_number - 1] = replace(trials[decision.trial_number - 1], status="stopped")
        training = [trial for trial in trials if trial.is_training(9)]
        if not training:
            return [trial.n_epochs for trial in trials]
        trial = training[int(rng.integers(len(training)))]
        score = table[trial.trial_number - 1][trial.n_epochs]
        trials[trial.trial_number - 1] = replace(trial, scores=(*trial.scores, score))


@given(st.lists(scores_of_a_trial, min_size=1, max_size=30), st.integers(0, 10))
def test_early_promotion_promotes_the_same_trials_as_a_barrier(table, order):
    assert run(table, order, is_early=True) == run(table, order + 100, is_early=False)


def test_the_best_are_safe_as_soon_as_the_others_cannot_overtake_them():
    assert bracket_decisions(BRACKET, waiting(0.9, 0.1, 0.5, None, None)) == ([], [StopTrial(2)])
    assert bracket_decisions(BRACKET, waiting(0.9, 0.1, 0.5, 0.7, None)) == (
        [ContinueTrial(1, 3)],
        [StopTrial(3), StopTrial(2)],
    )


def test_trials_that_were_not_started_may_still_overtake():
    trials = waiting(0.9, 0.1, 0.5, 0.7)
    assert bracket_decisions(BRACKET, trials, n_unstarted=1) == ([ContinueTrial(1, 3)], [StopTrial(3), StopTrial(2)])
    assert bracket_decisions(BRACKET, trials[:3], n_unstarted=2) == ([], [StopTrial(2)])


def test_ties_go_to_the_lower_trial_number():
    continues, _ = bracket_decisions(BRACKET, waiting(0.1, 0.5, 0.5, 0.5, 0.2))
    assert [decision.trial_number for decision in continues] == [2, 3]


def test_failed_trials_and_scores_that_are_no_numbers_never_go_on():
    continues, stops = bracket_decisions(BRACKET, waiting("failed", math.nan, -math.inf, 0.1, "failed"))
    assert (continues, stops) == ([ContinueTrial(4, 3)], [StopTrial(2), StopTrial(3)])


def test_one_that_was_cancelled_while_it_waited_gives_its_place_away():
    trials = waiting(0.9, 0.8, 0.7, 0.1, 0.1)
    trials[0] = replace(trials[0], status="cancelled")
    continues, _ = bracket_decisions(BRACKET, trials)
    assert [decision.trial_number for decision in continues] == [2, 3]


@pytest.mark.parametrize("order", range(5))
def test_hyperband_trains_the_same_however_wide_and_in_whatever_order(trials_of, order):
    runs = [
        trials_of("hyperband", max_epochs=9, seed=1, order=order * n, options={"n_parallel": n}).run().trials
        for n in (1, 50)
    ]
    assert [(t.config, t.scores) for t in runs[0]] == [(t.config, t.scores) for t in runs[1]]


def test_brackets_of_hyperband_begin_when_few_trials_train(trials_of):
    one, many = (trials_of("hyperband", max_epochs=9, options={"n_parallel": n}) for n in (1, 50))
    assert len(one.ask()) == 9
    assert len(many.ask()) == 9 + 5 + 3


def test_halving_finds_the_best_config_where_scores_are_steady(trials_of):
    trials = trials_of("successive_halving", max_epochs=27, p_nan=0.0).run().trials
    best = max(trials, key=lambda trial: trial.config["rate"])
    assert [trial for trial in trials if trial.n_epochs == 27] == [best]
    by_epochs = {n: sum(trial.n_epochs >= n for trial in trials) for n in (1, 3, 9, 27)}
    assert by_epochs == {1: 27, 3: 9, 9: 3, 27: 1}


def test_halving_is_asked_for_increments(space_of):
    options = {"increments": True}
    made = PROCEDURES["successive_halving"](SearchArguments(space_of(), n_configs=32, max_epochs=50, options=options))
    assert [(row.n_trials, row.n_epochs) for row in made.preview()] == [(32, 1), (10, 4), (3, 13), (1, 50)]
