"""What a run starts with, as JSON, the way the server asks for it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.errors import InvalidArgument
from easeml_db.procedures import PROCEDURES
from easeml_db.procedures.contract import Start, TrialHistory
from easeml_db.procedures.proposal import propose
from easeml_db.search_space.parsing import parse_search_space

RATE = {
    "name": "rate",
    "kind": "float",
    "default": 0.1,
    "low": 0.0,
    "high": 1.0,
    "search": {"low": 0.01, "high": 1.0, "log": True},
}
DEPTH = {"name": "depth", "kind": "integer", "default": 2, "low": 1, "high": 1_000_000}
SPECS = {"tree": [RATE, DEPTH], "line": [RATE]}
ARCHITECTURES = json.dumps([{"architecture": a, "hyperparameters": specs} for a, specs in SPECS.items()])


def proposed(search_space=None, *, procedure="random", n_configs=None, seed=0):
    text = None if search_space is None else json.dumps(search_space)
    return json.loads(propose(ARCHITECTURES, text, procedure, n_configs, seed))


def refused(*arguments, **keywords):
    with pytest.raises(InvalidArgument) as caught:
        proposed(*arguments, **keywords)
    return caught.value


def test_random_proposes_eight_by_default_and_takes_architectures_in_turn():
    configs = proposed()
    assert [config["architecture"] for config in configs] == ["tree", "line"] * 4


@pytest.mark.parametrize("text", [None, "null", "{}"])
def test_no_search_space_has_three_spellings(text):
    assert propose(ARCHITECTURES, text, "random", 4, 0) == propose(ARCHITECTURES, None, "random", 4, 0)


def test_architectures_may_come_as_an_object():
    assert propose(json.dumps(SPECS), None, "random", 4, 0) == propose(ARCHITECTURES, None, "random", 4, 0)


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


@pytest.mark.parametrize(
    ("procedure", "hint"),
    [
        ("gird", "Did you mean grid?"),
        ("hyperband", "Choose from: grid, random."),
        ("successive_halving", "Choose from: grid, random."),
        (None, "Choose from: grid, random."),
    ],
)
def test_unknown_procedures_are_refused(procedure, hint):
    error = refused(procedure=procedure)
    assert str(error).startswith("procedure: expected a one-shot procedure, got")
    assert error.hint == hint


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
            "search_space.depth[0]: expected a whole",
        ),
    ],
)
def test_what_is_no_proper_json_is_refused(architectures, search_space, start):
    with pytest.raises(InvalidArgument) as caught:
        propose(architectures, search_space, "random", None, 0)
    assert str(caught.value).startswith(start)


@pytest.mark.parametrize("name", ["grid", "random"])
@given(n_started=st.integers(0, 6))
def test_a_procedure_asked_again_goes_on_where_the_history_ends(name, n_started):
    space = parse_search_space(SPECS, {"rate": [0.1, 0.2, 0.3], "tree": {"depth": 4}})
    procedure = PROCEDURES[name](space, n_configs=6, max_epochs=1, seed=3)
    first = [decision.config for decision in procedure.ask([])]
    history = [TrialHistory(i + 1, config, "running") for i, config in enumerate(first[:n_started])]
    assert procedure.ask(history) == [Start(config) for config in first[n_started:]]
    assert len(first) == 6
