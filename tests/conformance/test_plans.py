"""Plans and instances: what is recorded before anything starts, what a stale lease may not, and what is found again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easeml_db.coordinator.ports.messages import InstanceBilled, InstanceDown, InstanceUp
from easeml_db.decisions.planner.job import StageKey
from easeml_db.decisions.planner.run_plan import StageRecord
from easeml_db.errors import StaleLease

if TYPE_CHECKING:
    from tests.conformance.worlds.world import World

STAGE = StageRecord(1, 1, StageKey(), "all", 1000.0, 2, 2, 0.0)


def revision(number: int, n_slots: int) -> dict[str, Any]:
    """A further plan as the coordinator makes it."""
    stage = {
        "stage": 0, "label": "all", "arm": "", "bracket": 0, "target_epochs": 0, "n_trials": 2, "n_epochs": 1.0,
        "instance_type": "cpu slot", "n_slots": n_slots, "n_instances": n_slots, "width": 1, "start_seconds": 0.0,
        "seconds_mean": 5.0, "seconds_p50": 5.0, "seconds_p95": 6.0, "cost_mean": 0.0, "cost_p95": 0.0,
    }  # fmt: skip
    return {
        "revision": number, "reason": "behind", "is_within_limits": True, "cost_before": 0.5, "seconds_mean": 5.0,
        "seconds_p95": 6.0, "cost_mean": 0.0, "cost_p95": 0.0, "note": None, "stages": [stage],
    }  # fmt: skip


@pytest.mark.covers("PlanStore.read", "PlanStore.keep", stale="PlanStore.keep")
async def test_the_newest_plan_holds_and_a_stale_lease_makes_none(world: World) -> None:
    await world.ports.lease.acquire()
    run_id, other = world.ask_for_plan(), world.ask_for_run()
    assert await world.ports.plans.read(other) is None
    plan = await world.ports.plans.read(run_id)
    assert plan is not None
    assert (plan.revision, plan.provisioner, plan.is_local, plan.stages[0].n_slots) == (1, "local", True, 2)
    await world.ports.plans.keep(run_id, revision(2, 1))
    renewed = await world.ports.plans.read(run_id)
    assert renewed is not None
    assert (renewed.revision, renewed.stages[0].n_slots, renewed.seconds_p95) == (2, 1, 6.0)
    with world.held(run_id):
        await world.ports.plans.keep(run_id, revision(3, 2))
    world.take_over()
    with pytest.raises(StaleLease):
        await world.ports.plans.keep(run_id, revision(4, 2))
    renewed = await world.ports.plans.read(run_id)
    assert renewed is not None
    assert renewed.revision in (2, 3)  # a key that nobody changes may be written though the row is held


@pytest.mark.covers("PlanStore.keep_stage", stale="PlanStore.keep_stage")
async def test_a_stage_that_was_left_open_is_found_again(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_plan()
    await world.ports.plans.keep_stage(run_id, STAGE)
    plan = await world.ports.plans.read(run_id)
    assert plan is not None
    assert (plan.n_stages_done, plan.open_stage) == (1, STAGE)
    await world.ports.plans.keep_stage(run_id, replace(STAGE, ended_seconds=1010.0, cost=0.25, n_slots=3))
    plan = await world.ports.plans.read(run_id)
    assert plan is not None
    assert (plan.n_stages_done, plan.open_stage) == (1, None)
    world.take_over()
    with pytest.raises(StaleLease):
        await world.ports.plans.keep_stage(run_id, replace(STAGE, place=2))


@pytest.mark.covers("PlanStore.standing", "PlanStore.slot_seconds")
async def test_a_run_says_how_it_stands_until_it_is_over(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_plan()
    standing = await world.ports.plans.standing(run_id)
    assert standing is not None
    assert {trial["target_epochs"] for arm in standing["arms"] for trial in arm["trials"]} == {2}
    assert sorted(arm["name"] for arm in standing["arms"]) == ["linear", "mlp"]
    assert standing["knowledge"]["n_partitions"] == 2
    assert await world.ports.plans.slot_seconds(run_id) == 0
    world.cancel_run(run_id)
    assert await world.ports.plans.standing(run_id) is None


@pytest.mark.covers(
    "InstanceStore.request", "InstanceStore.alive", "InstanceStore.billed", "InstanceStore.attach",
    "InstanceStore.release", "InstanceStore.end", "InstanceStore.local_slots", "InstanceStore.keep_call",
)  # fmt: skip
async def test_slots_are_taken_for_an_instance_held_for_its_run_and_given_back(world: World) -> None:
    await world.ports.lease.acquire()
    run_id, instances = world.ask_for_plan(), world.ports.instances
    n = await instances.local_slots()
    slots = await world.ports.slots.all_slots()
    assert n == len(slots)
    first, *others = await instances.request(run_id, "local", "cpu slot", n + 1)
    assert [each.status for each in await instances.alive()] == ["requested"] * (n + 1)
    await instances.billed(first)
    assert [await instances.attach(each, None) for each in (first, *others)] == [True] * n + [False]
    assert not await instances.attach(first, None)
    assert {slot.run_id for slot in await world.ports.slots.all_slots()} == {run_id}
    alive = {each.instance_id: each for each in await instances.alive()}
    assert alive[first].status == "ready"
    assert len(alive[first].slot_ids) == 1
    assert alive[first].billed_seconds is not None
    await instances.keep_call(first, "start", "ready", "it is there")
    for each in (first, *others):
        await instances.release(each)
        await instances.end(each, "released", 0.5)
    assert await instances.alive() == []
    assert {(slot.run_id, slot.status) for slot in await world.ports.slots.all_slots()} == {(None, "active")}
    world.cancel_run(run_id)
    assert list(await instances.request(run_id, "local", "cpu slot", 1)) == []


@pytest.mark.covers(
    stale=("InstanceStore.request", "InstanceStore.billed", "InstanceStore.attach", "InstanceStore.release",
           "InstanceStore.end")
)  # fmt: skip
async def test_a_stale_lease_changes_no_instance(world: World) -> None:
    await world.ports.lease.acquire()
    run_id, instances = world.ask_for_plan(), world.ports.instances
    (number,) = await instances.request(run_id, "local", "cpu slot", 1)
    before = await instances.alive()
    world.take_over()
    for change in (
        instances.request(run_id, "local", "cpu slot", 1),
        instances.attach(number, None),
        instances.release(number),
        instances.end(number, "released", 0.0),
    ):
        with pytest.raises(StaleLease):
            await change
    await instances.billed(number)
    assert await instances.alive() == before


@pytest.mark.covers("Provisioner.start", "Provisioner.stop", "Provisioner.close")
async def test_slots_of_this_server_are_there_at_once_and_may_be_asked_for_twice(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_plan()
    (number,) = await world.ports.instances.request(run_id, "local", "cpu slot", 1)
    (instance,) = await world.ports.instances.alive()
    for _ in range(2):
        await world.ports.provisioner.start(instance)
        assert [await world.message(), await world.message()] == [InstanceBilled(number), InstanceUp(number)]
    for _ in range(2):
        await world.ports.provisioner.stop(instance)
        assert await world.message() == InstanceDown(number)
    await world.ports.provisioner.close()
