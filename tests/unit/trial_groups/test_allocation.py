"""The live allocator: what holds whatever trials, slots and devices come and go, and who gets what in plain cases."""

from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from easeml_db.decisions.trial_groups.allocation import Allocator, DeviceShare, ready
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.words.topology import Device, Slot, devices_of

PROFILE, EPS = Profile(1.2, 1.1, 2, 4), 0.05


def devices(*n_slots):
    """Devices with so many slots each."""
    slots = (Slot(10 * i + k, f"s{i}{k}", 1, f"cpu:{i}") for i, n in enumerate(n_slots) for k in range(1, n + 1))
    return devices_of(slots)


def allocated(seconds, there, profile=PROFILE):
    allocator = Allocator()
    allocator.renew(seconds, there, profile, EPS)
    return allocator


def widths(allocator):
    return {trial: share.width for trial, share in allocator.shares().items()}


def test_the_papers_example():
    allocator = allocated({1: 4.0, 2: 4.0, 3: 12.0, 4: 30.0}, devices(2, 2, 2, 2, 2))
    assert widths(allocator) == {1: 0.5, 2: 0.5, 3: 1, 4: 3}
    shares = allocator.shares()
    assert shares[1].devices == shares[2].devices
    assert [(each.group_number, each.reason) for each in allocator.take_log().changes] == [(1, "static")] * 4
    assert not allocator.take_log()


def test_what_leaves_lets_others_grow_and_a_resize_counts_once():
    allocator, there = allocated({1: 10.0, 2: 10.0}, devices(1, 1)), devices(1, 1)
    assert widths(allocator) == {1: 1, 2: 1}
    allocator.take_log()
    allocator.renew({1: 9.0}, there, PROFILE, EPS)
    assert widths(allocator) == {1: 2}
    assert [(each.share.width, each.reason) for each in allocator.take_log().changes] == [(2, "dynamic")]


def test_a_trial_that_was_resized_rests_and_is_then_looked_at_again():
    allocator = allocated({1: 10.0, 2: 100.0}, devices(1, 1))
    allocator.renew({1: 10.0}, devices(1, 1), PROFILE, EPS)
    for _ in range(4):
        allocator.reported(1)
        allocator.renew({1: 9.0}, devices(1, 1, 1, 1), PROFILE, EPS)
    assert widths(allocator) == {1: 2}
    allocator.reported(1)
    allocator.renew({1: 9.0}, devices(1, 1, 1, 1), PROFILE, EPS)
    assert widths(allocator) == {1: 4}


def test_a_device_holds_no_more_trials_than_it_has_slots():
    there = devices(2, 1)
    allocator = allocated(dict.fromkeys(range(5), 1.0), there)
    on = [share.devices[0] for share in allocator.shares().values()]
    assert sorted(on.count(device) for device in there) == [1, 2]


def test_a_trial_on_a_lost_device_is_placed_anew_in_its_group():
    allocator = allocated({1: 10.0, 2: 10.0}, devices(1, 1))
    allocator.take_log()
    allocator.renew({1: 10.0, 2: 10.0}, devices(1, 1)[:1], PROFILE, EPS)
    assert len(allocator.shares()) == 1
    allocator.renew({1: 10.0, 2: 10.0}, devices(1, 1, 1), PROFILE, EPS)
    assert len({share.devices for share in allocator.shares().values()}) == 2
    assert {each.group_number for each in allocator.take_log().changes} == {1}


def test_trials_that_come_later_are_a_group_of_their_own():
    allocator = allocated({1: 10.0}, devices(1))
    allocator.renew({1: 9.0, 2: 5.0, 3: 5.0}, devices(1), PROFILE, EPS)
    assert allocator.groups() == {1: 1, 2: 2, 3: 2}


def test_groups_come_and_end():
    allocator = allocated({1: 10.0, 2: 10.0}, devices(1))
    assert [(each.group_number, each.trial_ids) for each in allocator.take_log().groups] == [(1, (1, 2))]
    allocator.renew({2: 10.0, 3: 1.0}, devices(1), PROFILE, EPS)
    assert allocator.take_log().ended == ()
    allocator.renew({3: 1.0}, devices(1), PROFILE, EPS)
    assert allocator.take_log().ended == (1,)


def test_where_c_falls_to_1_packed_trials_part():
    there = devices(2)
    allocator = allocated({1: 1.0, 2: 1.0}, there)
    assert widths(allocator) == {1: 0.5, 2: 0.5}
    allocator.renew({1: 1.0, 2: 1.0}, there, Profile(), EPS)
    assert len(allocator.shares()) == 1


def test_exclusive_units_wait_for_what_is_under_way_and_slots_are_given_once():
    (one, two), share = devices(2, 2), DeviceShare
    packed, alone, gang = share(1, 0.5, (one,)), share(2, 1.0, (one,)), share(3, 2.0, (one, two))
    slots = [*one.slot_ids, *two.slot_ids]
    assert ready({2: alone}, {1: packed}, slots[1:]) == []
    assert ready({3: gang}, {}, slots) == [(3, (one.slot_ids[0], two.slot_ids[0]))]
    assert ready({3: gang}, {}, one.slot_ids) == []
    both = {1: packed, 4: share(4, 0.5, (one,))}
    assert ready(both, {}, slots) == [(1, (1,)), (4, (2,))]
    assert ready(both, {}, slots, lambda trial, slot: (-slot,)) == [(1, (2,)), (4, (1,))]
    assert ready({1: packed}, {2: alone}, slots[1:]) == []


# Whatever happens

happenings = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.lists(st.floats(0.1, 50), min_size=1, max_size=5)),
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("devices"), st.lists(st.integers(0, 3), min_size=1, max_size=5)),
        st.tuples(st.just("profile"), st.tuples(st.integers(1, 4), st.integers(1, 4), st.floats(0, 0.99))),
        st.tuples(st.just("work"), st.floats(0.0, 0.9)),
    ),
    max_size=25,
)


class World:
    """Trials, devices and a profile that change; units start when they may, and end when "work" says so."""

    def __init__(self):
        self.allocator, self.seconds, self.there, self.profile = Allocator(), {}, devices(2, 2), PROFILE
        self.under_way, self.slots_of, self._trials, self.n_units = {}, {}, count(1), {}

    def happen(self, what, value):
        if what == "come":
            self.seconds |= {next(self._trials): each for each in value}
        elif what == "leave" and self.seconds:
            self.seconds.pop(sorted(self.seconds)[value % len(self.seconds)])
        elif what == "devices":
            self.there = devices(*value)
        elif what == "profile":
            c, d, share = value
            self.profile = Profile(1 + share / (c - 1) if c > 1 else 1.0, 1 + share / d, c, d)
        elif what == "work":
            self.work(value)
        self.renew()

    def work(self, share):
        for trial in self.under_way:
            if trial in self.seconds:
                self.seconds[trial] *= share
                self.allocator.reported(trial)
                if self.seconds[trial] < 0.01:
                    del self.seconds[trial]
        self.under_way, self.slots_of = {}, {}

    def renew(self):
        self.allocator.renew(dict(self.seconds), self.there, self.profile, EPS)
        self.check()
        taken = {slot for slots in self.slots_of.values() for slot in slots}
        idle = [slot for device in self.there for slot in device.slot_ids if slot not in taken]
        for trial, slots in ready(self.allocator.shares(), self.under_way, idle):
            self.under_way[trial] = self.allocator.shares()[trial]
            self.slots_of[trial] = slots
            self.n_units[trial] = self.n_units.get(trial, 0) + 1
        self.check_slots()

    def check(self):
        shares = self.allocator.shares()
        assert shares.keys() <= self.seconds.keys() == self.allocator.groups().keys()
        for device in self.there:
            here = [share for share in shares.values() if device in share.devices]
            assert len(here) <= 1 or all(share.is_packed for share in here)
            assert len(here) <= min(self.profile.c, len(device.slot_ids))
        for share in shares.values():
            assert set(share.devices) <= set(self.there)
            assert len(share.devices) == len(set(share.devices)) == max(share.width, 1)
            assert share.width <= self.profile.d

    def check_slots(self):
        taken = [slot for slots in self.slots_of.values() for slot in slots]
        assert len(taken) == len(set(taken))

    def snapshot(self):
        return self.allocator.shares(), dict(self.slots_of), self.allocator.groups()


PACKED_ON_SHARED = [  # a trial that shares its device frees nothing by moving onto another
    ("profile", (3, 1, 0.5)), ("come", [1.0, 1.0, 1.0, 3.0]), ("come", [1.0, 1.0, 2.0, 3.0, 3.0]), ("work", 0.0),
    ("devices", [1, 1, 2, 3]),
]  # fmt: skip


@example(PACKED_ON_SHARED)
@given(happenings)
def test_devices_are_shared_by_packed_trials_only_and_by_no_more_than_fit(happened):
    world = World()
    for what, value in happened:
        world.happen(what, value)


@given(happenings)
def test_every_trial_ends_once_there_is_a_device(happened):
    world = World()
    for what, value in happened:
        world.happen(what, value)
    world.happen("devices", [1])
    for _ in range(200):
        if not world.seconds:
            break
        world.happen("work", 0.001)
    assert not world.seconds


@given(happenings)
def test_what_happened_decides_everything(happened):
    one, other = World(), World()
    for what, value in happened:
        one.happen(what, value)
        other.happen(what, value)
        assert one.snapshot() == other.snapshot()
        assert one.allocator.take_log() == other.allocator.take_log()


def test_slots_share_a_gpu_or_a_named_part_of_the_cpu():
    slots = [
        Slot(1, "a", 1), Slot(2, "b", 1), Slot(3, "c", 1, "cuda:0", memory_limit_bytes=4),
        Slot(4, "d", 1, "cuda:0", memory_limit_bytes=5), Slot(5, "e", 2, "cuda:0"), Slot(6, "f", 1, "cpu:0"),
        Slot(7, "g", 1, "cpu:0"),
    ]  # fmt: skip
    found = devices_of(slots)
    assert [(each.kind, each.slot_ids, each.memory_bytes) for each in found] == [
        ("cpu", (1,), None), ("cpu", (2,), None), ("cuda", (3, 4), 9), ("cuda", (5,), None), ("cpu", (6, 7), None)
    ]  # fmt: skip
    assert len({each.name for each in found}) == 5
    assert all(isinstance(each, Device) for each in found)
