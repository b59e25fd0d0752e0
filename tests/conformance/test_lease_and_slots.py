"""The lease and the slots: one coordinator writes, and what it knows of slots is written where others see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easeml_db.coordinator.ports.messages import RunChanged, SlotReady, TenantsChanged, UnitRecorded

if TYPE_CHECKING:
    from tests.conformance.worlds.world import World


@pytest.mark.covers("LeaseStore.acquire", "LeaseStore.is_held")
async def test_the_lease_is_held_until_another_coordinator_draws_a_larger_number(world: World) -> None:
    number = await world.ports.lease.acquire()
    assert number == world.lease_number
    assert await world.ports.lease.is_held()
    world.take_over()
    assert not await world.ports.lease.is_held()


@pytest.mark.covers("LeaseStore.heartbeat", "LeaseStore.release", stale="LeaseStore.heartbeat")
async def test_a_stale_coordinator_may_still_give_signs_of_life_and_sign_off(world: World) -> None:
    await world.ports.lease.acquire()
    await world.ports.lease.heartbeat()
    world.take_over()
    await world.ports.lease.heartbeat()
    await world.ports.lease.release()
    assert not await world.ports.lease.is_held()


@pytest.mark.covers("SlotStore.all_slots", "SlotStore.lose", "SlotStore.recover")
async def test_a_lost_slot_is_active_again_once_nothing_is_stuck_there(world: World) -> None:
    await world.ports.lease.acquire()
    assert [slot.status for slot in await world.ports.slots.all_slots()] == ["active", "active"]
    await world.ports.slots.lose(2, "stuck")
    assert [slot.status for slot in await world.ports.slots.all_slots()] == ["active", "lost"]
    assert await world.ports.slots.recover() == [2]
    assert [slot.status for slot in await world.ports.slots.all_slots()] == ["active", "active"]
    assert await world.ports.slots.recover() == []


@pytest.mark.covers("SlotStore.lose", stale="SlotStore.lose")
async def test_a_stale_coordinator_loses_no_slot(world: World) -> None:
    await world.ports.lease.acquire()
    world.take_over()
    await world.ports.slots.lose(2, "stuck")
    assert [slot.status for slot in await world.ports.slots.all_slots()] == ["active", "active"]


@pytest.mark.covers("SlotStore.explain")
async def test_why_a_slot_does_not_work_changes_nothing_about_the_slot(world: World) -> None:
    await world.ports.lease.acquire()
    before = await world.ports.slots.all_slots()
    await world.ports.slots.explain(1, "no session")
    await world.ports.slots.explain(1, None)
    assert await world.ports.slots.all_slots() == before


@pytest.mark.covers("StateSpace.reclaim")
async def test_space_is_reclaimed_and_what_is_kept_is_counted(world: World) -> None:
    await world.ports.lease.acquire()
    assert await world.ports.space.reclaim() == 0


@pytest.mark.covers("TaskStore.advance")
async def test_tasks_are_looked_at_in_the_background(world: World) -> None:
    await world.ports.lease.acquire()
    await world.ports.tasks.advance()
    await world.ports.tasks.advance()


@pytest.mark.covers("Inbox.next", "Clock.now_seconds")
async def test_an_empty_inbox_answers_after_the_timeout_and_time_goes_on(world: World) -> None:
    before = world.ports.clock.now_seconds()
    assert await world.ports.inbox.next(0.05) is None
    assert world.ports.clock.now_seconds() >= before + 0.05


@pytest.mark.covers("Inbox.next", "LeaseStore.acquire")
async def test_the_coordinator_hears_of_what_users_change_once_it_has_the_lease(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run()
    assert await world.ports.inbox.next(60.0) == RunChanged(run_id)
    world.set_policy("greedy")
    assert await world.ports.inbox.next(60.0) == TenantsChanged()


@pytest.mark.covers("Executor.open", "Executor.close")
async def test_slots_that_are_taken_away_get_no_session_and_nothing_is_said_after_the_end(world: World) -> None:
    run_id = await world.ready(2)
    slots = await world.ports.slots.all_slots()
    await world.ports.executor.open(slots[:1])
    assert isinstance(await world.answer(await world.order(run_id, 1)), UnitRecorded)
    await world.ports.executor.open(slots)
    assert await world.message() == SlotReady(2)
    await world.ports.executor.close()
    await world.silence()
