"""Packing one dataset whose rows lie on nodes.

Each node packs its part in one transaction, and keeps what is not yet a block in temporary tables. The control server
combines the findings of the nodes in temporary tables of its own. Rows that move go from node to node, packed; this
process keeps some pieces of 1 MB. The control server sees hashes, targets, counts and statistics, and no row.

The packing commits with the row on the control server. Blocks of a dataset that has no such row are removed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import permutations

import psycopg
from psycopg import sql

from easeml_db.errors import EasemlError, NotAllowed, RowsHeld
from easeml_db.postgres.nodes.engine import Reading
from easeml_db.postgres.nodes.node_store import Arrival, Connection
from easeml_db.postgres.nodes.node_works import Fields, NodeWork, all_of, on_all, segment_errors
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.on_nodes.kept_sessions import KeptSessions
from easeml_db.postgres.on_nodes.named_tables import reading, resolve
from easeml_db.postgres.on_nodes.temporary_rows import bring_rows, columns_of, send_pieces

# A name, and no advisory lock, which any role of the node could take: nobody else has sessions of the service's role.
NAME = "SELECT set_config('application_name', %s, false)"
OTHERS = """
SELECT count(*) AS n FROM pg_stat_activity
WHERE application_name = %s AND usename = session_user AND datname = current_database() AND pid <> pg_backend_pid()
"""
RECORDED = "SELECT FROM easeml.datasets WHERE dataset_id = %s"
CLEAR = "DELETE FROM easeml_segment.datasets WHERE dataset_id = %s RETURNING dataset_id"
BEGIN = "INSERT INTO easeml_segment.datasets (dataset_id, encoder) VALUES (%s, '{}') RETURNING dataset_id"
ENCODER = "UPDATE easeml_segment.datasets SET encoder = %s::jsonb WHERE dataset_id = %s RETURNING dataset_id"
SETTLE = "SELECT easeml.settle_packing(%s, %s::jsonb) AS settled"
FINISH = "SELECT easeml.finish_packing(%s::jsonb, %s)"
ROWS = "pg_temp.easeml_rows"
ROWS_OUT = "SELECT {node}::integer, ctid, y, h, s FROM pg_temp.easeml_rows WHERE"
ROWS_IN = ("node", "id", "y", "h", "s")
PLACES_OUT = """
SELECT r.id, o.split, o.part, o.position FROM pg_temp.easeml_order o JOIN pg_temp.easeml_rows r ON r.ctid = o.row
WHERE r.node = {node}
"""
SPLIT_BY = ("split_column", "time_column", "group_column")
ORDER_TYPES = ("tid", "text", "int4", "int4")


class PackingOnNodes:
    """The sessions of one packing, and its request, which grows by the facts that each step settles."""

    def __init__(self, control: Connection, request: Fields, readings: Sequence[Reading]) -> None:
        self._control, self._request, self._readings = control, request, readings
        self._is_across = request["shuffle"] == "across"
        self._works: dict[str, NodeWork] = {}
        self._row_places: Mapping[str, str] = {}  # of images in the memory of the nodes' sessions

    async def open(self, stack: AsyncExitStack, sessions: KeptSessions) -> None:
        """Open sessions on the nodes. Raises RowsHeld while one is left of a coordinator that was replaced."""
        names = dict.fromkeys([*self._request["places"], *self._holder_names])
        nodes = [Node(**self._request["nodes"][name]) for name in names]
        works = await all_of(stack.enter_async_context(sessions.node(node)) for node in nodes)
        self._works = dict(zip(names, works, strict=True))
        await all_of(self._begin(work) for work in self._holders.values())

    @property
    def _holder_names(self) -> Sequence[str]:
        names: Sequence[str] = self._request["holders" if self._is_across else "places"]
        return names

    @property
    def _sources(self) -> Mapping[str, NodeWork]:
        return {name: self._works[name] for name in self._request["places"]}

    @property
    def _holders(self) -> Mapping[str, NodeWork]:
        return {name: self._works[name] for name in self._holder_names}

    async def pack(self, lease_number: int) -> None:
        """Pack, and record the dataset. Raises EasemlError."""
        async with AsyncExitStack() as working:
            for work in self._works.values():
                await working.enter_async_context(work.connection.transaction())
            await self._read()
            await self._pack_pieces()
            pairs = permutations(self._works, 2) if self._is_across else ()
            self._request["n_moved_bytes"] = sum(await all_of(self._send(*pair) for pair in pairs))
            await self._assemble()
            dataset_id, encoder = self._request["dataset_id"], json.dumps(self._request["encoder"])
            await all_of(work.execute(ENCODER, encoder, dataset_id) for work in self._holders.values())
        await self._control.execute(FINISH, [json.dumps(self._request), lease_number])

    async def clear(self) -> None:
        """Remove what the nodes have of a dataset whose packing failed; the sweep does where one does not answer.

        After an interrupted commit only the control server knows whether the dataset was recorded.
        """
        with contextlib.suppress(EasemlError, psycopg.Error):
            cursor = await self._control.execute(RECORDED, [self._request["dataset_id"]])
            if await cursor.fetchone() is not None:
                return
            for work in self._holders.values():
                with contextlib.suppress(EasemlError):
                    await work.execute(CLEAR, self._request["dataset_id"])

    async def _begin(self, work: NodeWork) -> None:
        dataset_id, content = self._request["dataset_id"], work.node.content
        name = f"easeml packing {dataset_id}" + ("" if content is None else f" on worker {content}")
        if await self._are_others(work, name):
            raise RowsHeld(f"segment {work.node.segment_name}: another session packs dataset {dataset_id}")
        await work.execute(CLEAR, dataset_id)
        await work.execute(BEGIN, dataset_id)

    @staticmethod
    async def _are_others(work: NodeWork, name: str) -> bool:
        """Name the session; return whether another one has that name. Of two that begin at once, both see the other.

        This asks the server of the connection. A coordinator of Citus, too, ends what its sessions have begun.
        """
        async with segment_errors(work.node):
            await work.connection.execute(NAME, [name])
            row = await (await work.connection.execute(OTHERS, [name])).fetchone()
        return row is None or row["n"] > 0

    async def _read(self) -> None:
        """Let the nodes read all rows, and settle the dataset and the place of each row."""
        async with reading(self._readings):
            await all_of([self._settle("begin", []), self._read_source()])
        if not self._row_places:
            await self._deal()
        self._request["n_train_rows"] = sum(n for split, _, n in self._request["rows"] if split == "train")
        await self._step("keys")
        await self._step("texts", table="easeml_hashes")
        await self._step("dictionaries", table="easeml_values")

    async def _read_source(self) -> None:
        if not await self._hold_images():
            await self._step("source")

    async def _hold_images(self) -> bool:
        """Let sessions read images into memory and settle their places; return whether that was possible."""
        if not self._is_across or not self._request.get("input_shape") or any(map(self._request.get, SPLIT_BY)):
            return False
        await self._step("images")
        self._row_places = self._request.pop("row_places", {})
        return bool(self._row_places)

    async def _deal(self) -> None:
        """Deal the rows in temporary tables: here, or on their nodes where rows stay."""
        answers = await on_all(self._sources, "places", self._request, self._extra)
        if self._is_across:
            for number, work in enumerate(self._sources.values()):
                await self._bring_places(number, work)
        await self._settle("places", answers)
        if self._is_across:
            for number, work in enumerate(self._sources.values()):
                await self._places(number, work)

    async def _step(self, name: str, table: str | None = None) -> None:
        """Do a step on all nodes that have rows, fetch a temporary table, and settle the answers."""
        answers = await on_all(self._sources, name, self._request, self._extra)
        if table is not None:
            for work in self._sources.values():
                await self._bring_table(work, table)
        await self._settle(name, answers)

    async def _pack_pieces(self) -> None:
        """Let nodes pack rows for the nodes that get them."""
        if self._row_places:
            extra = {name: self._extra(name) | {"row_places": self._row_places.get(name)} for name in self._works}
            await on_all(self._works, "image_pieces", self._request, extra.__getitem__)
        else:
            await on_all(self._works, "pieces", self._request, self._extra)

    async def _assemble(self) -> None:
        """Let nodes assemble the blocks, and settle the statistics."""
        answers = await on_all(self._holders, "blocks", self._request, self._extra)
        for work in self._holders.values():
            await self._bring_table(work, "easeml_facts")
        for name in ("checksums", "n_bytes"):
            self._request[name] = {part: value for answer in answers for part, value in answer[name].items()}
        await self._settle("blocks", answers)

    async def _settle(self, name: str, answers: list[Fields]) -> None:
        cursor = await self._control.execute(SETTLE, [name, json.dumps({**self._request, "found": answers})])
        row = await cursor.fetchone()
        self._request |= {} if row is None else row["settled"]

    def _extra(self, segment: str) -> Fields:
        """Return the part for one node: its tables, its number among those with rows, its partitions."""
        numbers: Mapping[str, int] = {name: number for number, name in enumerate(self._sources)}
        parts = self._request.get("parts_by_segment", {}).get(segment, [])
        return {"tables": self._request["places"].get(segment), "node": numbers.get(segment), "parts": parts}

    async def _places(self, number: int, work: NodeWork) -> None:
        query, into = sql.SQL(PLACES_OUT).format(node=number), sql.SQL("pg_temp.easeml_order")
        async with segment_errors(work.node):
            await work.store.receive(self._control, Arrival(query, into, ORDER_TYPES))

    async def _bring_places(self, number: int, work: NodeWork) -> None:
        columns = await columns_of(self._control, ROWS, *ROWS_IN)
        into = sql.SQL("{} ({})").format(sql.SQL(ROWS), sql.SQL(", ").join(map(sql.Identifier, ROWS_IN)))
        await bring_rows(work, self._control, sql.SQL(ROWS_OUT).format(node=number), ROWS, columns, into)

    async def _bring_table(self, work: NodeWork, table: str) -> None:
        name, columns = sql.Identifier("pg_temp", table), await columns_of(self._control, f"pg_temp.{table}")
        query = sql.SQL("SELECT * FROM {} WHERE").format(name)
        await bring_rows(work, self._control, query, f"pg_temp.{table}", columns, name)

    async def _send(self, name: str, other: str) -> int:
        """Send the pieces that one node has and another one gets, when both are free; return the bytes."""
        parts = self._request["parts_by_segment"].get(other, [])
        if name not in self._request["places"] or not parts:
            return 0
        first, second = sorted((name, other))  # all take the locks in one order, so none waits for ever
        async with self._works[first].lock, self._works[second].lock, segment_errors(self._works[other].node):
            return await send_pieces(self._works[name], self._works[other].store, parts)


def check_holders(request: Fields) -> None:
    """Refuse rows that stay on a segment without slots. Raises NotAllowed."""
    lacking = [name for name in request["places"] if name not in request["holders"]]
    if request["shuffle"] == "within" and lacking:
        raise NotAllowed(
            f"segment {lacking[0]} has rows and no slots, so nothing could train there",
            hint=f"An administrator adds them: SELECT easeml.add_slots(1, '{lacking[0]}').",
        )


async def pack_dataset(dsn: str, request: Fields, lease_number: int, sessions: KeptSessions) -> None:
    """Pack a dataset of rows on nodes, and record it. Raises EasemlError."""
    async with AsyncExitStack() as stack:
        control = (await stack.enter_async_context(sessions.control(dsn))).connection
        readings = await resolve(request)
        check_holders(request)
        packing = PackingOnNodes(control, request, readings)
        await packing.open(stack, sessions)
        try:
            async with control.transaction():
                await packing.pack(lease_number)
        except BaseException:
            await packing.clear()
            raise
