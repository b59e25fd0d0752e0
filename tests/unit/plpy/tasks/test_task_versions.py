"""Where examples of a task stand, and which blocks of a version are packed anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easeml_plpy.packing.dealing import SPLITS
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.tasks.task_blocks import TaskBlock, plan_blocks
from easeml_plpy.tasks.task_places import check_places, kept_places, partitions_of, places_of, ranks_of


def test_a_rank_counts_earlier_examples_of_the_same_class():
    assert ranks_of(np.array([0, 1, 0, 0, 1])).tolist() == [0, 0, 1, 2, 1]


@given(st.lists(st.integers(0, 4), max_size=200), st.lists(st.integers(0, 4), max_size=200))
def test_what_is_fed_later_moves_no_example(before, later):
    places = places_of(np.array(before, np.int64), 3, 0.15, 0.15)
    after = places_of(np.array(before + later, np.int64), 3, 0.15, 0.15)
    assert after.splits[: len(before)].tolist() == places.splits.tolist()
    assert after.parts[: len(before)].tolist() == places.parts.tolist()


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=120), st.integers(1, 3))
def test_what_is_labelled_late_moves_no_example(fed, n_partitions):
    """Their numbers lie between those of examples that the version before has."""
    numbers, classes = np.arange(1, len(fed) + 1), np.array([code for code, _ in fed], np.int64)
    is_early = np.array([early for _, early in fed])
    first = places_of(classes[is_early], n_partitions, 0.15, 0.15)
    before = [
        TaskBlock(split, part, 0, numbers[is_early][(first.splits == k) & (first.parts == part)], 7)
        for k, split in enumerate(SPLITS)
        for part in range(n_partitions)
    ]
    then = kept_places(places_of(classes, n_partitions, 0.15, 0.15), numbers, before)
    assert then.splits[is_early].tolist() == first.splits.tolist()
    assert then.parts[is_early].tolist() == first.parts.tolist()
    other = kept_places(places_of(classes, 5, 0.15, 0.15), numbers, before, keeps_partitions=False)
    assert other.splits[is_early].tolist() == first.splits.tolist()


def test_what_is_labelled_late_has_its_share_of_each_split():
    classes, is_early = np.arange(3000) % 3, np.arange(3000) // 100 % 2 == 0
    first, numbers = places_of(classes[is_early], 1, 0.15, 0.15), np.arange(3000)
    before = [TaskBlock(split, 0, 0, numbers[is_early][first.splits == k], 7) for k, split in enumerate(SPLITS)]
    then = kept_places(places_of(classes, 1, 0.15, 0.15), numbers, before)
    for code in range(3):
        shares = np.bincount(then.splits[~is_early & (classes == code)], minlength=3) / 500
        assert np.abs(shares - [0.7, 0.15, 0.15]).max() < 0.03


@pytest.mark.parametrize("n_classes", [1, 3, 10])
def test_each_class_has_its_share_of_each_split_and_partition(n_classes):
    classes = np.arange(1000 * n_classes) % n_classes
    places = places_of(classes, 4, 0.15, 0.15)
    for code in range(n_classes):
        mine = classes == code
        shares = np.bincount(places.splits[mine], minlength=3) / 1000
        assert np.abs(shares - [0.7, 0.15, 0.15]).max() < 0.01
        for split in range(3):
            parts = np.bincount(places.parts[mine & (places.splits == split)], minlength=4)
            assert parts.min() > 0.8 * parts.mean()


def test_many_classes_of_few_examples_are_in_every_split():
    shares = np.bincount(places_of(np.repeat(np.arange(500), 2), 1, 0.15, 0.15).splits, minlength=3) / 1000
    assert np.abs(shares - [0.7, 0.15, 0.15]).max() < 0.02


def test_partitions_without_examples_of_a_split_are_told_and_a_split_without_any_is_refused():
    places = places_of(np.zeros(12, np.int64), 4, 0.15, 0.15)
    assert not check_places(places, np.ones(12, bool), 4)
    with pytest.raises(InvalidData, match="2 examples are too few: none of them is a validation example"):
        check_places(places_of(np.zeros(12, np.int64), 1, 0.15, 0.15), np.arange(12) < 2, 1)


def test_the_number_of_partitions_follows_the_owner_then_the_version_before_then_the_size():
    assert partitions_of(10, 3, 1) == 3
    assert partitions_of(10, None, 4) == 4
    assert partitions_of(10, None, None) == 1
    assert partitions_of(2000, None, 1) == 4


def block(number, examples, holder_id=7, split="train", part=0):
    return TaskBlock(split, part, number, np.array(examples, np.int64), holder_id)


def planned(before, wanted, block_rows=3):
    places = {place: np.array(examples, np.int64) for place, examples in wanted.items()}
    return [
        (found.split, found.part, found.number, found.examples.tolist(), found.holder_id)
        for found in plan_blocks(before, places, block_rows)
    ]


def test_a_block_is_kept_while_all_its_examples_are_wanted():
    before = [block(0, [1, 2, 3]), block(1, [4, 5, 6])]
    assert planned(before, {("train", 0): [1, 2, 3, 4, 6]}) == [
        ("train", 0, 0, [1, 2, 3], 7),
        ("train", 0, 1, [4, 6], None),
    ]


def test_new_examples_fill_the_last_block_then_further_ones():
    assert planned([block(0, [1, 2, 3]), block(1, [4])], {("train", 0): [1, 2, 3, 4, 5, 6, 7, 8]}) == [
        ("train", 0, 0, [1, 2, 3], 7),
        ("train", 0, 1, [4, 5, 6], None),
        ("train", 0, 2, [7, 8], None),
    ]


def test_a_block_of_which_nothing_is_left_goes_and_its_number_is_not_taken_again():
    assert planned([block(0, [1]), block(1, [2])], {("train", 0): [1, 3, 4, 5]}) == [
        ("train", 0, 0, [1, 3, 4], None),
        ("train", 0, 2, [5], None),
    ]


def test_an_example_that_is_switched_on_again_comes_to_the_end_of_its_place():
    assert planned([block(0, [1, 3, 5])], {("train", 0): [1, 2, 3, 5]}) == [
        ("train", 0, 0, [1, 3, 5], 7),
        ("train", 0, 1, [2], None),
    ]


@given(st.lists(st.integers(0, 60), unique=True), st.lists(st.integers(0, 60), unique=True), st.integers(1, 9))
def test_the_blocks_hold_what_is_wanted_and_never_too_much(before, wanted, block_rows):
    first = plan_blocks([], {("train", 0): np.array(sorted(before), np.int64)}, block_rows)
    second = plan_blocks(first, {("train", 0): np.array(sorted(wanted), np.int64)}, block_rows)
    held = [example for found in second for example in found.examples.tolist()]
    assert sorted(held) == sorted(wanted)
    assert all(0 < len(found.examples) <= block_rows for found in second)
    assert len({found.number for found in second}) == len(second)
