"""What nodes find of the inputs of a trial, put together."""

import pytest

from easeml_db.errors import InvalidArgument
from easeml_db.postgres.on_nodes.explaining import mean_rows, part_of


def row(name: str, importance: float, deviation: float) -> dict[str, object]:
    return {"input": name, "importance": importance, "standard_deviation": deviation}


def part(name: str | None, contribution: float, error: float | None, label: str = "a") -> dict[str, object]:
    return {"input": name, "contribution": contribution, "standard_error": error, "explained_label": label}


def test_importances_are_means_by_rows_and_their_variances_add_up() -> None:
    east = [row("age", 0.4, 0.3), row("ward", 0.1, 0.0)]
    west = [row("ward", 0.8, 0.4), row("age", 0.0, 0.3)]
    first, second = mean_rows("explain", [east, west], [0.75, 0.25])
    assert (first["input"], second["input"]) == ("age", "ward")
    assert first["importance"] == pytest.approx(0.3)
    assert second["importance"] == pytest.approx(0.275)
    assert first["standard_deviation"] == pytest.approx((0.225**2 + 0.075**2) ** 0.5)
    assert second["standard_deviation"] == pytest.approx(0.1)
    assert mean_rows("explain", [east], [1.0]) == east


def test_contributions_are_means_by_rows_with_the_base_first_and_the_largest_part_next() -> None:
    east = [part(None, 0.5, None), part("age", 0.4, 0.3), part("ward", -0.2, 0.0)]
    west = [part(None, 0.1, None), part("ward", -0.8, 0.4), part("age", 0.0, 0.3)]
    base, first, second = mean_rows("explain_row", [east, west], [0.5, 0.5])
    assert (base["input"], first["input"], second["input"]) == (None, "ward", "age")
    assert (base["contribution"], base["standard_error"]) == (pytest.approx(0.3), None)
    assert (first["contribution"], first["standard_error"]) == (pytest.approx(-0.5), pytest.approx(0.2))
    assert second["contribution"] == pytest.approx(0.2)
    assert first["explained_label"] == "a"
    other = [part(None, 0.5, None, "b"), part("age", 0.4, 0.3, "b"), part("ward", -0.2, 0.0, "b")]
    with pytest.raises(InvalidArgument, match="the nodes predict different classes for this row: 'a', 'b'"):
        mean_rows("explain_row", [east, other], [0.5, 0.5])


def test_a_node_draws_its_share_and_by_itself() -> None:
    sent = {"subject": "explain_row", "options": {"n_orders": 100, "seed": 7, "inputs": "{}"}}
    parts = [part_of(sent, share, place)["options"] for place, share in enumerate((0.7, 0.29, 0.01))]
    assert [each["n_orders"] for each in parts] == [70, 29, 2]
    assert parts[0]["seed"] == 7
    assert len({each["seed"] for each in parts}) == 3
    unsaid = {"subject": "explain", "options": {"n_rows": None, "seed": None}}
    assert part_of(unsaid, 0.5, 1) == unsaid
    assert part_of({"subject": "explain", "options": {"n_rows": 9, "seed": -1}}, 0.5, 1)["options"]["seed"] < 0
