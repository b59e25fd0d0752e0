"""Configs drawn by a model: TPE beats random, BOHB learns from the largest budget that has enough results."""

import json
import math
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.contract import WORST, SearchArguments, StartTrial, TrialHistory
from easeml_db.decisions.procedures.halving.largest_budget import n_good, n_varied
from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence
from easeml_db.decisions.procedures.sampling.tree_parzen import Observation, TreeParzenModel
from easeml_db.decisions.search_space.configs import key_of
from easeml_db.decisions.search_space.parsing import SearchSpace

TOY = {"rate": {"low": 0.001, "high": 1.0, "log": True}, "depth": {"low": 1, "high": 50}}


def toy_score(config, n_epochs):
    """Best (0) at rate 0.03 and depth 20; the longer the better."""
    distance = (math.log10(config["rate"]) + 1.5) ** 2 + ((config["depth"] - 20) / 20) ** 2
    return -distance - 1 / n_epochs


def best_of(trials):
    return max(trial.scores[-1] for trial in trials.trials if trial.scores)


@pytest.fixture(scope="session")
def toy(space_of):
    return space_of(TOY, ("tree",))


def test_tpe_beats_random_on_twenty_seeds(toy, trials_of):
    def regret(name, seed):
        options = {"n_parallel": 1} if name == "tpe" else {}
        arguments = {"n_configs": 30, "max_epochs": 1, "seed": seed, "options": options}
        return -1.0 - best_of(trials_of(name, toy, score=toy_score, **arguments).run())

    regrets = {name: [regret(name, seed) for seed in range(20)] for name in ("tpe", "random")}
    assert mean(regrets["tpe"]) < mean(regrets["random"]) / 2
    assert sum(t < r for t, r in zip(regrets["tpe"], regrets["random"], strict=True)) >= 13


def test_tpe_starts_with_the_configs_of_random(toy, trials_of):
    tpe = trials_of("tpe", toy, n_configs=12, max_epochs=1, seed=5, options={"n_startup": 6, "n_parallel": 2}).run()
    random = trials_of("random", toy, n_configs=12, max_epochs=1, seed=5).run()
    shared = [t.config == r.config for t, r in zip(tpe.trials, random.trials, strict=True)]
    assert shared[:6] == [True] * 6
    assert not any(shared[8:])


def test_a_model_keeps_to_the_good_architecture_and_its_hyperparameters(space_of):
    model = TreeParzenModel(space_of())
    good = [
        Observation({"architecture": "line", "rate": 0.5, "decay": 0.1, "units": units}, 1.0 + i / 100)
        for i, units in enumerate([[8], [16, 8]] * 10)
    ]
    bad = [
        Observation({"architecture": "tree", "rate": 0.02, "depth": 1 + i % 9, "rule": (None, True)[i % 2]}, WORST)
        for i in range(20)
    ]
    drawn = [model.draw([*good, *bad], [], [], seed=seed) for seed in range(20)]
    assert sum(config["architecture"] == "line" for config in drawn) >= 15
    for config in drawn:
        others = ["decay", "units"] if config["architecture"] == "line" else ["depth", "rule"]
        assert list(config) == ["architecture", "rate", *others]


def test_a_model_draws_no_known_config_and_says_when_it_finds_none(space_of):
    model = TreeParzenModel(space_of({"rate": [0.1, 0.2]}, ("line",)))
    configs = [{"architecture": "line", "rate": rate, "decay": 0.0, "units": [8]} for rate in (0.1, 0.2)]
    results = [Observation(configs[0], 0.5)]
    assert model.draw(results, [], configs[:1], seed=1) == configs[1]
    assert model.draw(results, [], configs, seed=1) is None


@given(
    st.randoms(use_true_random=False), st.sampled_from([["tree"], ["line"], ["tree", "line"]]), st.integers(4, 12),
    st.sampled_from([None, n_good]),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_draws_do_not_depend_on_those_before_them(space_of, random, names, n_results, good):
    """A model that has drawn before draws what a new one does, whatever has come or gone since."""
    space = space_of({"rate": [0.1, 0.2, 0.3]} if random.random() < 0.3 else None)
    space = SearchSpace(tuple(each for each in space.subspaces if each.architecture in names))
    configs = ConfigSequence(space, random.randrange(1000)).first(40)
    score = {key_of(config): random.choice([WORST, random.random()]) for config in configs}
    model, pending = TreeParzenModel(space, n_good=good), []
    for k in range(12):
        results = [Observation(config, score[key_of(config)]) for config in configs[: n_results + k // 5]]
        known = [*(each.config for each in results), *pending]
        drawn = model.draw(results, pending, known, seed=k)
        assert drawn == TreeParzenModel(space, n_good=good).draw(results, pending, known, seed=k)
        pending += [drawn or configs[-1]]
        if random.random() < 0.1:
            pending.pop(0)


def test_a_model_reads_results_once_for_a_whole_bracket(space_of, monkeypatch):
    """It read them for each of its trials, which is quadratic."""
    n_added = 0
    add = TreeParzenModel._add

    def counted(self, *arguments):
        nonlocal n_added
        n_added += 1
        add(self, *arguments)

    monkeypatch.setattr(TreeParzenModel, "_add", counted)
    space = space_of()
    results = [Observation(config, float(k)) for k, config in enumerate(ConfigSequence(space, 0).first(60))]
    model, started = TreeParzenModel(space), []
    for k in range(40):
        started.append(model.draw(results, started, [each.config for each in results] + started, seed=k))
    assert n_added <= 60 + 40


def test_a_model_is_set_by_its_arguments(toy):
    results = [Observation({"architecture": "tree", "rate": 0.1, "depth": d, "rule": None}, -d) for d in range(1, 9)]
    draws = [TreeParzenModel(toy).draw(results, [], [], seed=seed) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def history_at(n_epochs, n_trials, *, first=1, best_rate=0.9):
    return [
        TrialHistory(
            i,
            {
                "architecture": "tree",
                "rate": best_rate if i % 4 == 0 else 0.01 * (i % 9 + 1),
                "depth": i % 50 + 1,
                "rule": None,
            },
            "stopped",
            (0.0,) * (n_epochs - 1) + (1.0 if i % 4 == 0 else 0.0,),
            n_epochs,
        )
        for i in range(first, first + n_trials)
    ]


def test_bohb_learns_from_the_largest_budget_with_enough_results(toy):
    made = PROCEDURES["bohb"](SearchArguments(toy, max_epochs=9))
    model = made._model
    assert n_varied(toy) == 2
    assert model._results(history_at(1, 4)) == []
    assert len(model._results(history_at(1, 5))) == 5
    mixed = [*history_at(1, 9), *history_at(3, 4, first=10)]
    assert len(model._results(mixed)) == 13
    assert len(model._results([*mixed, *history_at(3, 1, first=14)])) == 5


def test_bohb_counts_a_failure_at_the_budget_that_it_was_on_its_way_to(toy):
    made = PROCEDURES["bohb"](SearchArguments(toy, max_epochs=9))
    failed = TrialHistory(5, {"architecture": "tree", "rate": 0.1, "depth": 40, "rule": None}, "failed", (), 1)
    results = made._model._results([*history_at(1, 4), failed])
    assert [score for _, score in results] == [0.0, 0.0, 0.0, 1.0, WORST]


def test_a_third_of_the_configs_of_bohb_is_random(toy):
    made = PROCEDURES["bohb"](SearchArguments(toy, max_epochs=9))
    random = PROCEDURES["random"](SearchArguments(toy, n_configs=200, max_epochs=9))
    at_random = {json.dumps(decision.config) for decision in random.ask([])}
    drawn = []
    for n_started in range(10, 70):
        config = made.next_config(history_at(3, n_started), [])
        drawn.append(json.dumps(config) in at_random)
    assert 12 <= sum(drawn) <= 28


def test_fifteen_percent_are_good():
    assert [n_good(n) for n in (1, 6, 20, 40, 100)] == [1, 1, 3, 6, 15]


@pytest.mark.parametrize("name", ["bohb", "sync_bohb"])
def test_bohb_follows_the_brackets_of_hyperband(toy, trials_of, name):
    trials = trials_of(name, toy, max_epochs=9, score=toy_score).run()
    assert trials.make().preview() == PROCEDURES["hyperband"](SearchArguments(toy, max_epochs=9)).preview()
    assert [
        sum(t.n_epochs >= n for t in trials.trials[first:last])
        for first, last, n in [(0, 9, 3), (0, 9, 9), (9, 14, 9), (14, 17, 9)]
    ] == [3, 1, 1, 3]


@pytest.mark.parametrize("order", range(3))
def test_sync_bohb_does_not_depend_on_the_order_in_which_trials_end(toy, trials_of, order):
    runs = [
        trials_of("sync_bohb", toy, max_epochs=9, score=toy_score, order=seed).run().trials
        for seed in (order, order + 9)
    ]
    assert runs[0] == runs[1]


def test_sync_bohb_begins_a_bracket_when_the_one_before_has_ended(toy, trials_of):
    trials = trials_of("sync_bohb", toy, max_epochs=9, score=toy_score)
    seen = []

    def note(decisions):
        n_starts = sum(isinstance(decision, StartTrial) for decision in decisions)
        if n_starts:
            seen.append((n_starts, len(trials.training)))

    trials.run(note)
    assert seen == [(9, 0), (5, 0), (3, 0)]
