"""Statements for a Greenplum cluster about one of its segments. Pure: values in, SQL out.

A segment is a number (gp_segment_id) and a key, by which rows are sent to it. A function that runs there may read no
table, so the plan of its query reads for it: a scan of its rows, grouped by the key. The grouping keeps the function
on the segment: without it the rows are gathered first, and it runs on the coordinator, and nothing says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import sql

from easeml_db.postgres.nodes.node_orders import mates_of, parts_of
from easeml_db.postgres.nodes.node_store import KnownState, Part

Fields = dict[str, Any]
NEW_STATE: LiteralString = """
CREATE TEMPORARY TABLE IF NOT EXISTS easeml_new_state (segment_key integer NOT NULL, checkpoint_id bigint,
    chunk_number integer, trial_id bigint, lease_number bigint, n_bytes bigint, sha256 text, bytes bytea, told text)
ON COMMIT DELETE ROWS DISTRIBUTED BY (segment_key)
"""
TOLD: LiteralString = "SELECT told FROM pg_temp.easeml_new_state WHERE told IS NOT NULL"
KEEP: LiteralString = """
INSERT INTO easeml_segment.checkpoint_chunks
    (segment_key, checkpoint_id, chunk_number, trial_id, lease_number, n_bytes, sha256, bytes)
SELECT segment_key, checkpoint_id, chunk_number, trial_id, lease_number, n_bytes, sha256, bytes
FROM pg_temp.easeml_new_state WHERE bytes IS NOT NULL
"""
ENCODER_PIECE: LiteralString = """
SELECT segment_key, 'encoder'::text AS kind, dataset_id AS owner, 0 AS number, NULL::integer AS n_rows,
    encoder AS first, NULL::bytea AS second FROM easeml_segment.datasets WHERE {here} AND dataset_id = {dataset}
"""
BLOCK_PIECES: LiteralString = """
SELECT segment_key, 'block ' || split, partition_number::bigint, block_number, n_rows, inputs, targets
FROM easeml_segment.version_blocks WHERE {here} AND dataset_id = {dataset} AND split = {split}
    AND partition_number = {part}
"""
STATE_PIECES: LiteralString = """
SELECT segment_key, 'state'::text, checkpoint_id, chunk_number, NULL::integer, bytes, NULL::bytea
FROM easeml_segment.checkpoint_chunks WHERE {here} AND checkpoint_id = {id}
"""
WORK: LiteralString = """
SELECT z.segment_key, (z.worked).* FROM (
    SELECT p.segment_key, easeml_segment.work_on_segment({work}, {order}, {context}, array_agg(p.kind),
        array_agg(p.owner), array_agg(p.number), array_agg(p.n_rows), array_agg(p.first), array_agg(p.second)) AS worked
    FROM ({pieces}) p GROUP BY p.segment_key OFFSET 0) z
"""
ARRIVING: LiteralString = """
{lead} {id}::bigint AS checkpoint_id, {trial}::bigint AS trial_id, {lease}::bigint AS lease_number,
    {n_bytes}::bigint AS n_bytes, {sha256}::text AS sha256,
"""
STORES = ("train_unit", "train_round")
SEGMENTS_IN_PLAN = re.compile(r"segments: (\d+)")
MOVING = ("Redistribute Motion", "Broadcast Motion")


@dataclass(frozen=True)
class GreenplumSegment:
    """A segment of a cluster: its number, and the key of its rows.

    `is_by_key`: whether queries name it by the key, which indexes begin with, or by the number; versions differ in
    which of the two a query is dispatched by.
    """

    content: int
    key: int
    is_by_key: bool = True

    @property
    def here(self) -> sql.Composable:
        """The condition that holds for its rows alone."""
        if self.is_by_key:
            return sql.SQL("segment_key = {}").format(sql.Literal(self.key))
        return sql.SQL("gp_segment_id = {}").format(sql.Literal(self.content))

    @property
    def lead(self) -> sql.Composable:
        """The first column of a row that is sent here."""
        return sql.SQL("{}::integer AS segment_key, ").format(sql.Literal(self.key))


def unit_statement(segment: GreenplumSegment, work: str, order: str, opened: Fields) -> sql.Composed:
    """Return the query that does a unit on a segment: of one that stores a state, the INSERT into the session's own
    table, which no other session waits for."""
    query = sql.SQL(WORK).format(
        work=sql.Literal(work),
        order=sql.Literal(order),
        context=sql.Literal(json.dumps(opened)),
        pieces=sql.SQL("UNION ALL").join(pieces_of(segment, json.loads(order), opened)),
    )
    return sql.SQL("INSERT INTO pg_temp.easeml_new_state {}").format(query) if work in STORES else query


def probes(segment: GreenplumSegment) -> tuple[sql.Composed, sql.Composed]:
    """Return a unit that stores nothing and one that does, whose plans say where units run."""
    order = json.dumps({"kind": "train", "partition_number": 0})
    opened = {"dataset_id": 0, "composition": None, "state": {"checkpoint_id": 0}}
    return unit_statement(segment, "evaluate_unit", order, opened), unit_statement(segment, "train_unit", order, opened)


def pieces_of(segment: GreenplumSegment, order: Fields, opened: Fields) -> list[sql.Composable]:
    """Return the queries of what a unit reads: the encoder, its blocks, and states."""
    dataset = sql.Literal(opened["dataset_id"])
    states = [] if opened["state"] is None else [opened["state"]["checkpoint_id"]]
    return [
        sql.SQL(ENCODER_PIECE).format(here=segment.here, dataset=dataset),
        *(_blocks(segment, part) for part in parts_of(order, opened)),
        *(
            sql.SQL(STATE_PIECES).format(here=segment.here, id=sql.Literal(number))
            for number in [*states, *(mate.checkpoint_id for mate in mates_of(opened))]
        ),
    ]


def _blocks(segment: GreenplumSegment, part: Part) -> sql.Composable:
    return sql.SQL(BLOCK_PIECES).format(
        here=segment.here,
        dataset=sql.Literal(part.dataset_id),
        split=sql.Literal(part.split),
        part=sql.Literal(part.partition_number),
    )


def runs_on_one_segment(plan: Iterable[str]) -> bool:
    """Return whether, by its EXPLAIN, a query goes to one segment and moves no rows between segments."""
    lines = list(plan)
    counts = [int(count) for line in lines for count in SEGMENTS_IN_PLAN.findall(line)]
    return bool(counts) and set(counts) == {1} and moves_nothing(lines)


def moves_nothing(plan: Iterable[str]) -> bool:
    """Return whether, by EXPLAIN, rows stay on their segments; that of an INSERT does not count segments."""
    return not any(word in line for line in plan for word in MOVING)


def arriving(segment: GreenplumSegment, state: KnownState, lease_number: int) -> sql.Composed:
    """Return the columns that each row of a state has here, before its chunk."""
    return sql.SQL(ARRIVING).format(
        lead=segment.lead,
        id=sql.Literal(state.checkpoint_id),
        trial=sql.Literal(state.trial_id),
        lease=sql.Literal(lease_number),
        n_bytes=sql.Literal(state.n_bytes),
        sha256=sql.Literal(state.sha256),
    )
