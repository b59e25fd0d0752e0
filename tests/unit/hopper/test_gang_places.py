"""On which slots the gangs of a planned run lie, from unit to unit."""

from __future__ import annotations

from collections.abc import Mapping

from easeml_db.decisions.hopper.work.gang_places import GangPlaces
from easeml_db.words.trial import Trial

TWO_OF_FOUR = {slot: 1 + (slot > 4) for slot in range(1, 9)}  # slots 1 to 4 of instance 1, 5 to 8 of instance 2


def trials(*numbers: int, n_partitions: int = 8) -> list[Trial]:
    return [Trial(100 + k, 1, k, n_partitions, 9, 0, "running") for k in numbers]


def instances_of(slots: Mapping[int, tuple[int, ...]], instances: Mapping[int, int]) -> list[list[int]]:
    return [sorted({instances[slot] for slot in mine}) for mine in slots.values()]


def test_a_gang_lies_on_one_instance_though_the_next_slots_in_order_are_on_two() -> None:
    """Width 3 of 4: slots in their order would give the second trial slots 4, 5 and 6."""
    found = GangPlaces().share(trials(1, 2), TWO_OF_FOUR, 3)
    assert found == {101: (1, 2, 3), 102: (5, 6, 7)}


def test_gangs_stay_on_their_slots_when_others_have_ended() -> None:
    places = GangPlaces()
    first = places.share(trials(1, 2, 3), TWO_OF_FOUR, 2)
    assert instances_of(first, TWO_OF_FOUR) == [[1], [1], [2]]
    later = places.share(trials(2, 3, 4), TWO_OF_FOUR, 2)
    assert {trial: later[trial] for trial in (102, 103)} == {trial: first[trial] for trial in (102, 103)}
    assert instances_of(later, TWO_OF_FOUR) == [[1], [2], [1]]
    assert len({slot for mine in later.values() for slot in mine}) == 6


def test_a_gang_moves_when_one_of_its_slots_is_gone() -> None:
    places = GangPlaces()
    assert places.share(trials(1), TWO_OF_FOUR, 4) == {101: (1, 2, 3, 4)}
    left = {slot: number for slot, number in TWO_OF_FOUR.items() if slot != 2}
    assert places.share(trials(1), left, 4) == {101: (5, 6, 7, 8)}


def test_a_gang_larger_than_an_instance_takes_whole_ones_and_a_wider_plan_moves_all() -> None:
    places = GangPlaces()
    assert instances_of(places.share(trials(1, 2), TWO_OF_FOUR, 2), TWO_OF_FOUR) == [[1], [1]]
    assert instances_of(places.share(trials(1, 2), TWO_OF_FOUR, 8), TWO_OF_FOUR) == [[1, 2]]


def test_a_trial_that_fits_nowhere_whole_is_spread_and_no_slot_stays_idle() -> None:
    """Three trials of width 3 on twelve slots of three instances, then on two instances: one gets what is left."""
    places = GangPlaces()
    found = places.share(trials(1, 2, 3), TWO_OF_FOUR, 3)
    assert found[103] == (4, 8)
    twelve = {slot: (slot - 1) // 4 for slot in range(1, 13)}
    found = places.share(trials(1, 2, 3), twelve, 3)
    assert instances_of(found, twelve) == [[0], [1], [2]]


def test_a_trial_gets_no_more_slots_than_it_has_partitions_and_most_trials_wait() -> None:
    found = GangPlaces().share(trials(*range(1, 1001), n_partitions=1), TWO_OF_FOUR, 4)
    assert [len(mine) for mine in found.values()] == [1] * 8
    assert set(found) == {100 + k for k in range(1, 9)}
