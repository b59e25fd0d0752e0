"""How many slots may work for a tenant, by limits and by what works for it already."""

import pytest

from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.decisions.hopper.dispatch.tenant_limits import TenantLimits
from easeml_db.simulated import new_run
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import TrainingUnit

TENANTS = {1: "one", 2: "one", 3: "two"}  # by run
N_SLOTS = 4


class Served:
    """A board of slots, runs of two tenants, and their limits."""

    def __init__(self):
        self.board, self.runs = SlotBoard(), OpenRuns()
        self.board.keep([Slot(i, f"slot-{i}", i) for i in range(1, N_SLOTS + 1)])
        for slot_id in range(1, N_SLOTS + 1):
            self.board.ready(slot_id)
        for run_id, tenant in TENANTS.items():
            self.runs.put(new_run(run_id, n_trials=2, n_partitions=2, max_epochs=1, tenant=tenant), {})
        self.limits = TenantLimits(self.board, self.runs)

    def begin(self, run_id, *slots):
        units = [TrainingUnit(run_id, 100 * run_id, 1, 0, "train", 1, 0, q) for q in range(len(slots))]
        self.board.begin(units, slots)


@pytest.fixture
def served():
    return Served()


def test_without_a_limit_any_number_of_slots_may_work_for_a_tenant(served):
    served.limits.set_limits({"two": 1})
    served.begin(1, 1)
    assert served.limits.n_allowed("one") is None
    assert "one" not in served.limits
    assert served.limits.of("one", default=9) == 9


def test_a_limit_is_less_by_the_slots_of_all_runs_of_the_tenant_and_by_those_of_no_other(served):
    served.limits.set_limits({"one": 4})
    assert "one" in served.limits
    assert served.limits.n_allowed("one") == 4
    served.begin(1, 1)
    served.begin(3, 2)
    served.begin(2, 3)
    assert served.limits.working_for("one") == {1, 3}
    assert served.limits.n_allowed("one") == 2
    assert served.limits.of("one", default=9) == 4
    served.board.answered(1)
    assert served.limits.n_allowed("one") == 3


def test_each_slot_of_a_gang_works_for_the_tenant(served):
    served.limits.set_limits({"one": 3})
    served.begin(1, 2, 4)
    assert served.limits.working_for("one") == {2, 4}
    assert served.limits.n_allowed("one") == 1


def test_a_limit_below_what_is_at_work_allows_nothing_more_and_takes_nothing_away(served):
    served.begin(1, 1)
    served.begin(2, 2)
    served.limits.set_limits({"one": 1})
    assert served.limits.n_allowed("one") == 0
    assert served.limits.working_for("one") == {1, 2}


def test_slots_of_a_run_that_is_gone_count_no_more_though_they_are_still_busy(served):
    served.begin(1, 1)
    served.begin(2, 2)
    served.limits.set_limits({"one": 3})
    served.runs.drop(1)
    assert served.board.n_busy([1, 2]) == 2
    assert served.limits.working_for("one") == {2}
    assert served.limits.n_allowed("one") == 2


def test_new_limits_take_the_place_of_all_earlier_ones(served):
    served.limits.set_limits({"one": 1, "two": 2})
    assert list(served.limits) == ["one", "two"]
    served.limits.set_limits({"two": 3})
    assert list(served.limits) == ["two"]
    assert (served.limits.n_allowed("one"), served.limits.n_allowed("two")) == (None, 3)


def test_every_change_of_the_limits_moves_their_version_and_nothing_else_does(served):
    versions = [served.limits.version]
    for limits in ({"one": 1}, {"one": 2}, {}):
        served.limits.set_limits(limits)
        served.begin(1, 1)
        served.limits.n_allowed("one")
        served.board.answered(1)
        versions.append(served.limits.version)
    assert versions == sorted(set(versions))


def test_what_the_caller_does_with_its_limits_afterwards_changes_nothing(served):
    limits = {"one": 1}
    served.limits.set_limits(limits)
    limits["one"] = 2
    assert served.limits.n_allowed("one") == 1
