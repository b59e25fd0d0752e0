"""The race: who goes on, which candidate gets the next place, and when it ends."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.procedures.budget import DEFAULT_SECONDS, MOST_EPOCHS, complete_budget
from easeml_db.decisions.procedures.contract import ContinueTrial, SearchArguments, StartTrial, StopTrial, TrialHistory
from easeml_db.decisions.procedures.race.race import RaceProcedure
from easeml_db.decisions.procedures.race.race_candidates import (
    CANDIDATE_PATIENCE,
    TRIAL_PATIENCE,
    RaceCandidate,
    is_stalled,
    next_station,
)
from easeml_db.decisions.search_space.parsing import parse_search_space
from tests.unit.procedures.conftest import SPECS

SCORES = st.lists(st.floats(0, 1) | st.just(math.nan), max_size=30)


def trial(number, scores=(), *, architecture="tree", status="paused", target=None, seconds=0.0, moments=()):
    config = {"architecture": architecture, "number": number}
    target = target or max(len(scores), 1)
    return TrialHistory(
        number, config, status, tuple(scores), target, moments=tuple(moments), seconds=seconds or float(len(scores))
    )


def race(space, *, n_parallel=1, **arguments):
    return RaceProcedure(SearchArguments(space, 100, options={"n_parallel": n_parallel}, **arguments))


@pytest.fixture
def space(space_of):
    return space_of()


def test_a_trial_that_improves_is_not_stalled_and_one_that_does_not_is_given_up():
    assert not is_stalled(trial(1, [0.1, 0.2, 0.3, 0.4, 0.5]))
    assert not is_stalled(trial(1, [0.5, 0.4, 0.4, 0.4]))
    assert is_stalled(trial(1, [0.5] + [0.4] * TRIAL_PATIENCE))
    assert is_stalled(trial(1, [0.5] + [0.50001] * TRIAL_PATIENCE)), "so little is noise"
    assert not is_stalled(trial(1, [*[0.1] * 9, *[0.01 * k for k in range(11, 21)], *[0.1] * 6])), (
        "a third of its epochs"
    )
    assert is_stalled(trial(1, [math.nan]))


@given(SCORES)
def test_patience_only_grows_with_what_is_added(scores):
    if scores and is_stalled(trial(1, scores)):
        return
    best = max((score for score in scores if score == score), default=0.0)
    assert not scores or not is_stalled(trial(1, [*scores, best + 1.0]))


@given(st.integers(1, 99))
def test_stations_lie_ahead_and_within_the_epochs(n_epochs):
    assert n_epochs < next_station(n_epochs, 100) <= min(100, 2 * n_epochs)


def test_every_candidate_begins_before_any_goes_on(space):
    first = race(space).ask([])
    assert [(type(d), d.config["architecture"], d.n_epochs) for d in first] == [
        (StartTrial, "tree", 1), (StartTrial, "line", 1)
    ]  # fmt: skip
    done, waiting = trial(1, [0.9]), trial(2, architecture="line", status="waiting")
    assert race(space).ask([done, waiting]) == []
    assert race(space, n_parallel=2).ask([done, waiting]) == [ContinueTrial(1, 2)]


def test_configs_of_the_portfolio_come_first_and_each_once(space):
    good = [
        {"architecture": "tree", "rate": 0.5},
        {"architecture": "tree", "rate": 0.5},
        {"architecture": "tree", "rate": 0.7},
    ]
    search = race(space, portfolio={"tree": good}, n_parallel=3)
    starts = [decision for decision in search.ask([]) if isinstance(decision, StartTrial)]
    assert starts[0].config == good[0]
    stopped = [trial(1, [0.5], status="stopped"), trial(2, [0.1], architecture="line", status="stopped", seconds=1e6)]
    (second, third, _) = search.ask(stopped)
    assert second.config == good[2]
    assert third.config not in good


def test_the_best_of_a_candidate_goes_on_at_once_and_one_that_is_behind_waits():
    candidate = RaceCandidate((trial(1, [0.8]), trial(2, [0.7])), 100, 3)
    assert candidate.promotable().trial_number == 1
    running = trial(1, [0.8, 0.85], status="running", target=9)
    assert RaceCandidate((running, trial(2, [0.7])), 100, 3).promotable() is None
    six = [trial(k, [0.1 * k]) for k in range(1, 7)]
    assert [t.trial_number for t in six if RaceCandidate((*six,), 100, 3)._is_among_best(t)] == [5, 6]


def test_a_slot_goes_to_the_candidate_that_improves_fastest(space):
    fast = trial(1, [0.5, 0.6, 0.7], seconds=3.0)
    slow = trial(2, [0.5, 0.5001, 0.5002], architecture="line", seconds=300.0)
    assert race(space).ask([fast, slow]) == [ContinueTrial(1, 4)]


def held(number, architecture):
    return replace(trial(number, architecture=architecture, status="waiting"), is_held=True)


def test_nothing_is_decided_where_a_slot_is_wanted_for_a_candidate_whose_arm_is_not_open(space):
    """Its burden is that of a few of the longest epochs: until others have spent as much, they go on."""
    one, far = trial(1, [0.5], seconds=10.0), trial(1, [0.1 * k for k in range(1, 10)], seconds=90.0)
    assert race(space).ask([held(1, "tree"), held(2, "line")]) == [], "nobody knows what an epoch takes"
    assert race(space).ask([one, held(2, "line")]) == [ContinueTrial(1, 2)]
    assert race(space).ask([far, held(2, "line")]) == [], "its turn has come"
    opened = trial(2, architecture="line", status="waiting")
    assert race(space).ask([far, opened]) == [], "it trains"
    cancelled = replace(held(2, "line"), status="cancelled")
    assert race(space).ask([far, cancelled]) == [ContinueTrial(1, 13)], "nobody waits for what will not come"


def test_a_candidate_whose_only_trial_failed_keeps_no_other_from_opening():
    """It is never measured by that trial, so nobody waits for it."""
    space = parse_search_space({**SPECS, "net": SPECS["line"]})
    far = replace(trial(2, [0.1 * k for k in range(1, 10)], seconds=90.0), config={"architecture": "line"})
    failed = replace(trial(1, status="failed", target=1), config={"architecture": "tree"})
    waiting = replace(held(3, "net"), config={"architecture": "net"})
    assert race(space).ask([failed, far, waiting]) == [], "its turn has come"


def test_as_many_configs_are_tried_as_are_asked_for(space):
    stopped = [trial(1, [0.1], architecture="line", status="stopped", seconds=1e9)]
    stopped += [trial(k, [0.5 + k / 1e4], status="stopped", seconds=1.0) for k in range(2, 102)]
    starts = [d for d in race(space, n_configs=200, n_parallel=3).ask(stopped) if isinstance(d, StartTrial)]
    assert starts, "a hundred configs of tree are there already"
    assert race(space).n_trials() <= 128


def test_what_cannot_catch_up_in_the_time_that_is_left_comes_last(space):
    """Four more epochs of the candidate behind take 400 seconds."""
    ahead = trial(1, [0.5, 0.9, 0.9, 0.9], seconds=400.0, moments=(100, 200, 300, 400))
    behind = trial(2, [0.8], architecture="line", seconds=100.0, moments=(400,))
    assert race(space).ask([ahead, behind]) == [ContinueTrial(2, 2)], "no clock decides"
    assert race(space, max_seconds=900.0).ask([ahead, behind]) == [ContinueTrial(2, 2)]
    assert race(space, max_seconds=700.0).ask([ahead, behind]) == [ContinueTrial(1, 6)]
    assert race(space, max_seconds=700.0).ask([ahead, held(2, "line")]) == [ContinueTrial(1, 6)]


def test_what_took_many_times_as_long_for_as_much_comes_last(space):
    """The one behind needed 20 seconds for what the other had after 10, so 80 more for what that one had after 50."""
    moments = range(10, 90, 10)
    ahead = trial(1, [0.5, 0.6, 0.7, 0.8, *[0.9] * 4], seconds=80.0, moments=moments)
    behind = trial(2, [0.4, 0.5], architecture="line", seconds=20.0, moments=(70, 80))
    assert race(space).ask([ahead, behind]) == [ContinueTrial(2, 3)], "no clock decides"
    assert race(space, max_seconds=161.0).ask([ahead, behind]) == [ContinueTrial(2, 3)]
    assert race(space, max_seconds=159.0).ask([ahead, behind]) == [ContinueTrial(1, 12)]
    quicker = replace(behind, scores=(0.4, 0.7))
    assert race(space, max_seconds=159.0).ask([ahead, quicker]) == [ContinueTrial(2, 3)]


def test_an_epoch_that_takes_long_is_no_slowness_before_it_has_ended():
    """After 2 epochs of 50 seconds it is where the other was after 2: it needs twice as long, not 50 times."""
    ahead = trial(1, [0.5, 0.6, *[0.7] * 47, 0.8], seconds=100.0)
    behind = trial(2, [0.4, 0.5], seconds=100.0)
    assert RaceCandidate((behind,), 100, 3).seconds_behind(RaceCandidate((ahead,), 100, 3)) == 100.0
    one = trial(2, [0.4], seconds=50.0)
    assert RaceCandidate((one,), 100, 3).seconds_behind(RaceCandidate((ahead,), 100, 3)) == 50.0


def test_a_candidate_behind_begins_no_config_beside_one_in_training_while_others_can_go_on(space):
    ahead = trial(1, [0.5, 0.8, *[0.9] * 4], seconds=60.0)
    behind = trial(2, [0.4, 0.5], architecture="line", seconds=2.0)
    assert race(space, n_parallel=2).ask([ahead, behind]) == [ContinueTrial(2, 3), ContinueTrial(1, 9)]
    *_, third = race(space, n_parallel=3).ask([ahead, behind])
    assert (type(third), third.config["architecture"]) == (StartTrial, "tree"), "the best one may"
    (alone,) = race(space, n_parallel=2).ask([replace(ahead, status="stopped"), replace(behind, target_epochs=3)])
    assert alone.config["architecture"] == "tree"
    stopped = [replace(ahead, status="stopped")]
    stopped += [trial(3 + k, [0.3], status="stopped", seconds=1.0) for k in range(CANDIDATE_PATIENCE)]
    (last,) = race(space, n_parallel=2).ask([stopped[0], replace(behind, target_epochs=3), *stopped[1:]])
    assert last.config["architecture"] == "line", "no slot stays idle"


def test_no_architecture_begins_that_has_less_time_left_than_the_best_one_has_taken(space):
    ahead = trial(1, [0.1 * k for k in range(1, 10)], seconds=90.0, moments=range(10, 100, 10))
    assert race(space, max_seconds=181.0).ask([ahead, held(2, "line")]) == [], "its turn has come"
    assert race(space, max_seconds=179.0).ask([ahead, held(2, "line")]) == [ContinueTrial(1, 13)]
    saturated = replace(ahead, scores=(0.5, 0.9, *[0.8] * 7), status="stopped")
    assert race(space, max_seconds=179.0).ask([saturated, held(2, "line")]) == [], "that one was there after 20 seconds"


def test_a_candidate_that_is_behind_has_its_share(space):
    """The longer one candidate takes, the sooner it is another's turn."""
    behind = trial(2, [0.4, 0.45], architecture="line", seconds=2.0)
    gone_far = trial(1, [0.5, 0.6, *[0.601] * 2], seconds=4000.0)
    assert race(space).ask([gone_far, behind]) == [ContinueTrial(2, 3)]


def test_it_ends_when_nothing_improves(space):
    spent = [trial(1, [0.9], status="stopped"), trial(2, [0.8], architecture="line", status="stopped")]
    spent += [trial(3 + k, [0.5], status="stopped") for k in range(CANDIDATE_PATIENCE)]
    numbers = range(3 + CANDIDATE_PATIENCE, 3 + 2 * CANDIDATE_PATIENCE)
    spent += [trial(number, [0.5], architecture="line", status="stopped") for number in numbers]
    assert race(space).ask(spent) == []
    assert race(space).is_done(spent)
    assert isinstance(race(space).ask(spent[:-1])[0], StartTrial)


def test_what_waits_in_vain_is_stopped_at_the_end(space):
    done = [trial(1, [0.9, *[0.1] * 4]), trial(2, [0.8], architecture="line")]
    assert race(space, n_configs=2).ask(done) == [StopTrial(1), ContinueTrial(2, 2)]


@pytest.mark.parametrize(
    ("given", "procedure", "epochs", "seconds"),
    [
        ((None, None, None, None), "race", MOST_EPOCHS, DEFAULT_SECONDS),
        ((None, None, None, 7.0), "race", MOST_EPOCHS, 7.0),
        ((None, 9, None, None), "race", MOST_EPOCHS, None),
        ((None, None, 5, None), "random", 5, None),
        ((None, 8, 5, 60.0), "random", 5, 60.0),
        (("hyperband", None, None, None), "hyperband", MOST_EPOCHS, DEFAULT_SECONDS),
        (("asha", None, 27, None), "asha", 27, None),
    ],
)
def test_what_a_user_leaves_out_is_completed(given, procedure, epochs, seconds):
    assert json.loads(complete_budget(*given)) == {
        "procedure": procedure, "max_epochs": epochs, "max_seconds": seconds
    }  # fmt: skip
