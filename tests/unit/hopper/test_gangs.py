"""Gangs and their slots as values: which trial gets which slots, and which units make a gang."""

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from easeml_db.decisions.hopper.allocation.auto import gangs_pay
from easeml_db.decisions.hopper.work.gangs import Scaling, gang_of, gang_slots, gangs_to_start, whole_round
from easeml_db.words.training_unit import after, n_steps_total
from easeml_db.words.trial import Trial


@st.composite
def trials(draw):
    p, epochs = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    done = draw(st.integers(0, n_steps_total(p, epochs)))
    order = draw(st.sampled_from(["cyclic", "free"]))
    met = draw(st.permutations(range(p)))[: done % p] if order == "free" else ()
    return Trial(7, 1, draw(st.integers(1, 9)), p, epochs, done, "running", order, frozenset(met))


def test_hopping_ends_once_half_as_many_trials_are_left_as_there_are_slots():
    assert [gangs_pay(n, 4) for n in (1, 2, 3, 9)] == [True, True, False, False]


def test_auto_asks_what_gangs_have_shown_to_do():
    assert [gangs_pay(n, 8, 2.5) for n in (1, 2, 3, 4)] == [True, True, False, False]
    scaling = Scaling()
    for seconds in (9.0, 1.25):
        scaling.observe("mlp", 4, seconds)
        assert scaling.speedup("mlp", 1.0) is None
    scaling.observe("mlp", 2, 1.0)
    scaling.observe("mlp", 4, 1.6)
    assert scaling.speedup("mlp", 1.0) == 4 / 1.25
    assert scaling.speedup("lenet", 1.0) is None
    for _ in range(3):
        scaling.observe("linear", 2, 0.0)
    assert scaling.speedup("linear", 1.0) == inf


@given(trials(), st.lists(st.integers(1, 20), min_size=1, max_size=8, unique=True))
def test_a_gang_is_the_next_units_of_one_round_each_on_a_slot_of_its_own(trial, slots):
    gang = gang_of(trial, slots)
    if trial.n_steps_done == n_steps_total(trial.n_partitions, trial.max_epochs):
        assert gang is None
        return
    width = min(len(slots), trial.n_partitions - trial.n_steps_done % trial.n_partitions)
    assert len(gang.units) == len(set(gang.slots)) == width
    assert set(gang.slots) <= set(slots)
    assert [unit.step for unit in gang.units] == list(range(trial.n_steps_done, trial.n_steps_done + width))
    assert len({(unit.kind, unit.epoch) for unit in gang.units}) == 1
    partitions = {unit.partition_number for unit in gang.units}
    assert len(partitions) == width
    assert not partitions & trial.met


@given(trials(), st.lists(st.integers(1, 20), min_size=1, max_size=8, unique=True))
def test_a_life_in_gangs_ends_and_meets_every_partition_once_a_round(trial, slots):
    trial = replace(trial, n_steps_done=0, met=frozenset())
    units = []
    while (gang := gang_of(trial, slots)) is not None:
        for unit in gang.units:
            trial = after(trial, unit)
        units += gang.units
    assert len(units) == n_steps_total(trial.n_partitions, trial.max_epochs)
    assert len({(u.kind, u.epoch, u.partition_number) for u in units}) == len(units)


@given(trials(), st.integers(1, 20))
def test_a_whole_round_is_all_that_is_left_of_a_round_on_one_slot(trial, slot):
    every = whole_round(trial, slot)
    if trial.n_steps_done == n_steps_total(trial.n_partitions, trial.max_epochs):
        assert every is None
        return
    done = trial.n_steps_done % trial.n_partitions
    assert every.slots == (slot,)
    assert [unit.position for unit in every.units] == list(range(done, trial.n_partitions))
    assert len({(unit.kind, unit.epoch) for unit in every.units}) == 1
    assert len({unit.partition_number for unit in every.units} | trial.met) == trial.n_partitions - done + len(
        trial.met
    )
    for unit in every.units:
        trial = after(trial, unit)
    assert trial.n_steps_done % trial.n_partitions == 0


def test_where_the_width_divides_the_partitions_a_slot_meets_the_same_ones_in_every_trial():
    met = {1: set(), 2: set()}
    for number in range(1, 5):
        trial = Trial(number, 1, number, 4, 2, 0, "running")
        while (gang := gang_of(trial, (1, 2))) is not None:
            for unit, slot in zip(gang.units, gang.slots, strict=True):
                met[slot].add(unit.partition_number)
                trial = after(trial, unit)
    assert met == {1: {0, 2}, 2: {1, 3}}


@given(st.integers(1, 5), st.integers(0, 6), st.integers(0, 9))
def test_slots_go_to_the_lowest_numbers_as_many_to_each_as_it_has_partitions(p, n_trials, n_slots):
    waiting = [Trial(100 - n, 1, n, p, 1, 0, "waiting") for n in range(n_trials, 0, -1)]
    shared = gang_slots(waiting, list(range(n_slots)))
    assert [slot for mine in shared.values() for slot in mine] == list(range(min(n_slots, p * n_trials)))
    assert list(shared) == [100 - n for n in range(1, len(shared) + 1)]
    assert all(len(mine) == p for mine in list(shared.values())[:-1])


def test_a_gang_starts_when_all_its_slots_are_idle():
    trial = Trial(7, 1, 1, 4, 1, 0, "running")
    assert gangs_to_start([trial], {7: (1, 2)}, {1, 3}) == []
    (gang,) = gangs_to_start([trial], {7: (1, 2)}, {1, 2, 3})
    assert set(gang.slots) == {1, 2}
    assert gangs_to_start([trial], {}, {1, 2, 3}) == []
