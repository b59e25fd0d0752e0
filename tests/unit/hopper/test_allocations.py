"""The registry of allocations, and that a further one is a file and a line: a toy serves a whole run in the loop."""

import pytest

from easeml_db.decisions.hopper.allocation.contract import SlotOffer
from easeml_db.decisions.hopper.allocation.registry import (
    ALLOCATIONS,
    allocation_of_ending,
    create_allocation,
    needs_gangs,
)
from easeml_db.decisions.hopper.schedulers.contract import Placement
from easeml_db.decisions.hopper.schedulers.estimates import UnitSeconds
from easeml_db.decisions.hopper.work.run_work import RunWork
from easeml_db.errors import InvalidArgument
from easeml_db.simulated import SimulatedWorld, new_run
from easeml_db.words.training_unit import n_steps_total
from tests.toy_allocation import NAME, OneAfterAnother
from tests.unit.coordinator.planned_worlds import one_stage
from tests.unit.coordinator.test_coordinator import check_complete, one_second, serve, slots


def test_a_further_allocation_is_one_line(monkeypatch):
    monkeypatch.setitem(ALLOCATIONS, NAME, OneAfterAnother)
    run = new_run(1, n_trials=3, n_partitions=2, max_epochs=1, allocation=NAME)
    other = new_run(2, n_trials=2, n_partitions=2, max_epochs=1)
    world = SimulatedWorld(slots(3), [run, other], seconds_of=one_second)
    serve(world)
    check_complete(world, [run, other])
    toy = [unit for unit in world.units if unit.order.unit.run_id == 1]
    numbers = [unit.order.unit.trial_number for unit in toy]
    assert numbers == sorted(numbers, reverse=True)
    assert toy[-1].finished_seconds == 3 * n_steps_total(2, 1)
    assert {unit.order.slot_id for unit in toy} == {2}
    assert 1 not in {u.order.slot_id for u in world.units if u.started_seconds < toy[-1].started_seconds}


def test_an_unknown_allocation_is_refused_with_the_names_that_there_are():
    work = RunWork(new_run(1, n_trials=1, n_partitions=1, max_epochs=1, allocation="sideways"), UnitSeconds())
    with pytest.raises(InvalidArgument, match="sideways") as refusal:
        create_allocation(work)
    assert all(name in refusal.value.hint for name in ALLOCATIONS)


def test_only_whoever_asks_for_data_parallel_insists_on_gangs():
    assert [name for name in ALLOCATIONS if needs_gangs(name)] == ["data_parallel"]
    assert not needs_gangs("sideways")


def test_a_run_in_its_ending_keeps_its_allocation_unless_that_follows_a_plan():
    endings = {name: allocation_of_ending(name) for name in [*ALLOCATIONS, "sideways"]}
    assert {name: ending for name, ending in endings.items() if name != ending} == {"planned": "hopping"}


def offer(idle, **options):
    placement = Placement.shared(range(1, 6), 2)
    return SlotOffer(idle, placement, {}, 5, find_slots=lambda: [1, 2], find_devices=list, **options)


def test_an_offer_ends_where_the_tenants_limit_is():
    assert offer([1, 2, 3]).startable() == [1, 2, 3]
    assert offer([1, 2, 3], n_allowed=2).startable() == [1, 2]
    assert offer([1, 2, 3], n_allowed=2, n_held=1).startable() == [1]
    assert offer([1, 2, 3], n_allowed=1, n_held=2).startable() == []
    assert offer([1, 2, 3], n_allowed=2).startable({2, 3, 4}) == [2, 3]


def test_what_was_held_back_of_an_offer_counts_for_the_limit():
    left = offer([1, 2, 3, 4], n_allowed=3).without({1, 2, 9})
    assert left.idle == [3, 4]
    assert left.startable() == [3]
    assert offer([1]).without(()).startable() == [1]


@pytest.mark.parametrize("name", sorted(ALLOCATIONS))
def test_every_allocation_serves_a_run_and_starts_nothing_when_nothing_is_idle(name):
    run = new_run(1, n_trials=3, n_partitions=2, max_epochs=1, allocation=name)
    world = SimulatedWorld(slots(2), [run], seconds_of=one_second)
    world.tables.plans_table.plans[1] = one_stage(1, 2)
    serve(world)
    check_complete(world, [run])
    allocation = create_allocation(RunWork(run, UnitSeconds()))
    assert not allocation.choose(offer([])).starts
