"""Which configs are tried first: what was measured ranks them, and nothing illegal gets in."""

import json

from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.procedures.proposal import begin_search
from easeml_db.decisions.procedures.race.portfolio import choose_portfolio, greedy_cover, losses_of
from tests.unit.procedures.conftest import DECAY, RATE

SPECS = json.dumps([{"architecture": "line", "hyperparameters": [RATE, DECAY]}])
DEFAULTS = {"rate": 0.1, "decay": 0.0}
LOSSES = st.dictionaries(
    st.sampled_from("abcd"), st.dictionaries(st.sampled_from("uvwxyz"), st.floats(0, 1), min_size=1), max_size=4
)


def trial(dataset, quality, **config):
    return {"architecture": "line", "dataset": dataset, "config": config, "quality": quality}


def chosen(*rows):
    return json.loads(choose_portfolio(SPECS, json.dumps(rows)))["line"]


def test_the_first_is_the_best_on_average_and_the_next_helps_where_it_is_weak():
    losses = {
        "one": {"middling": 0.3, "good here": 0.0, "bad": 1.0},
        "two": {"middling": 0.3, "good here": 0.1, "bad": 0.9},
        "three": {"middling": 0.3, "good here": 1.0, "specialist": 0.0},
    }
    assert greedy_cover(losses, 3) == ["middling", "good here", "specialist"]
    assert greedy_cover(losses, 1) == ["middling"]


@given(LOSSES, st.integers(0, 6))
def test_a_cover_holds_each_config_once_and_only_those_that_help(losses, n_configs):
    cover = greedy_cover(losses, n_configs)
    assert len(set(cover)) == len(cover) <= n_configs
    before = dict.fromkeys(losses, 1.0)
    for text in cover:
        after = {name: min(loss, losses[name].get(text, 1.0)) for name, loss in before.items()}
        assert any(after[name] < before[name] for name in losses)
        before = after


def test_losses_compare_within_a_dataset_and_one_trial_alone_says_nothing():
    rows = [trial("a", 0.9, rate=0.1), trial("a", 0.8, rate=0.2), trial("a", 0.6, rate=0.3), trial("b", 0.9, rate=0.1)]
    (of_a,) = losses_of(rows).values()
    assert [round(loss, 3) for loss in of_a.values()] == [0.0, 0.333, 1.0]


def test_history_comes_first_once_it_covers_enough_datasets():
    rows = [trial(name, quality, rate=rate) for name in "abc" for rate, quality in ((0.5, 0.9), (0.2, 0.4))]
    assert chosen() == [DEFAULTS]
    assert chosen(*rows[:4]) == [DEFAULTS], "two datasets are few"
    assert chosen(*rows) == [{"rate": 0.5, "decay": 0.0}, DEFAULTS]


def test_configs_that_are_not_legal_any_more_are_left_out():
    rows = [
        trial(name, quality, **config) for name in "abc" for config, quality in (({"gone": 1}, 0.9), ({"rate": 7}, 0.8))
    ]
    assert chosen(*rows) == [DEFAULTS]


def test_a_race_begins_with_them():
    portfolio = choose_portfolio(SPECS, None)
    begun = json.loads(begin_search(SPECS, None, "race", None, 9, 0, None, portfolio))
    assert begun["trials"][0]["config"] == DEFAULTS
    assert json.loads(begin_search(SPECS, None, "race", None, 9, 0, None, "null"))["trials"][0]["config"] != DEFAULTS
