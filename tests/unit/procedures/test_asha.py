"""ASHA promotes who is among the best so far, whatever the order in which trials end."""

import math
from itertools import pairwise, permutations

import pytest

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.contract import ContinueTrial, SearchArguments, StartTrial, StopTrial, TrialHistory


@pytest.fixture
def asha(space_of):
    def make(n_configs=9, n_parallel=1, **options):
        options = {"n_parallel": n_parallel, **options}
        return PROCEDURES["asha"](SearchArguments(space_of(), n_configs=n_configs, max_epochs=9, options=options))

    return make


def ended(number, *scores, target=1, status="waiting"):
    return TrialHistory(number, {}, status, scores, target)


def best_third_promotes(trials, totals, eta):
    """What ASHA may promote next, from the definition: the numbers by rung."""
    allowed = {}
    for here, following in pairwise(totals):
        done = sorted((-t.score_at(here), t.trial_number) for t in trials if t.n_epochs >= here)
        best = {number for _, number in done[: len(done) // eta]}
        allowed[following] = {t.trial_number for t in trials if t.trial_number in best and t.target(9) == here}
    return allowed


@pytest.mark.parametrize("order", range(20))
def test_every_promotion_is_one_that_the_definition_allows(trials_of, order):
    trials = trials_of("asha", n_configs=27, max_epochs=9, order=order, options={"n_parallel": 5})

    def check(decisions):
        allowed = best_third_promotes(trials.trials, [1, 3, 9], 3)
        for decision in decisions:
            if isinstance(decision, ContinueTrial) and trials.training:
                assert decision.trial_number in allowed[decision.n_epochs]
            if isinstance(decision, StartTrial):
                n_promoted = sum(isinstance(other, ContinueTrial) for other in decisions)
                assert sum(map(len, allowed.values())) == n_promoted

    trials.run(check)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_of_three_that_ended_the_best_is_promoted_in_any_order(asha, order):
    scores = [0.1, 0.4, 0.3, 0.2]
    history = [ended(number + 1, scores[i]) for number, i in enumerate(order)]
    best = max(range(3), key=lambda number: scores[order[number]]) + 1
    assert asha().ask(history[:2])[0] != ContinueTrial(best, 3)
    assert asha().ask(history[:3]) == [ContinueTrial(best, 3)]


def test_the_top_rung_comes_first(asha):
    upper = [ended(number, 0.5, 0.5, number / 10, target=3) for number in (1, 2, 3)]
    lower = [ended(number, 0.9) for number in (4, 5, 6, 7, 8, 9)]
    decisions = asha(n_parallel=2, n_configs=20).ask([*upper, *lower])
    assert decisions == [ContinueTrial(3, 9), ContinueTrial(4, 3)]


def test_a_free_place_that_nobody_is_promoted_to_starts_a_new_config(asha):
    decisions = asha(n_parallel=3).ask([ended(1, 0.5), ended(2, target=1)])
    assert [type(decision) for decision in decisions] == [StartTrial, StartTrial]
    assert {decision.n_epochs for decision in decisions} == {1}


def test_a_better_latecomer_is_promoted_although_another_was(asha):
    history = [ended(1, 0.5, target=3), ended(2, 0.1), ended(3, 0.1), ended(4, 0.9)]
    assert asha(n_parallel=2).ask(history) == [ContinueTrial(4, 3)]


def test_failures_count_as_ended_and_are_never_promoted(asha):
    failed = [ended(1, status="failed"), ended(2, math.nan)]
    assert asha().ask([*failed, ended(3, 0.1)]) == [ContinueTrial(3, 3)]
    assert all(isinstance(decision, StartTrial) for decision in asha().ask([*failed, ended(3, math.nan)]))


def test_a_rung_that_nobody_can_reach_any_more_promotes_its_best_and_gives_up_the_others(asha):
    decisions = asha(n_configs=2).ask([ended(1, 0.5), ended(2, 0.7)])
    assert decisions == [StopTrial(1), ContinueTrial(2, 3)]


def test_increments_reach_thirteen_epochs(space_of):
    made = PROCEDURES["asha"](SearchArguments(space_of(), n_configs=9, max_epochs=13, options={"increments": True}))
    assert [row.n_epochs for row in made.preview()] == [1, 4, 13]


@pytest.mark.parametrize("order", range(5))
def test_no_rung_gets_more_than_its_cap_even_if_every_newcomer_is_better(trials_of, order):
    number = iter(range(1000))
    trials = trials_of("asha", n_configs=15, max_epochs=9, order=order, score=lambda config, n: next(number))
    trials.run()
    for row in trials.make().preview():
        assert sum(trial.n_epochs >= row.n_epochs for trial in trials.trials) <= row.n_trials
