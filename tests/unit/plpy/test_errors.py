"""Errors carry an SQLSTATE of class ML, and say what to do."""

from __future__ import annotations

import pytest

from easeml_plpy import errors
from easeml_plpy.errors import EasemlError, TrialFailed, close_matches_hint

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, EasemlError) and value is not EasemlError
]


def test_each_class_has_an_sqlstate_of_its_own() -> None:
    assert sorted(each.sqlstate for each in CLASSES) == [*(f"ML{n:03}" for n in range(1, 12)), "ML015"]


def test_the_tree_that_opens_the_module_names_each_class_with_its_sqlstate() -> None:
    lines = (errors.__doc__ or "").splitlines()
    for each in CLASSES:
        assert any(each.__name__ in line and each.sqlstate in line for line in lines), each


def test_message_detail_and_hint_are_kept() -> None:
    error = TrialFailed("diverged", detail="loss is nan", hint="lower the learning rate")
    assert (str(error), error.message, error.detail, error.hint) == (
        "diverged",
        "diverged",
        "loss is nan",
        "lower the learning rate",
    )
    assert (TrialFailed("x").detail, TrialFailed("x").hint) == (None, None)


@pytest.mark.parametrize(
    ("given", "hint"),
    [("learning_rat", "Did you mean 'learning_rate'?"), ("zzz", "Known: learning_rate, width.")],
)
def test_hints_name_what_is_near_or_else_all(given: str, hint: str) -> None:
    assert close_matches_hint(given, ["width", "learning_rate"]) == hint
