"""Packed rows on their way to the node that needs them: from the control server, or from the node that has them."""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.errors import NotFound, TrialFailed
from easeml_db.postgres.nodes.node_store import Connection, NodeStore, Part, Source

DATA = """
SELECT d.encoder::text AS encoder, p.home_segment_id FROM easeml.datasets d JOIN easeml.partitions p USING (dataset_id)
WHERE dataset_id = %s AND p.partition_number = %s
"""
BLOCKS_AT_ONCE = 32  # of about 2 MB: the watch for stuck sessions sees a new statement, however many rows there are


@dataclass(frozen=True)
class PartData:
    """The encoder of a dataset, and the segment that was given the blocks; None: they are on the control server."""

    encoder: str
    home_segment_id: int | None


async def read_data(control: Connection, part: Part) -> PartData:
    """Return the encoder and the home of a part. Raises NotFound."""
    cursor = await control.execute(DATA, [part.dataset_id, part.partition_number])
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"dataset {part.dataset_id} is gone")
    return PartData(**row)


def lost_part(segment: str, part: Part) -> TrialFailed:
    """Return the error that the only copy of the rows is gone."""
    return TrialFailed(
        f"segment {segment} has lost the rows of partition {part.partition_number}, which are nowhere else",
        hint="Its server was set up anew: pack the dataset again with easeml.refresh_dataset.",
    )


async def bring_part(source: Source, node: NodeStore, part: Part, encoder: str) -> int:
    """Copy packed rows to a node that may have them already; return the bytes."""
    async with node.connection.transaction():
        if not await node.begin_part(part, encoder):
            return 0
        return await _copy_blocks(source, node, part)


async def _copy_blocks(source: Source, node: NodeStore, part: Part) -> int:
    """Copy the blocks of a part, some at a time; return the bytes."""
    n_bytes = 0
    for first in range(0, await source.last_block(part) + 1, BLOCKS_AT_ONCE):
        arrival = node.arriving_blocks(source.blocks_of(part, first, first + BLOCKS_AT_ONCE - 1))
        n_bytes += await node.receive(source.connection, arrival)
    return n_bytes
