"""The packed rows that a node has, and the transfer of those that a unit lacks: once, packed.

They come from the control server, or from the node that got them when the dataset was packed. A whole round needs all
partitions, so most of its rows come from other nodes. If a node does not answer, the unit waits for it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

from easeml_db.errors import RowsHeld, ServerUnavailable
from easeml_db.postgres.nodes.node_connections import NodeConnection
from easeml_db.postgres.nodes.node_store import Connection, NodeStore, Part
from easeml_db.postgres.nodes.nodes import Node
from easeml_db.postgres.nodes.packed_parts import bring_part, lost_part, read_data
from easeml_db.postgres.nodes.segment_store import ControlSource

HERE = 1  # the segment that is the control server
NOTE = "SELECT easeml.note_row_copy(%s::jsonb, %s::jsonb)"


@dataclass(frozen=True)
class RowCopy:
    """A transfer of the rows of a part from one server to another. `n_bytes` counts bytes on the wire."""

    part: Part
    from_segment_id: int
    to_segment_id: int
    n_bytes: int
    seconds: float


async def note_copy(control: Connection, unit: str, copy: RowCopy) -> None:
    """Record rows that went to a node because a unit needed them; `unit` is JSON with its trial."""
    record = asdict(copy)
    await control.execute(NOTE, [unit, json.dumps({**record.pop("part"), **record})])


class NodeRows:
    """The rows on a node, as far as this process knows."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._here: set[Part] = set()
        self._bringing = asyncio.Lock()  # of two units that need the same rows, one brings them
        self._sending = NodeConnection(node, "rows out")

    def opened(self) -> None:
        """Note that a session was opened, because the server that answers may have been set up anew since."""
        self._here.clear()

    async def need(
        self, control: Connection, session: NodeStore, part: Part, home: Callable[[int], Awaitable[NodeRows]]
    ) -> RowCopy | None:
        """Bring the rows of a part here, through a session of this node; return how they came, or None if they were
        here. `home` returns the node of a segment. Raises RowsHeld while that node does not answer, TrialFailed if it
        has lost the rows.
        """
        if part in self._here:
            return None
        async with self._bringing:
            if part in self._here:
                return None
            copy = await self._bring(control, session, part, home)
            self._here.add(part)
            return copy

    async def _bring(
        self, control: Connection, session: NodeStore, part: Part, home: Callable[[int], Awaitable[NodeRows]]
    ) -> RowCopy | None:
        data, began = await read_data(control, part), time.monotonic()
        if data.home_segment_id == self.node.segment_id:
            if not await session.has_part(part):
                raise lost_part(self.node.segment_name, part)
            return None
        if data.home_segment_id is None:
            n_bytes = await bring_part(ControlSource(control), session, part, data.encoder)
        else:
            n_bytes = await (await home(data.home_segment_id)).send(session, part, data.encoder)
        if not n_bytes:
            return None
        places = data.home_segment_id or HERE, self.node.segment_id
        return RowCopy(part, *places, n_bytes, time.monotonic() - began)

    async def send(self, target: NodeStore, part: Part, encoder: str) -> int:
        """Copy packed rows from here to another node, unless it has them; return the bytes.

        Raises TrialFailed where they are lost, RowsHeld while this node does not answer.
        """
        if await target.has_part(part):
            return 0
        try:
            async with self._sending.taken() as source:
                if not await source.has_part(part):
                    raise lost_part(self.node.segment_name, part)
                return await bring_part(source, target, part, encoder)
        except ServerUnavailable as error:
            where = f"segment {self.node.segment_name}, which has the rows of partition {part.partition_number}"
            raise RowsHeld(f"{where}, does not answer") from error

    async def close(self) -> None:
        """Close the connection."""
        await self._sending.close()
