"""Options and previews as JSON: what is wrong is refused with its path, and what a run may cost is known beforehand."""

import json

import pytest

from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.proposal import preview
from easeml_db.errors import InvalidArgument

ARCHITECTURES = json.dumps({"line": [{"name": "rate", "kind": "float", "default": 0.1, "search": [0.1, 0.2]}]})
WIDE = json.dumps({"rate": {"low": 0.0, "high": 1.0}})


def refused(procedure, options=None, *, max_epochs=9, n_configs=None):
    text = None if options is None else json.dumps(options)
    with pytest.raises(InvalidArgument) as caught:
        preview(ARCHITECTURES, WIDE, procedure, n_configs, max_epochs, 0, text)
    return caught.value


@pytest.mark.parametrize(
    ("procedure", "options", "message"),
    [
        ("hyperband", {"eta": 1}, "procedure_options.eta: expected a whole number from 2 to 1000000, got 1"),
        ("hyperband", {"eta": "3"}, 'procedure_options.eta: expected a whole number from 2 to 1000000, got "3"'),
        ("asha", {"eta": True}, "procedure_options.eta: expected a whole number from 2 to 1000000, got true"),
        ("asha", {"min_epochs": 10}, "procedure_options.min_epochs: expected a whole number from 1 to 9, got 10"),
        ("bohb", {"min_epochs": 0}, "procedure_options.min_epochs: expected a whole number from 1 to 9, got 0"),
        ("tpe", {"n_parallel": 0.5}, "procedure_options.n_parallel: expected a whole number from 1 to 10000, got 0.5"),
        ("tpe", {"n_startup": 0}, "procedure_options.n_startup: expected a whole number from 1 to 10000, got 0"),
        ("pbt", {"population": 1}, "procedure_options.population: expected a whole number from 2 to 10000, got 1"),
        ("pbt", {"interval": 0}, "procedure_options.interval: expected a whole number from 1 to 1000000, got 0"),
        ("pbt", {"perturb": "rate"}, 'procedure_options.perturb: expected a list of hyperparameters, got "rate"'),
        (
            "pbt",
            {"perturb": ["rate", "rat"]},
            'procedure_options.perturb[1]: expected a hyperparameter of the search space, got "rat"',
        ),
        ("successive_halving", {"increments": 1}, "procedure_options.increments: expected true or false, got 1"),
        ("random", {"eta": 3}, 'procedure_options: expected no options, since this procedure has none, got "eta"'),
        ("random", [], "procedure_options: expected an object, got []"),
    ],
)
def test_bad_options_are_refused_with_their_path(procedure, options, message):
    assert str(refused(procedure, options)) == message


@pytest.mark.parametrize("procedure", [name for name, made in PROCEDURES.items() if made.description.options])
def test_unknown_options_are_refused_with_the_known_ones(procedure):
    known = PROCEDURES[procedure].description.options
    error = refused(procedure, {"warmth": 1})
    expected = f'procedure_options.warmth: expected one of the options {", ".join(known)}, got "warmth"'
    assert str(error) == expected
    assert error.hint == f"Choose from: {', '.join(sorted(known))}."


@pytest.mark.parametrize("procedure", sorted(set(PROCEDURES) - {"grid"}))
def test_epochs_and_configs_have_limits(procedure):
    assert str(refused(procedure, max_epochs=0)) == "max_epochs: expected a whole number from 1 to 1000000, got 0"
    message = "n_configs: expected a whole number from 1 to 10000, got 0"
    assert str(refused(procedure, n_configs=0)) == message


def test_options_are_json_and_procedures_exist():
    with pytest.raises(InvalidArgument, match="procedure_options: expected JSON"):
        preview(ARCHITECTURES, WIDE, "asha", None, 9, 0, "{")
    assert refused("ahsa").hint == "Did you mean asha?"


def test_a_population_is_said_once():
    assert str(refused("pbt", {"population": 4}, n_configs=5)).startswith("n_configs: expected the population, 4")


@pytest.mark.parametrize("text", [None, "null", "{}", '{"eta": 3.0}', '{"eta": null}'])
def test_options_may_be_left_out(text):
    rows = json.loads(preview(ARCHITECTURES, WIDE, "hyperband", None, 9, 0, text))
    assert rows[0] == {"arm": "line", "bracket": 0, "rung": 0, "n_trials": 9, "n_epochs": 1, "total_epochs": 9}
    assert [(row["bracket"], row["n_trials"], row["n_epochs"]) for row in rows] == [
        (0, 9, 1),
        (0, 3, 3),
        (0, 1, 9),
        (1, 5, 3),
        (1, 1, 9),
        (2, 3, 9),
    ]


def test_the_preview_of_one_shot_procedures_is_one_row():
    row = {"arm": "line", "bracket": 0, "rung": 0, "n_trials": 2, "n_epochs": 4, "total_epochs": 8}
    for procedure in ("grid", "random"):
        assert json.loads(preview(ARCHITECTURES, None, procedure, None, 4, 0, None)) == [row]
