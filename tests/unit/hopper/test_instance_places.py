"""Algorithm 3: where the slots of trials lie."""

from __future__ import annotations

from collections import Counter

import numpy as np

from easeml_db.decisions.hopper.work.instance_places import place

FOUR = {0: 4, 1: 4}


def test_nothing_moves_where_nothing_changes() -> None:
    before = {1: {0: 2}, 2: {1: 4}}
    assert place({1: 2, 2: 4}, before, FOUR) == before


def test_small_trials_lie_on_the_instance_with_the_least_room() -> None:
    assert place({1: 3, 2: 1, 3: 2}, {}, FOUR) == {1: {0: 3}, 3: {1: 2}, 2: {0: 1}}


def test_large_trials_take_whole_instances() -> None:
    assert place({7: 8}, {}, FOUR) == {7: {0: 4, 1: 4}}


def test_smaller_trials_give_way_to_a_larger_one_and_are_placed_again() -> None:
    before = {1: {0: 1}, 2: {1: 1}}
    found = place({1: 1, 2: 1, 3: 4}, before, FOUR)
    assert found[3] in ({0: 4}, {1: 4})
    assert sum(sum(places.values()) for places in found.values()) == 6


def test_reserved_trials_stay_where_they_are() -> None:
    found = place({1: 1, 2: 4}, {1: {0: 1}}, {0: 4}, reserved={1})
    assert found == {1: {0: 1}}


def test_a_trial_that_shrinks_is_placed_anew_and_the_others_stay() -> None:
    before = {1: {0: 4}, 2: {1: 2}}
    assert place({1: 2, 2: 2}, before, FOUR) == {1: {1: 2}, 2: {1: 2}}


def test_trials_leave_an_instance_that_is_gone() -> None:
    assert place({1: 2, 2: 2}, {1: {0: 2}, 2: {1: 2}}, {1: 4}) == {2: {1: 2}, 1: {1: 2}}


def test_no_slot_is_given_twice_and_every_trial_that_fits_whole_is_whole() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n_slots, numbers = int(rng.integers(1, 9)), range(int(rng.integers(1, 6)))
        instances, before = dict.fromkeys(numbers, n_slots), {}
        for _ in range(3):
            wanted = {
                int(t): int(n) for t, n in zip(rng.permutation(8)[:5], rng.integers(1, 2 * n_slots, 5), strict=True)
            }
            before = place(wanted, before, instances)
            used = Counter[int]()
            for trial, places in before.items():
                used.update(places)
                assert sum(places.values()) == wanted[trial]
                assert wanted[trial] > n_slots or len(places) == 1
            assert all(n <= n_slots for n in used.values())
            assert set(used) <= set(numbers)
