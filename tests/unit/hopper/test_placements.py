"""Placements and demand for slots: what holds until slots, limits or the run change."""

from dataclasses import replace

from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns
from easeml_db.decisions.hopper.dispatch.placements import Placements
from easeml_db.decisions.hopper.dispatch.reserved_slots import ReservedSlots
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.decisions.hopper.dispatch.tenant_limits import TenantLimits
from easeml_db.simulated import new_run
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import TrainingUnit

RUN = new_run(1, n_trials=2, n_partitions=2, max_epochs=1, tenant="one")
OTHER = new_run(2, n_trials=2, n_partitions=2, max_epochs=1, tenant="one")
THIRD = new_run(3, n_trials=2, n_partitions=2, max_epochs=1, tenant="two")


class Parts:
    """A board of slots that each have a device, limits and placements."""

    def __init__(self, n_slots):
        self.board, self.runs = SlotBoard(), OpenRuns()
        self.board.keep([Slot(i, f"slot-{i}", i % 2) for i in range(1, n_slots + 1)])
        for slot_id in range(1, n_slots + 1):
            self.board.ready(slot_id)
        for run in (RUN, OTHER, THIRD):
            self.runs.put(run, {})
        self.limits = TenantLimits(self.board, self.runs)
        self.placements = Placements(self.board, ReservedSlots(self.board, self.runs), self.limits)

    def begin(self, run, slot_id):
        self.board.begin([TrainingUnit(run.run_id, 100 * slot_id, 1, 0, "train", 1, 0, 0)], [slot_id])

    def devices(self, run, taken=()):
        return [slot for device in self.placements.devices_of(run, taken) for slot in device.slot_ids]


# Placements


def test_a_placement_has_the_slots_in_service_with_their_segments_and_is_one_object_until_they_change():
    parts = Parts(3)
    placement = parts.placements.of(RUN)
    assert (placement.segment_of, placement.n_partitions) == ({1: 1, 2: 0, 3: 1}, 2)
    parts.begin(RUN, 1)
    assert parts.placements.of(RUN) is placement
    parts.board.gone(2)
    assert parts.placements.of(RUN).segment_of == {1: 1, 3: 1}


def test_slots_on_other_servers_train_what_is_placed_there_and_all_partitions_where_all_are_or_can_be_brought():
    parts = Parts(2)
    parts.board.keep([Slot(1, "slot-1", 1), Slot(2, "slot-2", 2, service="pg_east")])
    bound = replace(RUN, holders=(frozenset({1, 2}), frozenset({1, 2})))
    parts.runs.put(bound, {})
    assert parts.placements.of(OTHER).segment_of == {1: 1}
    assert parts.devices(OTHER) == [1]
    placement = parts.placements.of(bound)
    assert placement.segment_of == {1: 1, 2: 2}
    assert (placement.slots_for({0}), placement.slots_for_all()) == ({1, 2}, {1, 2})
    apart = replace(bound, run_id=9, holders=(frozenset({1}), frozenset({1, 2})))
    assert parts.placements.of(apart).slots_for_all() == {1}
    brought = replace(apart, run_id=10, gathering_segments=frozenset({2}))
    assert parts.placements.of(brought).slots_for_all() == {1, 2}


def test_a_run_that_has_changed_is_placed_anew_and_others_are_not():
    parts = Parts(2)
    mine, others = parts.placements.of(RUN), parts.placements.of(OTHER)
    parts.placements.forget(1)
    assert parts.placements.of(RUN) is not mine
    assert parts.placements.of(OTHER) is others


def test_new_limits_place_runs_anew():
    parts = Parts(2)
    placement = parts.placements.of(RUN)
    parts.limits.set_limits({"two": 1})
    assert parts.placements.of(RUN) is not placement


def test_devices_of_a_tenant_with_a_limit_are_first_those_on_which_it_works_then_idle_ones():
    parts = Parts(4)
    assert parts.devices(RUN) == [1, 2, 3, 4]
    parts.begin(THIRD, 1)
    parts.begin(OTHER, 4)
    parts.limits.set_limits({"one": 2})
    assert parts.devices(RUN) == [2, 4]
    assert parts.devices(THIRD) == [1, 2, 3, 4]


def test_a_limited_run_keeps_its_devices_until_older_runs_have_taken_all_of_them():
    parts = Parts(4)
    parts.limits.set_limits({"one": 2})
    assert parts.devices(RUN) == [1, 2]
    assert parts.devices(RUN, taken={1, 3}) == [1, 2]
    assert parts.devices(RUN, taken={1, 2}) == [3, 4]
    assert parts.devices(THIRD, taken={1, 2, 3, 4}) == [1, 2, 3, 4]


# Demand


def dispatcher_of(n_slots, *runs):
    dispatcher = Dispatcher()
    dispatcher.board.keep([Slot(i, f"slot-{i}", i) for i in range(1, n_slots + 1)])
    for slot_id in range(1, n_slots + 1):
        dispatcher.board.ready(slot_id)
    for run in runs:
        dispatcher.put_run(run)
    return dispatcher


def test_a_run_demands_nothing_before_an_arm_is_open_and_tenants_demand_apart():
    dispatcher = dispatcher_of(8, RUN, OTHER, THIRD)
    assert dispatcher.demand.n_spare_slots() == 8
    for run in (RUN, OTHER, THIRD):
        dispatcher.runs.open_arm(run.run_id, run.arms[0].arm_id, run.run_id)
    assert dispatcher.demand.n_spare_slots() == 2
    dispatcher.limits.set_limits({"one": 3})
    assert dispatcher.demand.n_spare_slots() == 3
    assert sorted(dispatcher.demand.blocked_runs()) == [1, 2]


def test_trials_that_train_in_gangs_demand_a_slot_for_each_partition():
    gangs = new_run(1, n_trials=1, n_partitions=3, max_epochs=1, allocation="data_parallel")
    dispatcher = dispatcher_of(4, gangs)
    dispatcher.runs.open_arm(1, 1001, 1)
    assert dispatcher.demand.n_spare_slots() == 1


def test_a_run_whose_partitions_have_no_slot_left_is_blocked_while_another_may_go_on():
    bound = new_run(1, n_trials=2, n_partitions=2, max_epochs=1, holders=[{1}, {1}])
    dispatcher = dispatcher_of(3, bound, OTHER)
    assert dispatcher.demand.blocked_runs() == []
    dispatcher.runs.open_arm(1, 1001, 1)
    dispatcher.runs.open_arm(2, 2001, 2)
    assert dispatcher.demand.blocked_runs() == [1]
    assert dispatcher.demand.n_spare_slots() == 0


def test_a_run_whose_arms_are_being_timed_opens_none_and_counts_as_a_newcomer_once_its_pilot_is_under_way():
    dispatcher = dispatcher_of(2, RUN)
    dispatcher.runs.time_arms(1, [1001])
    assert dispatcher.demand.blocked_runs() == [1]
    assert not dispatcher.demand.is_newcomer_timed()
    (pilot,) = dispatcher.next_starts()
    assert dispatcher.demand.is_newcomer_timed()
    dispatcher.piloted(pilot.slots[0], 1.0, 1.0)
    assert not dispatcher.demand.is_newcomer_timed()
    assert dispatcher.demand.blocked_runs() == []
