"""Jobs of tenants on nodes besides packing: answer held-out rows, predict tables, replay and explain trials, measure
drift.

Each node does its part where the rows lie, with a state that is sent to it. A job commits with its row on the control
server.
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
NOT_SENT = ("nodes", "places", "homes", "encoder", "units", "limits", "state")
STATELESS = ("replay", "drift")
"""Jobs that need no state of a trial, or make it themselves."""
FINISH = "SELECT easeml.finish_node_job(%s, %s::jsonb, %s)"


async def do_job(dsn: str, job: Fields, lease_number: int, in_use: StatesInUse) -> None:
    """Do a job, and record its result. Raises EasemlError."""
    async with AsyncExitStack() as stack:
        if job["kind"] not in STATELESS:
            stack.enter_context(in_use.using(job["checkpoint_id"]))
        readings = await resolve(job)
        if job["kind"] == "predictions":
            job["nodes"] = {name: job["nodes"][name] for name in job["places"]}
        elif job["kind"] == "drift":
            job["nodes"] = {name: job["nodes"][name] for name in {*job["places"], *job["homes"]}}
        control = await connect(dsn, "easeml coordinator (job on nodes)", **SETTINGS)
        stack.push_async_callback(control.close)
        works = {
            name: await stack.enter_async_context(node_work(Node(**entry), job["kind"]))
            for name, entry in job["nodes"].items()
        }
        for work in works.values():
            await _prepare(control, work, job, lease_number)
        if job["kind"] == "answers":
            await _answers(control, job, works, lease_number)
            return
        if job["kind"] == "predictions":
            result = await _predictions(job, await each_cluster_once(job, works), readings)
        elif job["kind"] == "explanation":
            result = await explained(control, job, _sent_to_nodes(job), works)
        elif job["kind"] == "drift":
            async with reading(readings):
                result = await measured(control, job, works)
        else:
            result = await replay(control, job, works, lease_number, in_use)
        await _finish(control, job, result, lease_number)


async def _finish(control: Connection, job: Fields, result: Fields, lease_number: int) -> None:
    await control.execute(FINISH, [job["job_id"], json.dumps(result), lease_number])


async def _prepare(control: Connection, work: NodeWork, job: Fields, lease_number: int) -> None:
    """Send a node what the job needs besides rows: the encoder, the architecture, the state."""
    async with segment_errors(work.node):
        await work.store.begin_dataset(job["dataset_id"], json.dumps(job["encoder"]))
        await work.store.register(job["registered"])
    if job["kind"] in STATELESS:
        return
    state = KnownState(job["checkpoint_id"], job["trial_id"], **job["state"])
    try:
        async with segment_errors(work.node):
            await bring_state(ControlSource(control), work.store, state, lease_number)
    except NotFound as error:
        raise SlotLost(f"the best state of trial {job['trial_id']} has been replaced: it begins anew") from error


async def _on_all(works: Works, statement: str, job: Fields, extra: Callable[[str], Fields]) -> int:
    """Execute a statement on all nodes at once; return the number of rows."""
    sent = {name: {**_sent_to_nodes(job), **extra(name), "limit": job["limits"][name]} for name in works}
    answers = await all_of(work.asked(statement, json.dumps(sent[name])) for name, work in works.items())
    return sum(int(answer["n_rows"]) for answer in answers)


def _sent_to_nodes(job: Fields) -> Fields:
    """Return the part of a job for every node: without other nodes, and without the encoder, which it has."""
    return {key: value for key, value in job.items() if key not in NOT_SENT}


async def _answers(control: Connection, job: Fields, works: Works, lease_number: int) -> None:
    """Let nodes answer held-out rows, then fetch and record the answers."""
    async with AsyncExitStack() as stack:
        for work in works.values():
            await stack.enter_async_context(work.connection.transaction())
        n_rows = await _on_all(works, ANSWER, job, lambda name: {"parts": job["homes"][name]})
        await stack.enter_async_context(control.transaction())
        await control.execute(CLEAR, [job["trial_id"]])
        await control.execute(NEW_ANSWERS)  # no COPY goes into a table with row-level security
        columns = await columns_of(control, ANSWERS)
        for work in works.values():
            await bring_rows(work, control, sql.SQL(ANSWERS_OUT), ANSWERS, columns, sql.SQL(ANSWERS))
            await control.execute(KEEP, [job["job_id"], job["checkpoint_id"], work.node.segment_name])
        await _finish(control, job, {"n_rows": n_rows}, lease_number)


async def _predictions(job: Fields, works: Works, readings: Sequence[Reading]) -> Fields:
    """Let nodes predict tables; return the number of rows.

    Nodes commit one after the other. If one goes away between two commits, the job runs again, and recognises what the
    others have written by its remark.
    """
    async with AsyncExitStack() as stack:
        for work in works.values():
            await stack.enter_async_context(work.connection.transaction())
        async with reading(readings):
            n_rows = await _on_all(works, PREDICT, job, lambda name: _extra(job, works[name]))
    return {"n_rows": n_rows}


def _extra(job: Fields, work: NodeWork) -> Fields:
    """Return the part of a prediction for one node: its tables, and for a cluster the place of the state."""
    return {"tables": job["places"][work.node.segment_name], "content": work.node.content, "state": job["state"]}
