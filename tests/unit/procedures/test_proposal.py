"""What a run starts with, as JSON, the way the server asks for it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.contract import SearchArguments, StartTrial, TrialHistory
from easeml_db.decisions.procedures.creation import create_procedure
from easeml_db.decisions.procedures.proposal import begin_search
from easeml_db.decisions.procedures.sampling import drawing
from easeml_db.decisions.search_space import sampling
from easeml_db.decisions.search_space.parsing import parse_search_space
from easeml_db.errors import InvalidArgument
from easeml_db.words.run import Search
from tests.unit.procedures.conftest import RATE

DEPTH = {"name": "depth", "kind": "integer", "default": 2, "low": 1, "high": 1_000_000}
SPECS = {"tree": [RATE, DEPTH], "line": [RATE]}
ARCHITECTURES = json.dumps([{"architecture": a, "hyperparameters": specs} for a, specs in SPECS.items()])


def proposed(search_space=None, *, procedure="random", n_configs=None, seed=0):
    text = None if search_space is None else json.dumps(search_space)
    begun = json.loads(begin_search(ARCHITECTURES, text, procedure, n_configs, 3, seed, None))
    assert begun["is_one_shot"]
    assert begun["n_configs"] == len(begun["trials"])
    assert [trial["trial_number"] for trial in begun["trials"]] == list(range(1, len(begun["trials"]) + 1))
    return [{"architecture": trial["architecture"], **trial["config"]} for trial in begun["trials"]]


def random_search(architectures, search_space):
    return begin_search(architectures, search_space, "random", 4, 3, 0, None)


def refused(*arguments, **keywords):
    with pytest.raises(InvalidArgument) as caught:
        proposed(*arguments, **keywords)
    return caught.value


def test_random_proposes_eight_by_default_and_takes_architectures_in_turn():
    configs = proposed()
    assert [config["architecture"] for config in configs] == ["tree", "line"] * 4


@pytest.mark.parametrize("text", [None, "null", "{}"])
def test_no_search_space_has_three_spellings(text):
    assert begin_search(ARCHITECTURES, text, "random", 4, 3, 0, None) == begin_search(
        ARCHITECTURES, None, "random", 4, 3, 0, None
    )


def test_architectures_may_come_as_an_object():
    assert begin_search(json.dumps(SPECS), None, "random", 4, 3, 0, None) == begin_search(
        ARCHITECTURES, None, "random", 4, 3, 0, None
    )


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 40))
def test_a_proposal_is_set_by_its_arguments(seed, n_configs):
    configs = proposed(n_configs=n_configs, seed=seed)
    assert len(configs) == n_configs
    assert configs == proposed(n_configs=n_configs, seed=seed)


def test_another_seed_gives_another_sample():
    assert proposed(seed=1) != proposed(seed=2) != proposed(seed=-2)


def test_random_stops_with_fewer_when_there_are_no_more():
    assert len(proposed({"depth": [1, 2]}, n_configs=100)) == 3


@pytest.mark.parametrize("n_configs", [None, 7, 10_000])
def test_grid_proposes_the_whole_grid(n_configs):
    configs = proposed({"rate": [0.1, 0.2], "depth": [1, 2]}, procedure="grid", n_configs=n_configs or None)
    assert len(configs) == 2 * 2 + 2
    assert len({json.dumps(config) for config in configs}) == 6


def test_a_grid_larger_than_n_configs_is_refused_with_its_size():
    error = refused({"depth": [1, 2, 3]}, procedure="grid", n_configs=3)
    assert str(error) == "n_configs: expected at least 4, the size of the grid, got 3"


def test_a_huge_grid_is_refused_before_it_is_made():
    error = refused({"depth": {"low": 1, "high": 1_000_000}}, procedure="grid")
    assert str(error) == "search_space: expected a grid of at most 10000 configs, got 1000001"


def test_a_grid_over_a_default_range_asks_for_a_list():
    assert "n_points" in refused(procedure="grid").hint


@pytest.mark.parametrize("n_configs", [0, -1, 10_001, True, 2.5])
@pytest.mark.parametrize("procedure", ["grid", "random"])
def test_n_configs_has_limits(procedure, n_configs):
    error = refused({"depth": 1}, procedure=procedure, n_configs=n_configs)
    assert str(error).startswith("n_configs: expected a whole number from 1 to 10000, got")


@pytest.mark.parametrize(("procedure", "hint"), [("gird", "Did you mean grid?"), (None, "Choose from: asha, bohb, ")])
def test_unknown_procedures_are_refused(procedure, hint):
    error = refused(procedure=procedure)
    assert str(error).startswith("procedure: expected a procedure, got")
    assert error.hint.startswith(hint)


def begun_search(procedure, *, n_configs=None, max_epochs=9, seed=7, options=None):
    text = None if options is None else json.dumps(options)
    return json.loads(begin_search(ARCHITECTURES, None, procedure, n_configs, max_epochs, seed, text))


def test_other_procedures_run_once_inside_every_arm_and_number_their_trials_so_that_the_order_of_arms_does_not_matter():
    begun = begun_search("hyperband", options={"n_parallel": 1})
    assert not begun["is_one_shot"]
    assert [arm["architecture"] for arm in begun["arms"]] == ["tree", "line"]
    numbers = {
        arm: [trial["trial_number"] for trial in begun["trials"] if trial["arm"] == arm] for arm in ("tree", "line")
    }
    assert numbers == {"tree": [1, 3, 5, 7, 9, 11, 13, 15, 17], "line": [2, 4, 6, 8, 10, 12, 14, 16, 18]}
    assert {trial["target_epochs"] for trial in begun["trials"]} == {1}
    assert all(trial["architecture"] == trial["arm"] for trial in begun["trials"])
    assert begun["n_configs"] == 2 * (9 + 5 + 3)
    assert {arm["planned_epochs"] for arm in begun["arms"]} == {9 + 6 + 6 + 15 + 6 + 27}


def test_the_first_trials_are_what_the_procedure_asks_for():
    search = Search(ARCHITECTURES, None, "hyperband", max_epochs=9, seed=7)
    first = [decision.config for decision in create_procedure(search, arm="line").ask([])]
    begun = begun_search("hyperband", options={"n_parallel": 4})
    assert [{"architecture": "line", **t["config"]} for t in begun["trials"] if t["arm"] == "line"] == first


@pytest.mark.parametrize("n_configs", [None, 12])
def test_the_arms_of_a_race_share_what_the_run_may_take(n_configs):
    """Each had all of it as its work, so a run over five architectures looked five times as long as it could be."""
    begun = begun_search("race", n_configs=n_configs)
    n_of_run = begun["n_configs"] * 9
    assert [arm["planned_epochs"] for arm in begun["arms"]] == [n_of_run / 2] * 2
    text = json.dumps({"tree": {"rate": [0.1], "depth": [1, 2, 3]}, "line": {"rate": [0.1]}})
    begun = json.loads(begin_search(ARCHITECTURES, text, "race", None, 9, 0, None))
    assert {arm["architecture"]: arm["planned_epochs"] for arm in begun["arms"]} == {"tree": 3 * 9, "line": 9}


def test_a_joint_search_is_one_arm_over_all_architectures():
    begun = begun_search("successive_halving", n_configs=8, options={"joint": True})
    assert [arm["architecture"] for arm in begun["arms"]] == ["tree|line"]
    assert [trial["trial_number"] for trial in begun["trials"]] == list(range(1, 9))
    assert {trial["architecture"] for trial in begun["trials"]} == {"tree", "line"}
    with pytest.raises(InvalidArgument, match=r"procedure_options\.joint: expected true or false"):
        begun_search("asha", options={"joint": 1})


@pytest.mark.parametrize("procedure", sorted(PROCEDURES.keys() - {"grid"}))
def test_the_option_n_trials_says_what_n_configs_says(procedure):
    assert begun_search(procedure, options={"n_trials": 16}) == begun_search(procedure, n_configs=16)
    assert begun_search(procedure, n_configs=16, options={"n_trials": 16}) == begun_search(procedure, n_configs=16)
    said = r"procedure_options\.n_trials: expected n_configs, which says the same and is 8, got 16"
    with pytest.raises(InvalidArgument, match=said):
        begun_search(procedure, n_configs=8, options={"n_trials": 16})
    with pytest.raises(InvalidArgument, match=r"procedure_options\.n_trials: expected a whole number from 1 to 10000"):
        begun_search(procedure, options={"n_trials": "many"})


@given(st.sampled_from(sorted(set(PROCEDURES) - {"grid", "random"})), st.integers(1, 30), st.integers(2, 20))
def test_what_a_run_begins_with_is_within_what_it_may_take(procedure, max_epochs, n_configs):
    begun = begun_search(procedure, n_configs=n_configs, max_epochs=max_epochs)
    assert len(begun["trials"]) <= begun["n_configs"]
    assert all((trial["target_epochs"] or max_epochs) <= max_epochs for trial in begun["trials"])


@pytest.mark.parametrize(
    ("architectures", "search_space", "start"),
    [
        ("{", None, "architectures: expected JSON"),
        ("3", None, "architectures: expected an array or an object"),
        ("[]", None, "architectures: expected at least one"),
        ('[{"hyperparameters": []}]', None, "architectures[0].architecture: expected a name"),
        ('[{"architecture": "tree"}]', None, "architectures.tree: expected a list of hyperparameters"),
        (ARCHITECTURES, "{", "search_space: expected JSON"),
        (ARCHITECTURES, "[" * 100_000, "search_space: expected JSON"),
        (
            ARCHITECTURES,
            '{"depth": ' + "[" * 900 + "]" * 900 + "}",
            "search_space: expected at most 8 levels, got more",
        ),
    ],
)
def test_what_is_no_proper_json_is_refused(architectures, search_space, start):
    with pytest.raises(InvalidArgument) as caught:
        random_search(architectures, search_space)
    assert str(caught.value).startswith(start)


@pytest.mark.parametrize("name", ["grid", "random"])
@given(n_started=st.integers(0, 6))
def test_a_procedure_asked_again_goes_on_where_the_history_ends(name, n_started):
    space = parse_search_space(SPECS, {"rate": [0.1, 0.2, 0.3], "tree": {"depth": 4}})
    procedure = PROCEDURES[name](SearchArguments(space, n_configs=6, max_epochs=1, seed=3))
    first = [decision.config for decision in procedure.ask([])]
    history = [TrialHistory(i + 1, config, "running") for i, config in enumerate(first[:n_started])]
    assert procedure.ask(history) == [StartTrial(config) for config in first[n_started:]]
    assert len(first) == 6


def test_more_trials_than_a_run_may_have_are_refused():
    with pytest.raises(InvalidArgument, match=r"at most 1000000 trials over all arms, got 40016000"):
        begin_search(ARCHITECTURES, None, "pbt", 10_000, 10_000, 0, None)


@pytest.mark.parametrize("procedure", ["tpe", "bohb"])
def test_the_work_of_starting_many_trials_grows_no_faster_than_their_number(procedure, monkeypatch):
    n_calls = 0

    def counted(function):
        def call(*arguments):
            nonlocal n_calls
            n_calls += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(drawing, "key_of", counted(drawing.key_of))
    monkeypatch.setattr(sampling, "draw", counted(sampling.draw))
    begun = json.loads(begin_search(ARCHITECTURES, None, procedure, 200, 6561, 0, '{"n_parallel": 200}'))
    n_trials = len(begun["trials"])
    assert n_trials == 400  # in two arms
    assert n_trials < n_calls < 10 * n_trials
