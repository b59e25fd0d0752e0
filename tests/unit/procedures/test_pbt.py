"""Population based training: who is copied by whom, and how copies differ."""

import math
from collections import Counter

import numpy as np
import pytest

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.contract import ContinueTrial, SearchArguments, StartTrial, StopTrial, TrialHistory
from easeml_db.decisions.procedures.population.perturbation import perturbable, perturbed

POPULATION = {"population": 10, "interval": 2}


def population(scores, *, n_epochs=2, target=2):
    """Trials after their first round; None still trains."""
    return [
        TrialHistory(i, {"architecture": "line", "rate": i / 20, "decay": 0.1, "units": [8]}, "waiting", s, target)
        for i, s in enumerate((() if score is None else (0.0,) * (n_epochs - 1) + (score,) for score in scores), 1)
    ]


@pytest.fixture
def pbt(space_of):
    return PROCEDURES["pbt"](SearchArguments(space_of(), max_epochs=6, options=POPULATION))


def test_the_worst_fifth_is_replaced_by_copies_of_the_best_fifth(pbt):
    decisions = pbt.ask(population([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]))
    starts = [decision for decision in decisions if isinstance(decision, StartTrial)]
    assert [type(decision) for decision in decisions] == [StartTrial] * 2 + [StopTrial] * 2 + [ContinueTrial] * 8
    assert {start.parent for start in starts} <= {9, 10}
    assert {start.n_epochs for start in starts} == {4}
    assert {decision.trial_number for decision in decisions if isinstance(decision, StopTrial)} == {1, 2}


def test_who_is_in_neither_fifth_whatever_the_others_do_goes_on_at_once(pbt):
    scores = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, None, None]
    assert pbt.ask(population(scores)) == [ContinueTrial(number, 4) for number in (6, 5, 4, 3)]


def test_failures_are_worst_and_are_not_resurrected_beyond_the_worst_fifth(pbt):
    decisions = pbt.ask(population([math.nan] * 4 + [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]))
    kinds = Counter(type(decision) for decision in decisions)
    assert kinds == {StartTrial: 2, StopTrial: 4, ContinueTrial: 6}
    assert {decision.trial_number for decision in decisions if isinstance(decision, StopTrial)} == {1, 2, 3, 4}


def test_where_all_failed_nothing_is_copied(pbt):
    decisions = pbt.ask(population([math.nan] * 10))
    assert decisions == [StopTrial(number) for number in range(1, 11)]


@pytest.mark.parametrize("order", range(5))
def test_lineage_and_result_do_not_depend_on_the_order_in_which_trials_end(trials_of, order):
    runs = [trials_of("pbt", max_epochs=9, options=POPULATION, order=seed).run() for seed in (order, order + 50)]
    assert runs[0].trials == runs[1].trials
    assert runs[0].copies == runs[1].copies


def test_every_round_trains_the_whole_population_and_copies_inherit_its_epochs(trials_of):
    trials = trials_of("pbt", max_epochs=9, options=POPULATION).run()
    assert Counter(inherited for _, _, inherited in trials.copies) == {2: 2, 4: 2, 6: 2, 8: 2}
    assert trials.n_epochs_trained == sum(row.total_epochs for row in trials.make().preview()) == 90
    assert sum(trial.n_epochs == 9 for trial in trials.trials) == 10
    for number, parent, inherited in trials.copies:
        child, source = trials.trials[number - 1], trials.trials[parent - 1]
        assert (child.parent, child.inherited_epochs) == (parent, inherited)
        assert child.config["architecture"] == source.config["architecture"]
        assert source.n_epochs > inherited


def test_copies_change_only_fractional_hyperparameters_unless_others_are_named(space_of):
    rng = np.random.default_rng(0)
    space = space_of()
    config = {"architecture": "tree", "rate": 0.5, "depth": 5, "rule": None}
    copies = [perturbed(config, perturbable(space, None), rng) for _ in range(50)]
    assert {(copy["depth"], copy["rule"]) for copy in copies} == {(5, None)}
    assert {0.4, 0.6} < {round(copy["rate"], 12) for copy in copies}
    named = [perturbed(config, perturbable(space, {"depth", "rule"}), rng) for _ in range(200)]
    assert {4, 6} < {copy["depth"] for copy in named}
    assert {copy["rule"] for copy in named} == {None, True}
    assert {copy["rate"] for copy in named} == {0.5}


def test_copies_stay_within_the_range_and_take_the_next_choice(space_of):
    rng = np.random.default_rng(1)
    domains = perturbable(space_of({"rate": {"low": 0.1, "high": 1.0}, "decay": [0.2, 0.0, 0.1]}), None)
    config = {"architecture": "line", "rate": 0.95, "decay": 0.1, "units": [8]}
    for _ in range(100):
        config = perturbed(config, domains, rng)
        assert 0.1 <= config["rate"] <= 1.0
        assert config["decay"] in (0.0, 0.1, 0.2)
    edge = {**config, "decay": 0.2}
    assert {perturbed(edge, domains, rng)["decay"] for _ in range(100)} == {0.0, 0.1, 0.2}


def test_the_search_space_of_copies_is_named_by_its_hyperparameters(trials_of):
    trials = trials_of("pbt", max_epochs=4, options={"perturb": ["depth", "units"]}).run()
    for number, parent, _ in trials.copies:
        assert trials.trials[number - 1].config["rate"] == trials.trials[parent - 1].config["rate"]


def test_n_configs_is_the_population(space_of):
    made = PROCEDURES["pbt"](SearchArguments(space_of(), n_configs=5, max_epochs=1))
    assert len(made.ask([])) == 5
