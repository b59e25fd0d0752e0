"""What nodes find of the inputs of a trial, put together."""

import pytest

from easeml_db.postgres.spread.explaining import mean_rows


def row(name: str, importance: float, deviation: float) -> dict[str, object]:
    return {"input": name, "importance": importance, "standard_deviation": deviation}


def test_importances_are_means_by_rows_and_their_variances_add_up() -> None:
    east = [row("age", 0.4, 0.3), row("ward", 0.1, 0.0)]
    west = [row("ward", 0.8, 0.4), row("age", 0.0, 0.3)]
    first, second = mean_rows([east, west], [0.75, 0.25])
    assert (first["input"], second["input"]) == ("age", "ward")
    assert first["importance"] == pytest.approx(0.3)
    assert second["importance"] == pytest.approx(0.275)
    assert first["standard_deviation"] == pytest.approx((0.225**2 + 0.075**2) ** 0.5)
    assert second["standard_deviation"] == pytest.approx(0.1)
    assert mean_rows([east], [1.0]) == east
