"""What the executor promises besides where slots are on other servers: states that hop, that are lost, and garbage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from easeml_db.coordinator.ports.messages import SlotReady, UnitFailed, UnitRecorded
from easeml_db.errors import RowsHeld, SlotLost, StaleLease
from easeml_db.postgres.nodes.node_store import KnownState
from easeml_db.postgres.nodes.nodes import unreachable
from tests.conformance.worlds.on_nodes import ON_NODES
from tests.conformance.worlds.world import N_PARTITIONS

if TYPE_CHECKING:
    from easeml_db.postgres.nodes.node_cache import NodeCache
    from easeml_db.postgres.nodes.node_store import NodeStore
    from tests.conformance.worlds.on_nodes import WarmOnNodes

pytestmark = [pytest.mark.warm, pytest.mark.worlds(*ON_NODES)]
STATES = "SELECT epoch, position, state_sha256 FROM easeml.training_units WHERE trial_id = %s ORDER BY 1, 2"
COPIES = """
SELECT g.segment_name, c.is_elsewhere, EXISTS (SELECT FROM easeml.checkpoint_chunks h WHERE h.checkpoint_id =
    c.checkpoint_id) AS is_here FROM easeml.checkpoints c JOIN easeml.checkpoint_copies k USING (checkpoint_id)
JOIN easeml.segments g USING (segment_id) WHERE c.trial_id = %s
"""


async def recorded(world: WarmOnNodes, run_id: int, slot_id: int, step: int) -> int:
    """Do a step of the first trial, which must be recorded; return the trial."""
    order = await world.order(run_id, slot_id, step=step)
    message = await world.answer(order)
    assert isinstance(message, UnitRecorded), message
    return order.unit.trial_id


def cache_of(world: WarmOnNodes, segment: str) -> NodeCache:
    """What the executor keeps of a node."""
    return next(cache for cache in world.caches.values() if cache.node.segment_name == segment)


def known(world: WarmOnNodes, checkpoint_id: int) -> KnownState:
    """A state as the control server knows it."""
    columns = "checkpoint_id, trial_id, n_bytes, sha256"
    (row,) = world.control.rows(f"SELECT {columns} FROM easeml.checkpoints WHERE checkpoint_id = %s", checkpoint_id)
    return KnownState(**row)


async def test_a_state_within_an_epoch_is_elsewhere_and_at_its_end_here_too(world: WarmOnNodes) -> None:
    run_id = await world.ready(2)
    trial_id = await recorded(world, run_id, 1, 0)
    assert world.control.rows(COPIES, trial_id) == [{"segment_name": "east", "is_elsewhere": True, "is_here": False}]
    await recorded(world, run_id, 2, 1)  # it hops
    hops = world.control.rows(
        "SELECT n_node_hops, node_bytes > 0 AS has_bytes FROM easeml.run_traffic WHERE run_id = %s", run_id
    )
    assert hops == [{"n_node_hops": 1, "has_bytes": True}]
    assert world.control.rows(COPIES, trial_id) == [{"segment_name": "west", "is_elsewhere": False, "is_here": True}]
    assert world.control.value("SELECT count(*) FROM easeml.checkpoints WHERE trial_id = %s", trial_id) == 1
    read = world.control.values(
        "SELECT read_bytes > 0 FROM easeml.training_units WHERE trial_id = %s ORDER BY started_at", trial_id
    )
    assert read == [False, True]


async def test_a_state_that_is_lost_takes_its_trial_back_and_is_made_again(world: WarmOnNodes) -> None:
    run_id = await world.ready(2)
    for step in range(2 * N_PARTITIONS + 1):  # a whole epoch, and a unit of the next
        trial_id = await recorded(world, run_id, 1, step)
    before = world.control.rows(STATES, trial_id)
    for node in world.nodes.values():
        node.execute("DELETE FROM easeml_segment.checkpoints")
    message = await world.answer(await world.order(run_id, 2, step=2 * N_PARTITIONS + 1))
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, StaleLease)
    assert world.trials(run_id)[0] == ("running", 2 * N_PARTITIONS)
    assert "state lost" in world.events(run_id)
    await recorded(world, run_id, 2, 2 * N_PARTITIONS)
    assert world.control.rows(STATES, trial_id) == before
    await recorded(world, run_id, 1, 2 * N_PARTITIONS + 1)


async def test_a_state_of_which_there_are_two_copies_outlives_the_node_that_made_it(world: WarmOnNodes) -> None:
    east, west = world.nodes["east"], world.nodes["west"]
    world.control.execute("SELECT easeml.set_state_copies(2)")
    try:
        run_id = await world.ready(2)
        trial_id = await recorded(world, run_id, 1, 0)
        kept = (
            "SELECT count(*) FROM easeml_segment.checkpoint_chunks JOIN easeml_segment.checkpoints USING"
            " (checkpoint_id) WHERE trial_id = %s"
        )
        async with asyncio.timeout(60):
            while not west.value(kept, trial_id):
                await asyncio.sleep(0.01)
    finally:
        world.control.execute("SELECT easeml.set_state_copies(1)")
    east.execute("DELETE FROM easeml_segment.checkpoints")
    await recorded(world, run_id, 2, 1)
    assert "state lost" not in world.events(run_id)
    hops = world.control.rows("SELECT n_node_hops, n_node_hops_ahead FROM easeml.run_traffic WHERE run_id = %s", run_id)
    assert hops == [{"n_node_hops": 1, "n_node_hops_ahead": 1}]


async def test_a_stale_coordinator_takes_no_trial_back(world: WarmOnNodes) -> None:
    run_id = await world.ready(2)
    await recorded(world, run_id, 1, 0)
    for node in world.nodes.values():
        node.execute("DELETE FROM easeml_segment.checkpoints")
    order = await world.order(run_id, 2, step=1)
    world.take_over()
    message = await world.answer(order)
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, StaleLease)
    assert world.trials(run_id)[0] == ("running", 1)
    assert "state lost" not in world.events(run_id)


async def test_only_what_nothing_points_to_is_removed_and_nothing_of_a_later_lease(world: WarmOnNodes) -> None:
    run_id = await world.ready(2)
    trial_id = await recorded(world, run_id, 1, 0)
    east = world.nodes["east"]
    insert = "INSERT INTO easeml_segment.checkpoints SELECT %s, 1, %s, 1, repeat('0', 64)"
    for number, lease in ((1_000_001, world.lease_number), (1_000_002, world.lease_number + 1)):
        east.execute(insert, [number, lease])
    cache = cache_of(world, "east")
    on_east = "SELECT checkpoint_id FROM easeml_segment.checkpoints"
    # Trials of other tests may have states here, too.
    needed = {*east.values(on_east)} & {*world.control.values("SELECT checkpoint_id FROM easeml.checkpoints")}
    assert world.control.value("SELECT checkpoint_id FROM easeml.trials WHERE trial_id = %s", trial_id) in needed
    with cache.in_use.using(1_000_001):
        await cache.sweep(world.lease_number)
    assert {*east.values(on_east)} == needed | {1_000_001, 1_000_002}
    assert await cache.sweep(world.lease_number) == 1
    assert {*east.values(on_east)} == needed | {1_000_002}
    east.execute("DELETE FROM easeml_segment.checkpoints WHERE checkpoint_id = 1000002")


async def test_a_slot_of_the_control_server_takes_over_a_state_from_a_node(world: WarmOnNodes) -> None:
    world.control.execute("SELECT easeml.add_slots(1)")
    world.control.execute("SELECT easeml.replicate_dataset('points', 3)")
    (here,) = world.control.values("SELECT max(slot_id) FROM easeml.slots")
    run_id = await world.ready(2)
    await world.ports.executor.open(await world.ports.slots.all_slots())
    assert await world.message() == SlotReady(here)
    trial_id = await recorded(world, run_id, 1, 0)
    await recorded(world, run_id, here, 1)
    assert world.control.values(STATES, trial_id) != []
    assert world.control.rows(COPIES, trial_id) == []  # the new state was made here
    assert world.control.value("SELECT count(*) FROM easeml.checkpoints WHERE trial_id = %s", trial_id) == 1
    replayed = world.control.value("CALL easeml.replay(%s)", trial_id)
    assert replayed["is_identical"], replayed
    await world.ports.executor.open((await world.ports.slots.all_slots())[:2])
    world.control.execute("SELECT easeml.remove_slot(%s)", [here])
    world.control.execute("SELECT easeml.replicate_dataset('points', 2)")


async def test_a_node_that_does_not_answer_is_waited_for_and_then_given_up(
    world: WarmOnNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await world.ready(2)
    await recorded(world, run_id, 1, 0)
    cache = cache_of(world, "east")

    async def away() -> NodeStore:
        raise unreachable("pg_east")

    await cache._sending.close()
    monkeypatch.setattr(cache._sending, "_connected", away)
    order = await world.order(run_id, 2, step=1)
    message = await world.answer(order)
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, RowsHeld)
    assert "segment east" in str(message.error)
    assert world.trials(run_id)[0] == ("running", 1)
    monkeypatch.setattr(cache, "silent_seconds", lambda: 1e6)
    message = await world.answer(order)
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, StaleLease)
    assert world.trials(run_id)[0] == ("running", 0)
    await recorded(world, run_id, 2, 0)


async def test_another_state_under_the_right_number_is_replaced(
    world: WarmOnNodes,
) -> None:
    run_id = await world.ready(2)
    trial_id = await recorded(world, run_id, 1, 0)
    newest = world.control.value("SELECT checkpoint_id FROM easeml.trials WHERE trial_id = %s", trial_id)
    cache_of(world, "east").push(cache_of(world, "west"), known(world, newest), world.lease_number)
    assert await cache_of(world, "west").arrived(newest) is not None
    for node in world.nodes.values():  # what a node says of a state is not what its receiver goes by
        node.execute("UPDATE easeml_segment.checkpoints SET sha256 = repeat('0', 64)")
    await recorded(world, run_id, 2, 1)
    hops = "SELECT n_bytes > 0 FROM easeml.node_hops WHERE trial_id = %s AND NOT is_ahead"
    assert world.control.values(hops, trial_id) == [True]


async def test_bytes_that_are_not_the_state_are_dropped_where_they_are(world: WarmOnNodes) -> None:
    run_id = await world.ready(2)
    trial_id = await recorded(world, run_id, 1, 0)
    newest = world.control.value("SELECT checkpoint_id FROM easeml.trials WHERE trial_id = %s", trial_id)
    cache_of(world, "east").push(cache_of(world, "west"), known(world, newest), world.lease_number)
    assert await cache_of(world, "west").arrived(newest) is not None
    world.nodes["west"].execute(
        "UPDATE easeml_segment.checkpoint_chunks SET bytes = set_byte(bytes, 9, 255 - get_byte(bytes, 9))"
    )
    message = await world.answer(await world.order(run_id, 2, step=1))
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, SlotLost), message.error
    assert await world.message() == SlotReady(2)
    await recorded(world, run_id, 2, 1)


LIES = """
CREATE FUNCTION public.lie() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN NEW.bytes := set_byte(NEW.bytes, 9, 255 - get_byte(NEW.bytes, 9)); RETURN NEW; END$$;
CREATE TRIGGER lie BEFORE INSERT ON easeml_segment.checkpoint_chunks FOR EACH ROW EXECUTE FUNCTION public.lie()
"""


async def test_no_state_comes_to_the_control_server_that_has_another_hash(world: WarmOnNodes) -> None:
    run_id = await world.ready(2)
    trial_id = await recorded(world, run_id, 1, 0)
    world.nodes["east"].execute(LIES)
    try:
        message = await world.answer(await world.order(run_id, 1, step=1))
    finally:
        world.nodes["east"].execute("DROP FUNCTION public.lie() CASCADE")
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, SlotLost)
    assert "is not what its node said of it" in str(message.error)
    assert world.control.value("SELECT n_steps_done FROM easeml.trials WHERE trial_id = %s", trial_id) == 1
    assert await world.message() == SlotReady(1)
    await recorded(world, run_id, 1, 1)


async def test_a_state_that_was_there_already_is_no_hop(world: WarmOnNodes) -> None:
    run_id = await world.ready(2)
    trial_id = await recorded(world, run_id, 1, 0)
    newest = world.control.value("SELECT checkpoint_id FROM easeml.trials WHERE trial_id = %s", trial_id)
    east, west = (cache_of(world, name) for name in world.nodes)
    east.push(west, known(world, newest), world.lease_number)
    assert await west.arrived(newest) is not None
    east.push(west, known(world, newest), world.lease_number)
    assert await west.arrived(newest) is None


async def test_no_copy_is_sent_to_a_node_that_is_refused(world: WarmOnNodes) -> None:
    run_id = await world.ready(2)
    order = await world.order(run_id, 1, step=0)
    wanted = "SELECT easeml.next_segments(%s::jsonb)"
    unit = f'{{"slot_id": 1, "position": 0, "trial_id": {order.unit.trial_id}}}'
    with world.control.transaction(force_rollback=True):
        world.control.execute("SELECT easeml.set_state_copies(2)")
        (west,) = world.control.value(wanted, unit)
        world.control.execute("UPDATE easeml.segments SET refusal = 'of another version' WHERE segment_id = %s", [west])
        assert world.control.value(wanted, unit) == []
