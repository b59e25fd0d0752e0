"""What is said of a name that does not exist."""

from __future__ import annotations

from easeml_plpy.near_names import names_hint


def test_the_nearest_name_comes_first_then_all() -> None:
    hint = names_hint("nowine", ["wine", "iris"])
    assert hint == "Did you mean 'wine'? You may use: iris, wine."


def test_a_name_is_near_to_one_with_a_tenant_before_it() -> None:
    assert (names_hint("flower", ["anna.flowers"]) or "").startswith("Did you mean 'anna.flowers'?")


def test_only_some_of_many_names_are_listed() -> None:
    hint = names_hint("x", [f"dataset {k}" for k in range(30)])
    assert hint is not None
    assert hint.endswith(" and 10 more.")


def test_no_names_make_no_hint() -> None:
    assert names_hint("x", []) is None
