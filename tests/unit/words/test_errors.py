"""Errors: codes are unique, survive the way through SQL and pickle, and read as one line."""

import pickle

import pytest

import easeml_plpy.server.errors as tree
from easeml_db import errors
from easeml_db.errors import EasemlError, InvalidArgument, StaleLease, close_matches_hint, from_sqlstate


def test_codes_are_unique_and_of_class_ml():
    codes = [error.sqlstate for error in errors.ALL_ERRORS]
    assert codes == [f"ML{number:03}" for number in range(20)]


@pytest.mark.parametrize("error", errors.ALL_ERRORS)
def test_an_error_comes_back_as_the_same_class(error):
    back = from_sqlstate(error.sqlstate, "what", "detail", "hint")
    assert type(back) is error
    assert (back.message, back.detail, back.hint) == ("what", "detail", "hint")


@pytest.mark.parametrize("error", errors.ALL_ERRORS)
def test_the_tree_in_the_module_head_shows_every_error(error):
    assert any(error.__name__ in line and error.sqlstate in line for line in tree.__doc__.splitlines())


def test_both_packages_speak_of_the_same_classes():
    assert set(errors.__all__) == {name for name, value in vars(errors).items() if not name.startswith("_")}
    assert all(getattr(errors, name) is getattr(tree, name) for name in errors.__all__)
    assert all(error.__name__ in errors.__all__ for error in tree.ALL_ERRORS)


@pytest.mark.parametrize(
    ("given", "hint"),
    [("learning_rat", "Did you mean 'learning_rate'?"), ("zzz", "Known: learning_rate, width.")],
)
def test_hints_name_what_is_near_or_else_all(given, hint):
    assert close_matches_hint(given, ["width", "learning_rate"]) == hint


def test_an_unknown_code_gives_the_root():
    assert type(from_sqlstate("ML999", "from a newer server")) is EasemlError


def test_text_is_one_line():
    assert str(InvalidArgument("first\n  second", hint="not shown")) == "first second"


def test_detail_and_hint_survive_pickle():
    back = pickle.loads(pickle.dumps(StaleLease("gone", detail="lease 3", hint="stop")))  # noqa: S301
    assert (type(back), str(back), back.detail, back.hint) == (StaleLease, "gone", "lease 3", "stop")
