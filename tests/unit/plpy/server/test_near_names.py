"""What is said of a name that does not exist."""

from __future__ import annotations

from easeml_plpy.server.near_names import columns_hint, names_hint


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


def test_the_case_of_a_name_does_not_matter() -> None:
    assert (names_hint("WINE", ["wine", "Iris"]) or "").startswith("Did you mean 'wine'?")
    assert (names_hint("iris", ["wine", "anna.Iris"]) or "").startswith("Did you mean 'anna.Iris'?")


def test_a_column_is_asked_for_by_its_nearest_and_a_wide_table_is_not_listed_whole() -> None:
    assert columns_hint("heigth", ["id", "width", "height"]) == "Did you mean 'height'? It has: id, width, height."
    hint = columns_hint("d", [f"c{k}" for k in range(1500)])
    assert hint.startswith("It has: c0, c1, ")
    assert hint.endswith(", c19 and 1480 more.")
