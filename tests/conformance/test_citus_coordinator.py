"""What the executor promises where only the coordinator of a Citus cluster is reached, and units are delegated calls.

All that nodes promise holds besides (test_executor.py, test_nodes.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easeml_db.coordinator.ports.messages import SlotReady, UnitFailed, UnitRecorded
from easeml_db.errors import SlotLost
from tests.conformance.worlds.world import N_PARTITIONS

if TYPE_CHECKING:
    from easeml_db.postgres.nodes.citus.coordinator.session import CoordinatorUnitSession
    from tests.conformance.worlds.on_nodes import WarmOnCitusCoordinator

pytestmark = [pytest.mark.warm, pytest.mark.worlds("citus_coordinator")]
MOVE = """
SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('easeml_worker.keys', %(key)s), f.nodename,
    f.nodeport, t.nodename, t.nodeport, 'block_writes')
FROM pg_dist_node f, pg_dist_node t WHERE f.groupid = %(group)s AND t.groupid = %(other)s
"""


def session_of(world: WarmOnCitusCoordinator, slot_id: int) -> CoordinatorUnitSession:
    """The session of a slot."""
    return world.ports.executor._sessions[slot_id]  # type: ignore[attr-defined, no-any-return]


async def refused(world: WarmOnCitusCoordinator, run_id: int, words: str) -> None:
    """Have the first slot's first unit refused in these words: nothing is recorded or stored, and then it works."""
    order = await world.order(run_id, 1)
    message = await world.answer(order)
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, SlotLost), message.error
    assert words in str(message.error)
    assert world.units(run_id) == []
    for node in world.nodes.values():
        stored = "SELECT count(*) FROM easeml_segment.checkpoints WHERE trial_id = %s"
        assert node.value(stored, order.unit.trial_id) == 0
    assert await world.message() == SlotReady(1)
    message = await world.answer(order)
    assert isinstance(message, UnitRecorded), message


async def test_trials_that_hop_between_workers_have_the_states_of_one_server(world: WarmOnCitusCoordinator) -> None:
    run_id = await world.ready(2)
    for trial in (0, 1):
        for step in range(2 * N_PARTITIONS + 1):  # an epoch with its validation, and a unit of the next
            order = await world.order(run_id, 1 + step % 2, step=step, trial=trial)
            message = await world.answer(order)
            assert isinstance(message, UnitRecorded), message
        replayed = world.control.value("CALL easeml.replay(%s)", order.unit.trial_id)  # on the control server
        assert replayed["is_identical"], replayed
    hops = world.control.rows("SELECT n_node_hops > 0 AS any FROM easeml.run_traffic WHERE run_id = %s", run_id)
    assert hops == [{"any": True}]


async def test_trees_take_all_partitions_on_a_worker(world: WarmOnCitusCoordinator) -> None:
    run_id = await world.opened_run(world.ask_for_trees())
    for slot_id, step in ((2, 0), (1, N_PARTITIONS)):
        order = await world.whole_round(run_id, slot_id, step=step)
        assert isinstance(message := await world.answer(order), UnitRecorded), message
    assert world.control.value("CALL easeml.replay(%s)", order.unit.trial_id)["is_identical"]


async def test_a_unit_that_finds_itself_on_another_worker_is_refused(world: WarmOnCitusCoordinator) -> None:
    """On a real cluster the shard that leads there moves; what opens the session again takes another one."""
    run_id = await world.ready(2)
    store, (east, west) = session_of(world, 1)._store, world.cluster.workers
    if world.cluster.is_real:
        found, wanted, key = west, east, store.worker.key
        world.cluster.entrances[0].execute(MOVE, {"key": key, "group": east, "other": west})
    else:
        found, wanted, key = east, west, None
        store.worker = replace(store.worker, group=west)
    await refused(world, run_id, f"Citus ran this on worker {found}, and it is for worker {wanted}")
    assert session_of(world, 1)._store.worker.group == east
    assert session_of(world, 1)._store.worker.key != key


async def test_a_unit_that_is_not_delegated_is_refused_on_the_coordinator(world: WarmOnCitusCoordinator) -> None:
    """Citus delegates no call in a transaction, and says nothing."""
    run_id = await world.ready(2)
    session, (east, _) = session_of(world, 1), world.cluster.workers
    called = session._called

    async def undelegated(*values: Any) -> dict[str, Any]:
        if world.cluster.is_real:
            await session._remote.execute("BEGIN")
            return await called(*values)
        with world.cluster.undelegated(east):
            return await called(*values)

    session._called = undelegated  # type: ignore[method-assign]
    await refused(world, run_id, f"Citus ran this on its coordinator, and it is for worker {east}")
