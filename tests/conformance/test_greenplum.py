"""What the executor promises where slots are on segments of a Greenplum cluster: the bytes of one server, states that
hop and that are lost, and garbage."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import psycopg
import pytest

from easeml_db.coordinator.ports.messages import SlotReady, UnitFailed, UnitRecorded
from easeml_db.errors import SlotLost, StaleLease
from tests import greenplum
from tests.conformance.worlds.world import N_PARTITIONS
from tests.nodes import NODE_ROLE

if TYPE_CHECKING:
    from tests.conformance.worlds.on_nodes import WarmOnGreenplum

pytestmark = [pytest.mark.warm, pytest.mark.worlds("greenplum")]
STATES = "SELECT epoch, position, state_sha256 FROM easeml.training_units WHERE trial_id = %s ORDER BY 1, 2"
LOSE = "DELETE FROM easeml_segment.checkpoint_chunks"
INSERT = "INSERT INTO easeml_segment.checkpoint_chunks VALUES (%s, %s, 0, 1, %s, 1, repeat('0', 64), 'x')"
WAITING = """
SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database
    WHERE datname = current_database())
"""
ON_FIRST = """
SELECT DISTINCT checkpoint_id FROM easeml_segment.checkpoint_chunks WHERE gp_segment_id = 0
"""

HERE = """
CREATE TABLE spots AS SELECT {} FROM generate_series(1, 9000) i;
SELECT easeml.predict_table('points', source => 'spots', output => 'spotted', trial_id => {}, key => '{{id}}',
    probabilities => true)
"""
PREDICT = """
CALL easeml.predict_on_nodes('points', %s, 'public.spotted', trial_id => %s, key => %s, probabilities => true)
"""
PREDICTED = "SELECT id, predicted_label, probability, probabilities FROM public.spotted ORDER BY id"
PARTED = """
CREATE TABLE public.parted (id integer, x double precision) DISTRIBUTED BY (id)
    PARTITION BY RANGE (id) (START (1) END (9001) EVERY (3000));
INSERT INTO public.parted SELECT id, x FROM public.spots WHERE id > 0;
GRANT SELECT ON public.parted TO PUBLIC
"""
MOVED = "SELECT count(*) FROM spots s JOIN spotted p USING (id) WHERE s.gp_segment_id <> p.gp_segment_id"


async def recorded(world: WarmOnGreenplum, run_id: int, slot_id: int, step: int, *, trial: int = 0) -> int:
    """Do a step of a trial, which must be recorded; return the trial."""
    order = await world.order(run_id, slot_id, step=step, trial=trial)
    message = await world.answer(order)
    assert isinstance(message, UnitRecorded), message
    return order.unit.trial_id


async def test_a_trial_that_hops_between_segments_has_the_states_of_one_server(world: WarmOnGreenplum) -> None:
    run_id = await world.ready(2)
    for trial in (0, 1):
        for step in range(2 * N_PARTITIONS + 1):  # an epoch with its validation, and a unit of the next
            trial_id = await recorded(world, run_id, 1 + step % 2, step, trial=trial)
        assert len(world.control.values(STATES, trial_id)) == N_PARTITIONS + 1
        replayed = world.control.value("CALL easeml.replay(%s)", trial_id)
        assert replayed["is_identical"], replayed
    hops = world.control.rows("SELECT n_node_hops > 0 AS any FROM easeml.run_traffic WHERE run_id = %s", run_id)
    assert hops == [{"any": True}]


async def test_trees_take_all_partitions_on_a_segment(world: WarmOnGreenplum) -> None:
    run_id = await world.opened_run(world.ask_for_trees())
    order = await world.whole_round(run_id, 2)
    assert isinstance(message := await world.answer(order), UnitRecorded), message
    assert world.control.value("CALL easeml.replay(%s)", order.unit.trial_id)["is_identical"]
    order = await world.whole_round(run_id, 1, step=N_PARTITIONS)
    assert isinstance(message := await world.answer(order), UnitRecorded), message


async def test_a_state_that_is_lost_takes_its_trial_back_and_is_made_again(world: WarmOnGreenplum) -> None:
    run_id = await world.ready(2)
    for step in range(2 * N_PARTITIONS + 1):
        trial_id = await recorded(world, run_id, 1, step)
    before = world.control.rows(STATES, trial_id)
    world.cluster.execute(LOSE)
    message = await world.answer(await world.order(run_id, 2, step=2 * N_PARTITIONS + 1))
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, StaleLease)
    assert world.trials(run_id)[0] == ("running", 2 * N_PARTITIONS)
    await recorded(world, run_id, 2, 2 * N_PARTITIONS)
    assert world.control.rows(STATES, trial_id) == before


async def test_a_session_that_the_cluster_has_reset_is_opened_again_and_no_trial_is_to_blame(
    world: WarmOnGreenplum,
) -> None:
    """When a segment crashes, its sessions lose their temporary tables."""
    run_id = await world.ready(2)
    session = world.ports.executor._sessions[1]  # type: ignore[attr-defined]
    await session._remote.execute("DROP TABLE pg_temp.easeml_new_state")
    message = await world.answer(await world.order(run_id, 1))
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, SlotLost), message.error
    assert await world.message() == SlotReady(1)
    await recorded(world, run_id, 1, 0)


async def test_a_session_is_not_used_again_after_a_cancel(world: WarmOnGreenplum) -> None:
    """What is left of a cancel would end later calls."""
    run_id = await world.ready(2)
    session = world.ports.executor._sessions[1]  # type: ignore[attr-defined]
    order = await world.order(run_id, 1)
    with world.cluster.transaction():
        world.cluster.execute("LOCK TABLE easeml_segment.version_blocks IN ACCESS EXCLUSIVE MODE")
        await world.ports.executor.start(order)
        async with asyncio.timeout(world.patience_seconds):
            while not world.cluster.value(WAITING):
                await asyncio.sleep(0.01)
        await world.ports.executor.cancel(1)
        message = await world.message()
    assert isinstance(message, UnitFailed)
    assert isinstance(message.error, SlotLost), message.error
    assert session.is_closed
    assert await world.message() == SlotReady(1)
    await recorded(world, run_id, 1, 0)


async def test_only_what_nothing_points_to_is_removed_and_nothing_of_a_later_lease(world: WarmOnGreenplum) -> None:
    run_id = await world.ready(2)
    await recorded(world, run_id, 1, 0)
    cache = next(cache for cache in world.caches.values() if cache.node.content == 0)
    key = world.cluster.value("SELECT min(segment_key) FROM easeml_segment.keys WHERE gp_segment_id = 0")
    for number, lease in ((1_000_001, world.lease_number), (1_000_002, world.lease_number + 1)):
        world.cluster.execute(INSERT, [key, number, lease])
    async with asyncio.timeout(world.patience_seconds):
        with cache.in_use.using(1_000_001):
            await cache.sweep(world.lease_number)
        assert {1_000_001, 1_000_002} <= {*world.cluster.values(ON_FIRST)}
        assert await cache.sweep(world.lease_number) >= 1
    known = {*world.control.values("SELECT checkpoint_id FROM easeml.checkpoints")}
    assert {*world.cluster.values(ON_FIRST)} - known == {1_000_002}
    world.cluster.execute("DELETE FROM easeml_segment.checkpoint_chunks WHERE checkpoint_id = 1000002")


async def predicted(world: WarmOnGreenplum, trial_id: int, places: dict[str, str], key: str = "id") -> int:
    """Have tables of the cluster predicted; return how many rows they have. Raises psycopg.Error."""
    values = [json.dumps(places), trial_id, [key]]
    return int((await asyncio.to_thread(world.control.rows, PREDICT, *values))[0]["n_rows"])


async def test_a_table_of_the_cluster_is_predicted_where_its_rows_are(world: WarmOnGreenplum) -> None:
    run_id = await world.ready(2)
    for step in range(2 * N_PARTITIONS):  # an epoch with its validation
        trial_id = await recorded(world, run_id, 1 + step % 2, step)
    greenplum.make_spots(world.cluster, world.control.value("SELECT session_user::text"))
    # Named on two segments it counts once, for it is on all.
    assert await predicted(world, trial_id, {"gp1": "public.spots", "gp2": "Public.spots"}) == 9000
    for statement in HERE.format(greenplum.SPOTS, trial_id).split(";"):
        world.control.execute(statement)
    for here, there in zip(world.control.rows(PREDICTED), world.cluster.rows(PREDICTED), strict=True):
        assert here["id"] == there["id"]
        assert here["predicted_label"] == there["predicted_label"]
        assert there["probability"] == pytest.approx(here["probability"], abs=1e-6)
        assert there["probabilities"] == pytest.approx(here["probabilities"], abs=1e-6)
    if greenplum.DSN in os.environ:
        assert world.cluster.value(MOVED) == 0
        assert world.cluster.value("SELECT pg_get_table_distributedby('spotted'::regclass)") == "DISTRIBUTED BY (id)"
    world.control.execute("DROP TABLE spots, spotted")
    # What cannot be predicted is refused in words, and nothing is written.
    world.cluster.execute("DROP TABLE public.spotted; INSERT INTO public.spots (id, x) VALUES (0, 'Infinity')")
    with pytest.raises(psycopg.Error, match="segment gp1: input 'x': expected finite numbers, got an infinite one"):
        await predicted(world, trial_id, {"gp1": "public.spots"})
    with pytest.raises(psycopg.Error, match=r"segment gp2: there is no table public\.spot"):
        await predicted(world, trial_id, {"gp2": "public.spot"})
    world.cluster.execute("CREATE VIEW public.seen AS SELECT * FROM public.spots")
    with pytest.raises(psycopg.Error, match=r"public\.seen is no table whose rows are distributed"):
        await predicted(world, trial_id, {"gp2": "public.seen"})
    with pytest.raises(psycopg.Error, match="has no column 'idd'"):
        await predicted(world, trial_id, {"gp2": "public.spots"}, key="idd")
    reader = f"easeml_reads_{world.control.value('SELECT session_user::text')}"
    world.cluster.execute(f"REVOKE SELECT ON public.spots FROM {NODE_ROLE}, {reader}")
    with pytest.raises(psycopg.Error, match=r"segment gp2: .*may not"):
        await predicted(world, trial_id, {"gp2": "public.spots"})
    assert world.cluster.values("SELECT 1 FROM pg_class WHERE relname = 'spotted'") == []
    if greenplum.DSN in os.environ:
        world.cluster.execute(PARTED)
        assert await predicted(world, trial_id, {"gp2": "public.parted"}) == 9000
        assert world.cluster.value(MOVED) == 0


async def test_a_segment_says_what_it_is(world: WarmOnGreenplum) -> None:
    await world.begin(2)
    facts = world.control.value("SELECT easeml.segment_facts('gp2')")
    identity = world.cluster.value("SELECT identity FROM easeml_segment.node")
    assert facts["identity"] == f"{identity}/1"
    assert facts["greenplum"]["content"] == 1
    assert facts["packages"]["torch"]["version"]
    status = "SELECT engine, content, refusal FROM easeml.segment_status WHERE segment_name = 'gp2'"
    assert world.control.rows(status) == [{"engine": "greenplum", "content": 1, "refusal": None}]
