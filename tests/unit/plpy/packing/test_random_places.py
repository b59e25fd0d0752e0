"""The rule that deals rows at random, over arrays, against the rule of dealing.py told row by row."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from easeml_plpy.packing.dealing import SPLITS, Wanted
from easeml_plpy.packing.random_places import copies, in_order, places, splits_at_random
from easeml_plpy.packing.source_rows import MAX_LABELS


def told_row_by_row(ranks: list[int], k: list[int], n_test: int, n_validation: int) -> list[str]:
    """The statement AT_RANDOM of dealing.py in loops."""
    order = sorted(range(len(k)), key=lambda row: (ranks[row], k[row]))
    firsts = {ranks[row]: row for row in reversed(order)}
    split = dict.fromkeys(order, "train")
    for name, n_wanted in (("test", n_test), ("validation", n_validation)):
        candidates = [row for row in order if split[row] == "train" and firsts[ranks[row]] != row]
        for n, row in enumerate(candidates, 1):
            if n * n_wanted // len(candidates) > (n - 1) * n_wanted // len(candidates):
                split[row] = name
    return [split[row] for row in range(len(k))]


@pytest.mark.parametrize(
    ("n_rows", "n_labels", "n_validation", "n_test"),
    [(50, 3, 8, 8), (997, 10, 150, 149), (7, 7, 2, 1), (40, 2, 1, 30), (3 * MAX_LABELS, MAX_LABELS, 4000, 4001)],
)
def test_rows_are_split_as_the_server_splits_them(n_rows: int, n_labels: int, n_validation: int, n_test: int) -> None:
    generator = np.random.default_rng(n_rows)
    ranks = generator.permutation(np.arange(n_rows) % n_labels)
    k = generator.integers(-(2**63), 2**63, n_rows)
    wanted = Wanted(n_rows - n_validation - n_test, n_validation, n_test, has_labels=True)
    found = [SPLITS[split] for split in splits_at_random(ranks, k, wanted)]
    assert found == told_row_by_row(ranks.tolist(), k.tolist(), n_test, n_validation)


def test_blocks_take_the_rows_of_a_split_in_turn_and_in_the_order_of_the_shuffle() -> None:
    splits = np.array([SPLITS.index(name) for name in ["train"] * 7 + ["test"] * 2 + ["validation"]])
    k = np.array([5, -3, 9, 0, 7, -8, 1, 4, 2, 6])
    found = [(place.split, place.part, place.block, place.rows.tolist()) for place in places(splits, k, 2, 2)]
    assert found == [
        ("test", 0, 0, [8]),
        ("test", 1, 0, [7]),
        ("train", 0, 0, [5, 3]),  # in the order of k: 5, 1, 3, 6, 0, 4, 2
        ("train", 0, 1, [0, 2]),
        ("train", 1, 0, [1, 6]),
        ("train", 1, 1, [4]),
        ("validation", 0, 0, [9]),
    ]


def test_copies_are_counted_by_their_keys_else_as_they_lie() -> None:
    hashes = np.array([7, 3, 7, 7, 3, 9])
    assert copies(hashes, None).tolist() == [0, 0, 1, 2, 1, 0]
    assert copies(hashes, ["c", "y", "a", "b", "x", "z"]).tolist() == [2, 1, 0, 1, 0, 0]
    alone = np.arange(5)
    assert Counter(copies(alone, None).tolist()) == {0: 5}


def test_equal_keys_keep_the_order_in_which_rows_lie() -> None:
    generator = np.random.default_rng(3)
    k = generator.integers(-5, 5, 10_000)
    assert in_order(k).tolist() == sorted(range(len(k)), key=lambda row: k[row])
    apart = generator.permutation(10_000) - 5_000
    assert in_order(apart).tolist() == sorted(range(len(k)), key=lambda row: apart[row])
