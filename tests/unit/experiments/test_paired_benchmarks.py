"""Benchmarks: which rows of two trees are paired, when a ratio counts as worse, what a page keeps of earlier runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from comparison.measuring import Row, take_turns
from comparison.page import Measured, heading, ratio_text, renewed
from comparison.paired import Side, _round, paired


def row(name: str, value: float, unit: str = "ms") -> Row:
    return Row(name, f"took {value}", value, unit)


def test_rows_are_paired_by_name_and_place_and_the_ratio_is_the_median_of_the_rounds():
    rounds = [
        (
            [row("gone", 1.0), row("unit", 10.0), row("unit", 2.0)],
            [row("unit", 5.0), row("unit", 2.0), row("new", 9.0)],
        ),
        (
            [row("gone", 1.0), row("unit", 20.0), row("unit", 2.0)],
            [row("unit", 40.0), row("unit", 1.0), row("new", 7.0)],
        ),
        (
            [row("gone", 1.0), row("unit", 10.0), row("unit", 2.0)],
            [row("unit", 9.0), row("unit", 4.0), row("new", 8.0)],
        ),
    ]
    first, second, new = paired(rounds)
    assert (first.row.value, first.before, first.after) == (9.0, [10.0, 20.0, 10.0], [5.0, 40.0, 9.0])
    assert first.ratios == [0.5, 2.0, 0.9]
    assert ratio_text(first) == "0.900 (0.500 to 2.000)"
    assert second.ratios == [1.0, 0.5, 2.0]
    assert (new.row.value, new.ratios, ratio_text(new)) == (8.0, [], "")


@pytest.mark.parametrize(
    ("kind", "after", "is_worse"),
    [
        (Row("time", "", 0.0, "ms"), 103.0, False),
        (Row("time", "", 0.0, "ms"), 104.0, True),
        (Row("time", "", 0.0, "x time", at_most=3), 90.0, False),
        (Row("speed", "", 0.0, "x speed"), 96.0, True),
        (Row("speed", "", 0.0, "x speed"), 104.0, False),
        (Row("runs", "", 0.0, "of 50", at_least=50), 96.0, True),
    ],
)
def test_worse_means_slower_or_less_by_more_than_three_hundredths(kind: Row, after: float, is_worse: bool):
    assert Measured(kind, [100.0], [after]).is_worse is is_worse


class ScriptedSide(Side):
    """Answers from a list, and writes down when it was asked."""

    def __init__(self, name: str, values: list[float], asked: list[str]) -> None:
        self._name, self._values, self._asked = name, iter(values), asked

    def has(self, name: str) -> bool:
        return True

    def next_row(self, name: str) -> Row | None:
        self._asked.append(self._name)
        value = next(self._values, None)
        return None if value is None else row(name, value)


@pytest.mark.parametrize(("number", "order"), [(0, "ABBAABB"), (1, "BAABBAB")])
def test_the_trees_take_turns_row_by_row_and_the_longer_one_is_measured_to_its_end(number: int, order: str):
    asked: list[str] = []
    sides = ScriptedSide("A", [1.0, 2.0], asked), ScriptedSide("B", [3.0, 4.0, 5.0], asked)
    old, new = _round("unit", *sides, number)
    assert [each.value for each in old] == [1.0, 2.0]
    assert [each.value for each in new] == [3.0, 4.0, 5.0]
    assert "".join(asked) == order


def test_both_sides_of_a_pair_go_first_by_turns():
    asked: list[str] = []
    pairs = take_turns(3, lambda: asked.append("A") or len(asked), lambda: asked.append("B") or 10.0 * len(asked))
    assert "".join(asked) == "ABBAAB"
    assert (pairs.ours, pairs.theirs) == ([1, 4, 5], [20.0, 30.0, 60.0])


def test_a_page_keeps_what_was_not_measured_again():
    names = ("whole_run", "hops", "year")
    page = renewed("", (heading("hops"), "of May"), names)
    page = renewed(f"{page}\n## By hand\n\ntwo lines\n\nand a third\n", (heading("whole_run"), "of June"), names)
    page = renewed(page, (heading("hops"), "of July"), names)
    assert page.endswith("\n## Whole run\n\nof June\n\n## Hops\n\nof July\n\n## By hand\n\ntwo lines\n\nand a third\n")
    assert page.count("\n## ") == 3
