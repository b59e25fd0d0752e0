"""Units on slots: every order is answered once, and what is recorded is recorded once, all of a gang or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easeml_db.coordinator.ports.messages import Member, Piloted, SlotReady, UnitFailed, UnitRecorded
from easeml_db.errors import NotFound, RowsHeld, SlotLost, StaleLease
from tests.conformance.worlds.on_nodes import ON_NODES
from tests.conformance.worlds.world import N_PARTITIONS

if TYPE_CHECKING:
    from easeml_db.coordinator.ports.messages import Order
    from easeml_db.errors import EasemlError
    from tests.conformance.worlds.world import World


pytestmark = pytest.mark.warm
# Slots on other servers form no gangs and do no whole rounds.
EVERYWHERE = ("simulated", "postgres", *ON_NODES, "greenplum")


async def failure(world: World, order: Order) -> EasemlError:
    message = await world.answer(order)
    assert isinstance(message, UnitFailed)
    return message.error


@pytest.mark.covers("Executor.open", "Executor.start")
@pytest.mark.worlds(*EVERYWHERE)
async def test_a_unit_is_recorded_once_and_answered_once(world: World) -> None:
    run_id = await world.ready()
    order = await world.order(run_id, 1)
    assert isinstance(await world.answer(order), UnitRecorded)
    assert isinstance(await failure(world, order), StaleLease)  # its step is done
    await world.silence()
    unit = order.unit
    assert world.units(run_id) == [(unit.trial_id, "train", 1, unit.partition_number)]
    assert world.trials(run_id)[0] == ("running", 1)
    following = await world.order(run_id, 1, step=1)  # a refused order leaves no trace on its slot or its trial
    assert isinstance(await world.answer(following), UnitRecorded)
    assert world.trials(run_id)[0] == ("running", 2)


@pytest.mark.covers("Executor.start", stale="Executor.start")
@pytest.mark.worlds(*EVERYWHERE)
async def test_a_unit_under_a_stale_lease_is_not_recorded(world: World) -> None:
    run_id = await world.ready()
    order = await world.order(run_id, 1)
    world.take_over()
    assert isinstance(await failure(world, order), StaleLease)
    assert world.units(run_id) == []
    assert world.trials(run_id)[0][1] == 0


@pytest.mark.covers("Executor.start")
@pytest.mark.worlds(*EVERYWHERE)
async def test_units_of_runs_that_are_cancelled_or_gone_are_refused(world: World) -> None:
    run_id = await world.ready()
    gone = await world.opened_run()
    orders = [await world.order(run_id, 1), await world.order(gone, 1)]
    world.cancel_run(run_id)
    world.drop_run(gone)
    errors = [await failure(world, order) for order in orders]
    assert [type(error) for error in errors] == [StaleLease, NotFound]
    assert world.units(run_id) == []


@pytest.mark.covers("Executor.start")
async def test_a_unit_whose_rows_a_user_holds_is_refused_at_once_and_runs_later(world: World) -> None:
    run_id = await world.ready(2)
    order, gang = await world.order(run_id, 1), await world.gang(run_id)
    pilot = replace(order, unit=replace(order.unit, kind="pilot"))
    with world.held(run_id):
        errors = [await failure(world, each) for each in (order, pilot, gang)]
    assert [type(error) for error in errors] == [RowsHeld] * 3
    assert world.units(run_id) == []
    assert isinstance(await world.answer(order), UnitRecorded)


@pytest.mark.covers("Executor.start", "SlotStore.lose")
@pytest.mark.worlds(*EVERYWHERE)
async def test_what_a_slot_does_after_it_was_given_up_is_not_recorded(world: World) -> None:
    run_id = await world.ready(2)
    order = await world.order(run_id, 2)
    await world.ports.slots.lose(2, "stuck")
    assert isinstance(await failure(world, order), StaleLease)
    assert world.units(run_id) == []
    assert isinstance(await world.answer(replace(order, slot_id=1)), UnitRecorded)


@pytest.mark.covers("Executor.start", "Executor.open")
@pytest.mark.worlds(*EVERYWHERE)
async def test_a_unit_whose_session_broke_is_lost_and_its_slot_says_when_it_is_ready_again(world: World) -> None:
    run_id = await world.ready()
    world.break_session(1)
    order = await world.order(run_id, 1)
    assert isinstance(await failure(world, order), SlotLost)
    assert await world.message() == SlotReady(1)
    assert isinstance(await world.answer(order), UnitRecorded)
    await world.silence()


@pytest.mark.covers("Executor.cancel", "Executor.start")
@pytest.mark.worlds(*EVERYWHERE)
async def test_a_cancelled_unit_is_answered_once_and_its_slot_works_again(world: World) -> None:
    run_id = await world.ready()
    order = await world.order(run_id, 1)
    await world.ports.executor.start(order)
    await world.ports.executor.cancel(1)
    message = await world.message()
    if isinstance(message, UnitFailed):
        assert isinstance(message.error, SlotLost)
        assert await world.message() == SlotReady(1)
        message = await world.answer(order)
    # At once where it was faster than the cancel; no more where the cancel met it after its commit.
    is_known = isinstance(message, UnitFailed) and isinstance(message.error, StaleLease)
    assert isinstance(message, UnitRecorded) or is_known, message
    assert len(world.units(run_id)) == 1
    await world.ports.executor.cancel(1)  # an idle slot has nothing to cancel
    await world.silence()


@pytest.mark.covers("Executor.start")
async def test_a_gang_records_all_its_units_or_none(world: World) -> None:
    run_id = await world.ready(2)
    gang = await world.gang(run_id)
    world.break_session(2)
    assert isinstance(await failure(world, gang), SlotLost)
    assert world.units(run_id) == []
    assert {await world.message(), await world.message()} == {SlotReady(1), SlotReady(2)}
    assert isinstance(await world.answer(gang), UnitRecorded)
    trial_id = gang.unit.trial_id
    partitions = {unit.partition_number for unit in (gang.unit, gang.members[0].unit)}
    assert set(world.units(run_id)) == {(trial_id, "train", 1, partition) for partition in partitions}
    assert ("running", 2) in world.trials(run_id)
    await world.silence()


@pytest.mark.covers("Executor.start", stale="Executor.start")
async def test_a_gang_under_a_stale_lease_records_nothing(world: World) -> None:
    run_id = await world.ready(2)
    gang = await world.gang(run_id)
    world.take_over()
    assert isinstance(await failure(world, gang), StaleLease)
    assert world.units(run_id) == []


@pytest.mark.covers("Executor.start", "RunStore.read", stale="Executor.start")
async def test_a_whole_round_is_one_order_on_one_slot_recorded_all_at_once_or_not_at_all(world: World) -> None:
    await world.begin()
    run_id = await world.opened_run(world.ask_for_trees())
    run = await world.run(run_id)
    trial_id = run.trials[0].trial_id
    assert run.architectures[trial_id] in run.whole_architectures
    order = await world.whole_round(run_id, 1)
    world.break_session(1)
    assert isinstance(await failure(world, order), SlotLost)
    assert world.units(run_id) == []
    assert await world.message() == SlotReady(1)
    pilot = replace(order, unit=replace(order.unit, kind="pilot"), members=())
    assert isinstance(await world.answer(pilot), Piloted)
    assert isinstance(await world.answer(order), UnitRecorded)
    partitions = [unit.partition_number for unit in (order.unit, order.members[0].unit)]
    assert world.units(run_id) == [(trial_id, "train", 1, partition) for partition in partitions]
    assert isinstance(await failure(world, order), StaleLease)  # its steps are done
    following = await world.whole_round(run_id, 1, step=N_PARTITIONS)
    assert isinstance(await world.answer(following), UnitRecorded)
    assert world.trials(run_id) == [("running", 2 * N_PARTITIONS)]
    last = await world.whole_round(run_id, 1, step=2 * N_PARTITIONS)
    world.take_over()
    assert isinstance(await failure(world, last), StaleLease)
    assert len(world.units(run_id)) == 2 * N_PARTITIONS


@pytest.mark.covers("Executor.start", "RunStore.read", stale="Executor.start")
@pytest.mark.worlds(*EVERYWHERE)
async def test_a_batch_is_answered_once_and_each_member_is_recorded_or_fails_by_itself(world: World) -> None:
    await world.begin()
    run_id = await world.opened_run(world.ask_for_alike())
    run = await world.run(run_id)
    assert set(run.batch_keys) == {trial.trial_id for trial in run.trials}
    assert len(set(run.batch_keys.values())) == 1
    first, second, third = (trial.trial_id for trial in run.trials)
    batch = await world.batch(run_id, 1)
    world.break_session(1)
    assert isinstance(await failure(world, batch), SlotLost)
    assert world.units(run_id) == []
    assert await world.message() == SlotReady(1)
    ahead = await world.order(run_id, 1, step=1, trial=1)
    mixed = replace(batch, members=(Member(ahead.unit, 8, 1), batch.members[1]))
    message = await world.answer(mixed)
    assert isinstance(message, UnitRecorded)
    assert {trial: type(error) for trial, error in message.failures.items()} == {second: StaleLease}
    assert [unit[0] for unit in world.units(run_id)] == [first, third]
    assert world.trials(run_id) == [("running", 1), ("waiting", 0), ("running", 1)]
    with world.held(run_id):
        held = await world.answer(await world.batch(run_id, 1, step=1))
    assert isinstance(held, UnitRecorded)
    assert {type(error) for error in held.failures.values()} == {RowsHeld}
    last = await world.batch(run_id, 1, step=1)
    world.take_over()
    stale = await world.answer(last)
    assert isinstance(stale, UnitRecorded)
    assert {type(error) for error in stale.failures.values()} == {StaleLease}
    assert len(stale.failures) == 3
    assert len(world.units(run_id)) == 2
    await world.silence()


@pytest.mark.covers("Executor.start")
@pytest.mark.worlds(*EVERYWHERE)
async def test_batches_measure_what_they_have_trained(world: World) -> None:
    await world.begin()
    run_id = await world.opened_run(world.ask_for_alike())
    for step in range(2 * N_PARTITIONS):
        message = await world.answer(await world.batch(run_id, 1, step=step))
        assert isinstance(message, UnitRecorded)
        assert message.failures == {}
    assert world.trials(run_id) == [("running", 2 * N_PARTITIONS)] * 3
    kinds = sorted(kind for _, kind, _, _ in world.units(run_id))
    assert kinds == ["train"] * 3 * N_PARTITIONS + ["validate"] * 3 * N_PARTITIONS


@pytest.mark.covers("Executor.start")
@pytest.mark.worlds(*EVERYWHERE)
async def test_a_pilot_tells_what_units_take_and_counts_as_no_step(world: World) -> None:
    run_id = await world.ready()
    order = await world.order(run_id, 1)
    message = await world.answer(replace(order, unit=replace(order.unit, kind="pilot")))
    assert isinstance(message, Piloted)
    trial = (await world.run(run_id)).trials[0]
    assert (trial.pilot_train_seconds, trial.pilot_evaluate_seconds) == pytest.approx(
        (message.train_seconds, message.evaluate_seconds)
    )
    assert world.units(run_id) == []
    assert world.trials(run_id)[0][1] == 0
