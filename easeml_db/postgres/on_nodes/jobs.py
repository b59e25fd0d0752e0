"""What tenants ask of nodes besides packing: held-out rows answered, tables predicted, trials replayed and explained,
rows compared with those that were trained on.

Each node does its part where the rows lie, with a state that is sent to it. The commit point is the row of the job on
the control server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from psycopg import sql

from easeml_db.errors import NotFound, SlotLost
from easeml_db.postgres.connection import connect
from easeml_db.postgres.nodes.engine import Reading
from easeml_db.postgres.nodes.node_store import Connection, KnownState
from easeml_db.postgres.nodes.node_works import SETTINGS, Fields, NodeWork, all_of, node_work, segment_errors
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.nodes.segment_store import ControlSource
from easeml_db.postgres.nodes.states_in_use import StatesInUse
from easeml_db.postgres.nodes.transfers import bring_state
from easeml_db.postgres.on_nodes.drifting import measured
from easeml_db.postgres.on_nodes.explaining import explained
from easeml_db.postgres.on_nodes.named_tables import each_cluster_once, reading, resolve
from easeml_db.postgres.on_nodes.replaying import replay
from easeml_db.postgres.on_nodes.temporary_rows import bring_rows, columns_of

Works = Mapping[str, NodeWork]
ANSWER = "SELECT easeml_segment.answer_on_node(%s::jsonb) AS found"
PREDICT = "SELECT easeml_segment.predict_on_node(%s::jsonb) AS found"
CLEAR = "DELETE FROM easeml.node_answers WHERE trial_id = %s"
NEW_ANSWERS = """
CREATE TEMPORARY TABLE easeml_answers (split text, partition_number integer, block_number integer, n_rows integer,
    outputs bytea, targets bytea) ON COMMIT DROP
"""
ANSWERS = "pg_temp.easeml_answers"
ANSWERS_OUT = "SELECT * FROM pg_temp.easeml_answers WHERE"
KEEP = "SELECT easeml.keep_node_answers(%s, %s, %s)"
NOT_TOLD = ("nodes", "places", "homes", "encoder", "units", "limits", "state")
STATELESS = ("replay", "drift")
"""They need no state of a trial, or make it themselves."""
FINISH = "SELECT easeml.finish_node_job(%s, %s::jsonb, %s)"


async def do_job(dsn: str, told: Fields, lease_number: int, in_use: StatesInUse) -> None:
    """Do a job, and record what came of it. Raises EasemlError."""
    async with AsyncExitStack() as stack:
        if told["kind"] not in STATELESS:
            stack.enter_context(in_use.using(told["checkpoint_id"]))
        readings = await resolve(told)
        if told["kind"] == "predictions":
            told["nodes"] = {name: told["nodes"][name] for name in told["places"]}
        elif told["kind"] == "drift":
            told["nodes"] = {name: told["nodes"][name] for name in {*told["places"], *told["homes"]}}
        control = await connect(dsn, "easeml coordinator (job on nodes)", **SETTINGS)
        stack.push_async_callback(control.close)
        works = {
            name: await stack.enter_async_context(node_work(Node(**entry), told["kind"]))
            for name, entry in told["nodes"].items()
        }
        for work in works.values():
            await _prepare(control, work, told, lease_number)
        if told["kind"] == "answers":
            await _answers(control, told, works, lease_number)
        elif told["kind"] == "predictions":
            works = await each_cluster_once(told, works)
            await _finish(control, told, await _predictions(told, works, readings), lease_number)
        elif told["kind"] == "explanation":
            found = await explained(control, told, _told_to_nodes(told), works)
            await _finish(control, told, found, lease_number)
        elif told["kind"] == "drift":
            async with reading(readings):
                rows = await measured(control, told, works)
            await _finish(control, told, rows, lease_number)
        else:
            await _finish(control, told, await replay(control, told, works, lease_number, in_use), lease_number)


async def _finish(control: Connection, told: Fields, result: Fields, lease_number: int) -> None:
    await control.execute(FINISH, [told["job_id"], json.dumps(result), lease_number])


async def _prepare(control: Connection, work: NodeWork, told: Fields, lease_number: int) -> None:
    """Have on a node what the job needs besides rows: the encoder, the architecture, the state."""
    async with segment_errors(work.node):
        await work.store.begin_dataset(told["dataset_id"], json.dumps(told["encoder"]))
        await work.store.register(told["registered"])
    if told["kind"] in STATELESS:
        return
    state = KnownState(told["checkpoint_id"], told["trial_id"], **told["state"])
    try:
        async with segment_errors(work.node):
            await bring_state(ControlSource(control), work.store, state, lease_number)
    except NotFound as error:
        raise SlotLost(f"the best state of trial {told['trial_id']} has been replaced: it begins anew") from error


async def _on_all(works: Works, statement: str, told: Fields, own: Callable[[str], Fields]) -> int:
    """Have all nodes do their parts side by side; return the number of rows."""
    sent = {name: {**_told_to_nodes(told), **own(name), "limit": told["limits"][name]} for name in works}
    found = await all_of(work.asked(statement, json.dumps(sent[name])) for name, work in works.items())
    return sum(int(each["n_rows"]) for each in found)


def _told_to_nodes(told: Fields) -> Fields:
    """Return what every node is told: nothing of other nodes, and no encoder, which it has."""
    return {key: value for key, value in told.items() if key not in NOT_TOLD}


async def _answers(control: Connection, told: Fields, works: Works, lease_number: int) -> None:
    """Have held-out rows answered, and bring and record the answers."""
    async with AsyncExitStack() as stack:
        for work in works.values():
            await stack.enter_async_context(work.connection.transaction())
        n_rows = await _on_all(works, ANSWER, told, lambda name: {"parts": told["homes"][name]})
        await stack.enter_async_context(control.transaction())
        await control.execute(CLEAR, [told["trial_id"]])
        await control.execute(NEW_ANSWERS)  # no COPY goes into a table with row-level security
        columns = await columns_of(control, ANSWERS)
        for work in works.values():
            await bring_rows(work, control, sql.SQL(ANSWERS_OUT), ANSWERS, columns, sql.SQL(ANSWERS))
            await control.execute(KEEP, [told["job_id"], told["checkpoint_id"], work.node.segment_name])
        await _finish(control, told, {"n_rows": n_rows}, lease_number)


async def _predictions(told: Fields, works: Works, readings: Sequence[Reading]) -> Fields:
    """Have tables predicted; return how many rows there are.

    Nodes commit one after the other. If one goes away in that very moment, the job is done again, and finds what the
    others have written by its remark.
    """
    async with AsyncExitStack() as stack:
        for work in works.values():
            await stack.enter_async_context(work.connection.transaction())
        async with reading(readings):
            n_rows = await _on_all(works, PREDICT, told, lambda name: _own(told, works[name]))
    return {"n_rows": n_rows}


def _own(told: Fields, work: NodeWork) -> Fields:
    """Return what one node is told of a prediction: its tables, and for a cluster where the state is that was sent."""
    return {"tables": told["places"][work.node.segment_name], "content": work.node.content, "state": told["state"]}
