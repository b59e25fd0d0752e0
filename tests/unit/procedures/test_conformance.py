"""What every procedure keeps to, on trials that end in any order, fail and have scores that are no numbers."""

import json

import pytest

from easeml_db.decisions.procedures import PROCEDURES, list_procedures
from easeml_db.decisions.procedures.contract import SearchArguments, StartTrial

SETTINGS = {
    "random": {"n_configs": 5, "max_epochs": 2},
    "grid": {"max_epochs": 2},
    "successive_halving": {"max_epochs": 9},
    "hyperband": {"max_epochs": 9},
    "asha": {"n_configs": 12, "max_epochs": 9},
    "pbt": {"max_epochs": 7, "options": {"population": 6, "interval": 2}},
    "tpe": {"n_configs": 9, "max_epochs": 2, "options": {"n_startup": 3}},
    "bohb": {"max_epochs": 9},
    "sync_bohb": {"max_epochs": 9},
    "race": {"n_configs": 12, "max_epochs": 9},
}
LISTED = {"rate": [0.1, 0.2, 0.3], "depth": [1, 2], "decay": [0.0, 0.1]}
ADAPTIVE = [name for name in SETTINGS if name not in ("grid", "random")]
CHANCES = [(0, 0.0, 0.0), (1, 0.05, 0.0), (2, 0.0, 0.2), (3, 0.1, 0.1), (4, 0.0, 1.0), (5, 1.0, 0.0)]


@pytest.fixture(params=SETTINGS)
def name(request):
    return request.param


@pytest.fixture
def listed(space_of):
    return space_of(LISTED)


def caps(procedure):
    """(trials, epochs) that a preview allows."""
    rows = procedure.preview()
    return sum(row.n_trials for row in rows if row.rung == 0), sum(row.total_epochs for row in rows)


def test_every_procedure_is_tested_here():
    assert set(SETTINGS) == set(PROCEDURES)


@pytest.mark.parametrize(("order", "p_failed", "p_nan"), CHANCES)
def test_it_ends_within_its_budget_and_leaves_nothing_waiting(name, listed, trials_of, order, p_failed, p_nan):
    trials = trials_of(name, listed, order=order, p_failed=p_failed, p_nan=p_nan, seed=order, **SETTINGS[name])
    trials.run()
    n_trials, n_epochs = caps(trials.make())
    assert len(trials.trials) - len(trials.copies) <= n_trials
    assert trials.n_epochs_trained <= n_epochs
    assert not [trial for trial in trials.trials if trial.is_open]
    assert trials.make().is_done(trials.trials)


def test_without_failures_a_trial_is_trained_to_the_end(name, listed, trials_of):
    trials = trials_of(name, listed, **SETTINGS[name]).run()
    assert any(trial.n_epochs == trials.max_epochs for trial in trials.trials)


def test_it_is_not_done_before_the_end(name, listed, trials_of):
    trials = trials_of(name, listed, **SETTINGS[name])
    assert not trials.make().is_done([])
    while trials.step():
        is_last = not trials.training and not trials.ask()
        assert trials.make().is_done(trials.trials) == is_last


def test_asked_again_after_carrying_out_only_some_decisions_it_names_the_others(name, listed, trials_of):
    trials = trials_of(name, listed, p_nan=0.1, **SETTINGS[name])

    def carry_out_some(decisions):
        assert trials.ask() == decisions
        n_done = int(trials.rng.integers(len(decisions) + 1))
        before = list(trials.trials)
        for decision in decisions[:n_done]:
            trials.apply(decision)
        assert trials.ask() == decisions[n_done:]
        trials.trials = before
        trials.copies = [copy for copy in trials.copies if copy[0] <= len(before)]

    trials.run(carry_out_some)


def test_same_seed_and_order_give_the_same_run(name, listed, trials_of):
    one, other = (trials_of(name, listed, seed=3, order=1, **SETTINGS[name]).run() for _ in range(2))
    assert one.trials == other.trials


def test_another_seed_gives_another_run(name, trials_of):
    if name == "grid":
        return
    one, other = (trials_of(name, seed=seed, **SETTINGS[name]).run() for seed in (-1, 1))
    assert [trial.config for trial in one.trials] != [trial.config for trial in other.trials]


def test_no_config_is_tried_twice(name, listed, trials_of):
    trials = trials_of(name, listed, p_nan=0.2, **SETTINGS[name]).run()
    copies = {number for number, _, _ in trials.copies}
    configs = [json.dumps(trial.config) for trial in trials.trials if trial.trial_number not in copies]
    assert len(set(configs)) == len(configs)


@pytest.mark.parametrize("search_space", [{"rate": 0.5}, {"rate": [0.1, 0.9], "depth": 3}])
def test_a_space_smaller_than_the_plan_is_used_up(name, space_of, trials_of, search_space):
    trials = trials_of(name, space_of(search_space), **SETTINGS[name])
    n_configs = 2 if search_space["rate"] == 0.5 else 4
    trials.run()
    assert len(trials.trials) - len(trials.copies) == min(n_configs, caps(trials.make())[0]) == n_configs
    assert any(trial.n_epochs == trials.max_epochs for trial in trials.trials)


@pytest.mark.parametrize("n_configs", [2, 3, 5])
@pytest.mark.parametrize("name", ADAPTIVE)
def test_n_configs_caps_the_trials(name, trials_of, n_configs):
    options = {key: value for key, value in SETTINGS[name].get("options", {}).items() if key != "population"}
    trials = trials_of(name, n_configs=n_configs, max_epochs=9, options=options).run()
    assert len(trials.trials) - len(trials.copies) == n_configs


@pytest.mark.parametrize("name", ADAPTIVE)
def test_one_epoch_is_enough(name, trials_of):
    trials = trials_of(name, n_configs=4, max_epochs=1).run()
    assert {trial.status for trial in trials.trials} == {"finished"}
    assert len(trials.trials) == (1 if "band" in name or "bohb" in name else 4)  # one epoch makes one bracket of one


@pytest.mark.parametrize("name", ["asha", "tpe", "bohb", "race"])
def test_asynchronous_ones_keep_n_parallel_in_training(name, trials_of):
    trials = trials_of(name, n_configs=9, max_epochs=9, options={"n_parallel": 3})
    while trials.step():
        for decision in trials.ask():
            trials.apply(decision)
        assert len(trials.training) <= 3
        assert len(trials.training) == 3 or len(trials.trials) == 9


def test_one_shot_ones_start_everything_at_once(name, listed):
    procedure = PROCEDURES[name](SearchArguments(listed, **SETTINGS[name]))
    first = procedure.ask([])
    assert first
    assert all(isinstance(decision, StartTrial) for decision in first)
    if procedure.description.is_one_shot:
        assert len(first) == procedure.preview()[0].n_trials


def test_procedures_are_listed_with_their_options():
    rows = {row[0]: row[1:] for row in list_procedures()}
    assert rows["random"][:2] == (True, [])
    assert rows["asha"][:2] == (False, ["eta", "min_epochs", "increments", "n_parallel", "joint"])
    assert all(summary for _, _, summary in rows.values())
