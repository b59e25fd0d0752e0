"""Search spaces: what is refused, where and how; what is drawn and enumerated."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.procedures.sampling.drawing import ConfigSequence
from easeml_db.decisions.search_space import sampling
from easeml_db.decisions.search_space.domains import Choices, FloatRange, IntegerRange
from easeml_db.decisions.search_space.grid import grid, grid_size
from easeml_db.decisions.search_space.parsing import parse_search_space
from easeml_db.decisions.search_space.sampling import sample
from easeml_db.errors import InvalidArgument

LEARNING_RATE = {
    "name": "learning_rate",
    "kind": "float",
    "default": 0.01,
    "low": 1e-6,
    "high": 10.0,
    "log": True,
    "search": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
    "summary": "step of the optimiser",
}
BATCH_SIZE = {
    "name": "batch_size",
    "kind": "integer",
    "default": 32,
    "low": 1,
    "high": 4096,
    "search": [32, 256],
}
HIDDEN_UNITS = {"name": "hidden_units", "kind": "integers", "default": [64], "low": 1, "high": 1024}
OPTIMISER = {"name": "optimiser", "kind": "categorical", "default": "adam", "choices": ["adam", "sgd"]}
IS_CENTRED = {"name": "is_centred", "kind": "categorical", "default": True, "choices": [True, False]}
N_FILTERS = {"name": "n_filters", "kind": "integer", "default": 16, "choices": [8, 16, 32]}
MOMENTUM = {"name": "momentum", "kind": "float", "default": 0.0, "low": 0.0, "high": 1.0}

ARCHITECTURES = {
    "mlp": [LEARNING_RATE, BATCH_SIZE, HIDDEN_UNITS, OPTIMISER, MOMENTUM],
    "cnn": [LEARNING_RATE, N_FILTERS, IS_CENTRED],
}


def configs_of(search_space, architectures=ARCHITECTURES):
    return list(grid(parse_search_space(architectures, search_space)))


def refused(search_space, architectures=ARCHITECTURES):
    with pytest.raises(InvalidArgument) as caught:
        parse_search_space(architectures, search_space)
    return caught.value


# What is tried


def test_every_hyperparameter_is_filled_in_and_the_architecture_comes_first():
    assert configs_of({"batch_size": 8}) == [
        {
            "architecture": "mlp",
            "learning_rate": 0.01,
            "batch_size": 8,
            "hidden_units": [64],
            "optimiser": "adam",
            "momentum": 0.0,
        },
        {"architecture": "cnn", "learning_rate": 0.01, "n_filters": 16, "is_centred": True},
    ]
    assert next(iter(configs_of({"batch_size": 8})[0])) == "architecture"


@pytest.mark.parametrize("search_space", [None, {}])
def test_without_a_search_space_the_default_ranges_are_searched(search_space):
    configs = sample(parse_search_space(ARCHITECTURES, search_space), 40, np.random.default_rng(0))
    mlp = [config for config in configs if config["architecture"] == "mlp"]
    assert {config["batch_size"] for config in mlp} == {32, 256}
    assert len({config["learning_rate"] for config in mlp}) == len(mlp) == 20
    assert all(1e-4 <= config["learning_rate"] <= 1e-1 for config in configs)
    assert {config["optimiser"] for config in mlp} == {"adam"}


def test_with_a_search_space_what_it_does_not_mention_keeps_its_default():
    configs = configs_of({"mlp": {"optimiser": ["adam", "sgd"]}})
    assert [config.get("optimiser") for config in configs] == ["adam", "sgd", None]
    assert {config["learning_rate"] for config in configs} == {0.01}


def test_the_part_of_an_architecture_wins_over_the_common_part():
    configs = configs_of({"learning_rate": [0.1, 0.2], "cnn": {"learning_rate": 0.5}})
    assert [(c["architecture"], c["learning_rate"]) for c in configs] == [
        ("mlp", 0.1),
        ("mlp", 0.2),
        ("cnn", 0.5),
    ]


def test_a_key_that_names_both_is_the_architecture():
    (config,) = configs_of({"momentum": {"momentum": 0.5}}, {"momentum": [MOMENTUM]})
    assert config == {"architecture": "momentum", "momentum": 0.5}
    (config,) = configs_of({"momentum": {}}, {"momentum": [MOMENTUM]})
    assert config["momentum"] == 0.0


def test_a_flat_list_fixes_a_list_and_nested_lists_are_choices():
    def hidden(value):
        return [c["hidden_units"] for c in configs_of({"mlp": {"hidden_units": value}}) if "hidden_units" in c]

    assert hidden([128, 64]) == [[128, 64]]
    assert hidden([[128], [128, 64], []]) == [[128], [128, 64], []]


def test_numbers_take_the_type_of_the_hyperparameter():
    (config, _) = configs_of({"batch_size": 64.0, "momentum": 1})
    assert (type(config["batch_size"]), type(config["momentum"])) == (int, float)


def test_a_choice_of_booleans_is_not_a_choice_of_numbers():
    assert configs_of({"cnn": {"is_centred": [False, True]}})[-1]["is_centred"] is True
    assert "search_space.cnn.is_centred: expected one of true, false, got 1" in str(refused({"cnn": {"is_centred": 1}}))


# What is refused


@pytest.mark.parametrize(
    ("search_space", "message"),
    [
        ([], "search_space: expected an object, got []"),
        ("fast", 'search_space: expected an object, got "fast"'),
        ({"mlp": 3}, "search_space.mlp: expected an object of its hyperparameters, got 3"),
        (
            {"mlp": {"learning_rate": {"low": 1, "high": 0.5}}},
            "search_space.mlp.learning_rate.low: expected low at",
        ),
        (
            {"learning_rate": {"low": 0.1}},
            "search_space.learning_rate: expected a range with low and high, got no high",
        ),
        (
            {"learning_rate": {"low": 0.1, "high": 100}},
            "search_space.learning_rate.high: expected a learning_rate of",
        ),
        (
            {"momentum": {"low": 0, "high": 1, "log": True}},
            "search_space.momentum.low: expected above 0 on a log",
        ),
        (
            {"momentum": {"low": 0, "high": 1, "log": 1}},
            "search_space.momentum.log: expected true or false, got 1",
        ),
        (
            {"momentum": {"low": 0, "high": 1, "n_points": 1}},
            "search_space.momentum.n_points: expected a whole",
        ),
        (
            {"momentum": {"low": 0, "high": 1, "n_points": True}},
            "search_space.momentum.n_points: expected a whole",
        ),
        (
            {"momentum": {"type": "integer", "low": 0, "high": 1}},
            'search_space.momentum.type: expected "float"',
        ),
        ({"momentum": []}, "search_space.momentum: expected a list of choices, got an empty list"),
        ({"hidden_units": []}, "search_space.hidden_units: expected a list of choices, got an empty list"),
        ({"momentum": [0, 0.5, 0.0]}, "search_space.momentum[2]: expected different choices, got 0.0 again"),
        ({"momentum": True}, "search_space.momentum: expected a number, got true"),
        ({"momentum": "0.5"}, 'search_space.momentum: expected a number, got "0.5"'),
        ({"momentum": None}, "search_space.momentum: expected a number, got null"),
        ({"momentum": math.nan}, "search_space.momentum: expected a number, got NaN"),
        ({"momentum": [0.5, math.inf]}, "search_space.momentum[1]: expected a number, got Infinity"),
        ({"batch_size": 10**400}, "search_space.batch_size: expected a whole number, got 1000"),
        ({"batch_size": 2.5}, "search_space.batch_size: expected a whole number of at most 64 bits, got 2.5"),
        (
            {"batch_size": [16, 0]},
            "search_space.batch_size[1]: expected a batch_size of at least 1 and at most 4096",
        ),
        ({"hidden_units": 64}, "search_space.hidden_units: expected a list of whole numbers"),
        ({"hidden_units": [[64], 32]}, "search_space.hidden_units[1]: expected a list of whole numbers"),
        (
            {"hidden_units": [[64, 0]]},
            "search_space.hidden_units[0][1]: expected a hidden_units of at least 1",
        ),
        ({"hidden_units": {"low": 1, "high": 2}}, "search_space.hidden_units: expected choices"),
        ({"n_filters": {"low": 8, "high": 32}}, "search_space.n_filters: expected choices"),
        ({"n_filters": 9}, "search_space.n_filters: expected one of 8, 16, 32, got 9"),
        (
            {"optimiser": ["adam", "adagrad"]},
            'search_space.optimiser[1]: expected one of "adam", "sgd", got "adagrad"',
        ),
    ],
)
def test_refusals_say_where_what_and_what_was_got(search_space, message):
    assert message in str(refused(search_space))


@pytest.mark.parametrize(
    ("search_space", "path", "hint"),
    [
        ({"learning_rte": 0.1}, "search_space.learning_rte", "Did you mean learning_rate?"),
        ({"mpl": {}}, "search_space.mpl", "Did you mean mlp?"),
        ({"cnn": {"n_filter": 8}}, "search_space.cnn.n_filter", "Did you mean n_filters?"),
        (
            {"cnn": {"momentum": 0.5}},
            "search_space.cnn.momentum",
            "Choose from: is_centred, learning_rate, n_filters.",
        ),
        ({"momentum": {"low": 0, "hihg": 1}}, "search_space.momentum.hihg", "Did you mean high?"),
        ({"optimiser": "adm"}, "search_space.optimiser", "Did you mean adam?"),
    ],
)
def test_unknown_names_come_with_those_that_look_like_them(search_space, path, hint):
    error = refused(search_space)
    assert str(error).startswith(path + ":")
    assert error.hint == hint


def test_a_common_value_that_one_architecture_forbids_names_that_architecture():
    narrow = {**LEARNING_RATE, "high": 0.5, "search": None}
    error = refused({"learning_rate": 1.0}, {"mlp": [LEARNING_RATE], "cnn": [narrow]})
    assert (
        str(error) == "search_space.learning_rate: expected a learning_rate of at least 1e-06 and at most 0.5, got 1.0"
    )
    assert error.detail == "as architecture cnn declares learning_rate"


def test_long_values_are_cut():
    assert len(str(refused({"momentum": "x" * 10_000}))) < 200


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ("none", "architectures.mlp: expected a list"),
        ([3], "architectures.mlp[0]: expected an object"),
        ([{"name": "architecture"}], "architectures.mlp[0].name"),
        ([{"name": "x", "kind": "int"}], "architectures.mlp[0].kind"),
        (
            [{"name": "x", "kind": "float", "default": None}],
            "architectures.mlp[0].default: expected a number",
        ),
        ([{"name": "x", "kind": "categorical", "default": 1}], "architectures.mlp[0].choices"),
        ([MOMENTUM, MOMENTUM], "architectures.mlp[1].name: expected each name once"),
    ],
)
def test_specs_are_checked_too(specs, message):
    assert message in str(refused(None, {"mlp": specs}))


def test_there_must_be_an_architecture():
    assert str(refused(None, {})) == "architectures: expected at least one architecture, got none"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*ARCHITECTURES, "learning_rate", "hidden_units", "low", "high", "type", "?"]),
            inner,
        )
    ),
    max_leaves=8,
)


def configs_or_refusal(search_space):
    try:
        return sample(parse_search_space(ARCHITECTURES, search_space), 3, np.random.default_rng(0))
    except InvalidArgument as error:
        return str(error)


@given(JSON)
def test_any_json_is_either_a_search_space_or_refused_in_one_line(search_space):
    answer = configs_or_refusal(search_space)
    if isinstance(answer, str):
        assert answer.startswith("search_space")
        assert "expected" in answer
        assert "\n" not in answer
    else:
        assert answer
        assert json.loads(json.dumps(answer)) == answer


# Grid


def test_a_grid_holds_every_combination_once():
    space = parse_search_space(
        ARCHITECTURES,
        {
            "learning_rate": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True, "n_points": 4},
            "batch_size": [16, 32, 64],
            "cnn": {"is_centred": [True, False]},
        },
    )
    configs = list(grid(space))
    assert len(configs) == grid_size(space) == 4 * 3 + 4 * 2
    assert len({json.dumps(config) for config in configs}) == len(configs)
    assert configs == list(grid(space))
    assert [config["learning_rate"] for config in configs[12::2]] == [1e-4, 1e-3, 1e-2, 1e-1]


def test_a_range_of_whole_numbers_needs_no_points():
    assert [c["batch_size"] for c in configs_of({"batch_size": {"low": 2, "high": 5}}) if "batch_size" in c] == [
        2,
        3,
        4,
        5,
    ]


def test_a_float_range_in_a_grid_asks_for_points_where_it_was_written():
    for search_space, path in [
        ({"momentum": {"low": 0, "high": 1}}, "search_space.momentum"),
        ({"mlp": {"momentum": {"low": 0, "high": 1}}}, "search_space.mlp.momentum"),
        (None, "architectures.mlp.learning_rate"),
    ]:
        space = parse_search_space(ARCHITECTURES, search_space)
        for walk in (grid_size, lambda space: list(grid(space))):
            with pytest.raises(InvalidArgument, match="n_points") as caught:
                walk(space)
            assert str(caught.value).startswith(path + ":")
            assert "n_points" in caught.value.hint


FLOAT_RANGES = st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9), st.booleans(), st.integers(2, 50)).map(
    lambda t: FloatRange(min(t[:2]), max(t[:2]), t[2], t[3])
)
INTEGER_RANGES = st.tuples(st.integers(1, 10**6), st.integers(0, 500), st.booleans(), st.integers(2, 50)).map(
    lambda t: IntegerRange(t[0], t[0] + t[1], t[2], t[3])
)


@given(FLOAT_RANGES | INTEGER_RANGES)
def test_grid_points_run_from_end_to_end_without_repetition(span):
    points = list(span.grid_values())
    assert points == sorted(set(points))
    assert (points[0], points[-1]) == (span.low, span.high)
    assert len(points) == span.n_grid_values <= span.n_points


@given(FLOAT_RANGES | INTEGER_RANGES, st.integers(0, 2**32))
def test_draws_lie_within_the_range(span, seed):
    value = span.draw(np.random.default_rng(seed))
    assert span.low <= value <= span.high
    assert isinstance(value, type(span.low))


def test_a_log_range_draws_each_decade_alike():
    rng = np.random.default_rng(0)
    draws = np.array([FloatRange(1e-4, 1e-1, log=True).draw(rng) for _ in range(3000)])
    counts = np.histogram(draws, bins=[1e-4, 1e-3, 1e-2, 1e-1])[0]
    assert counts.min() > 900
    whole = [IntegerRange(1, 3, log=True).draw(rng) for _ in range(3000)]
    assert whole.count(1) > whole.count(2) > whole.count(3) > 0


# Sampling

SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-1}, "batch_size": {"low": 1, "high": 64}}


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 30))
def test_a_sample_is_set_by_its_seed_and_begins_a_longer_one(seed, n_configs, n_more):
    space = parse_search_space(ARCHITECTURES, SPACE)
    configs = sample(space, n_configs, np.random.default_rng(seed))
    assert len(configs) == n_configs
    assert sample(space, n_configs + n_more, np.random.default_rng(seed))[:n_configs] == configs


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_architectures_take_turns_and_no_config_comes_twice(seed, n_configs):
    configs = sample(parse_search_space(ARCHITECTURES, SPACE), n_configs, np.random.default_rng(seed))
    names = [config["architecture"] for config in configs]
    assert names == [["mlp", "cnn"][i % 2] for i in range(n_configs)]
    assert len({json.dumps(config) for config in configs}) == n_configs


@given(st.integers(0, 2**32))
def test_a_finite_space_is_exhausted_and_not_more(seed):
    space = parse_search_space(
        ARCHITECTURES, {"batch_size": {"low": 1, "high": 60, "log": True}, "cnn": {"n_filters": [8, 16]}}
    )
    configs = sample(space, 1000, np.random.default_rng(seed))
    assert sorted(map(json.dumps, configs)) == sorted(map(json.dumps, grid(space)))
    assert [config["architecture"] for config in configs[:5]] == ["mlp", "cnn", "mlp", "cnn", "mlp"]


def test_a_range_of_hardly_any_floats_ends_too():
    above = math.nextafter(0.5, 1.0)
    space = parse_search_space({"mlp": [MOMENTUM]}, {"momentum": {"low": 0.5, "high": above}})
    configs = sample(space, 100, np.random.default_rng(0))
    assert sorted(config["momentum"] for config in configs) in ([0.5], [0.5, above])


COLUMNS = {
    "trees": [
        {"name": "increasing", "kind": "names", "default": []},
        {"name": "together", "kind": "groups", "default": []},
    ]
}


@pytest.mark.parametrize(
    ("space", "values"),
    [
        ({"increasing": ["a", "b"]}, [["a", "b"]]),
        ({"increasing": [["a"], []]}, [["a"], []]),
        ({"together": [["a", "b"], ["c"]]}, [[["a", "b"], ["c"]]]),
        ({"together": [[["a", "b"]], []]}, [[["a", "b"]], []]),
    ],
)
def test_lists_of_names_and_of_groups_are_values_and_one_level_more_is_a_choice(space, values):
    (name,) = space
    assert [config[name] for config in configs_of(space, COLUMNS)] == values


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"increasing": "a"}, "search_space.increasing: expected a list of names"),
        ({"increasing": [["a", 1]]}, "search_space.increasing[0][1]: expected a name, got 1"),
        ({"together": [["a"], "b"]}, "search_space.together[1]: expected a list of names"),
    ],
)
def test_what_is_no_list_of_names_or_groups_is_refused(space, words):
    with pytest.raises(InvalidArgument) as caught:
        configs_of(space, COLUMNS)
    assert words in str(caught.value)


def test_a_sequence_that_is_read_one_by_one_draws_each_config_once(monkeypatch):
    drawn, draw = [], sampling.draw
    monkeypatch.setattr(sampling, "draw", lambda *arguments: drawn.append(draw(*arguments)) or drawn[-1])
    space = parse_search_space(ARCHITECTURES, SPACE)
    sequence = ConfigSequence(space, 7)
    one_by_one = [sequence.at(position) for position in range(60)]
    assert len(drawn) == 60, "who reads a config must not draw those before it again"
    assert one_by_one == sample(space, 60, np.random.default_rng(7)) == sequence.first(60)


def test_a_sequence_that_has_run_out_says_so_again_and_again():
    space = parse_search_space({"cnn": ARCHITECTURES["cnn"]}, {"n_filters": [8, 16]})
    sequence = ConfigSequence(space, 7)
    assert sequence.count(5) == 2
    assert sequence.at(2) is None
    assert len(sequence.first(9)) == 2


def test_a_fixed_value_takes_nothing_from_the_generator():
    """Nothing is asked of numpy for it: what is drawn after it is the same as when numpy was asked."""
    ours, theirs = np.random.default_rng(7), np.random.default_rng(7)
    for _ in range(3):
        assert Choices(("one",)).draw(ours) == "one"
        assert int(theirs.integers(1)) == 0
    assert ours.bit_generator.state == theirs.bit_generator.state
    assert Choices((1, 2, 3)).draw(ours) == (1, 2, 3)[int(theirs.integers(3))]
