"""Packed rows on their way to the node that needs them: from the control server, or from the node that has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from easeml_db.errors import NotFound, TrialFailed
from easeml_db.postgres.node_store import other_store
from easeml_db.postgres.transfers import NOTHING, Connection, Part, Place, copy_rows

DATA = """
SELECT d.encoder::text AS encoder, p.home_segment_id FROM easeml.datasets d JOIN easeml.partitions p USING (dataset_id)
WHERE dataset_id = %s AND p.partition_number = %s
"""
HAS_PART = "SELECT FROM easeml_segment.partitions WHERE dataset_id = %s AND split = %s AND partition_number = %s"
NEW_DATASET = "INSERT INTO easeml_segment.datasets (dataset_id, encoder) VALUES (%s, %s::jsonb) ON CONFLICT DO NOTHING"
NEW_PARTITION = """
INSERT INTO easeml_segment.partitions (dataset_id, split, partition_number) VALUES (%s, %s, %s)
ON CONFLICT DO NOTHING RETURNING dataset_id
"""
BLOCKS_OUT: LiteralString = """
SELECT {lead} dataset_id, split, partition_number, block_number, n_rows, inputs, targets FROM {schema}.version_blocks
WHERE dataset_id = {dataset} AND split = {split} AND partition_number = {part}
    AND block_number BETWEEN {first} AND {last} {and_here}
"""
LAST_BLOCK: LiteralString = """
SELECT coalesce(max(block_number), -1) AS last FROM {schema}.version_blocks
WHERE dataset_id = {dataset} AND split = {split} AND partition_number = {part} {and_here}
"""
BLOCKS_AT_ONCE = 32  # of about 2 MB: whoever looks after the session sees a new statement, however many rows there are
BLOCKS_IN: LiteralString = """
easeml_segment.version_blocks (dataset_id, split, partition_number, block_number, n_rows, inputs, targets)
"""


@dataclass(frozen=True)
class PartData:
    """The encoder of a dataset, and the segment that was given the blocks; None: they are on the control server."""

    encoder: str
    home_segment_id: int | None


async def read_data(control: Connection, part: Part) -> PartData:
    """Return what is known of the rows of a part. Raises NotFound."""
    cursor = await control.execute(DATA, [part.dataset_id, part.partition_number])
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"dataset {part.dataset_id} is gone")
    return PartData(**row)


async def has_part(node: Connection, part: Part) -> bool:
    """Say whether a node has the rows of a part."""
    if (store := other_store(node)) is not None:
        return await store.has_part(part)
    cursor = await node.execute(HAS_PART, [part.dataset_id, part.split, part.partition_number])
    return bool(await cursor.fetchall())


def lost_part(segment: str, part: Part) -> TrialFailed:
    """Say that the only rows are gone."""
    return TrialFailed(
        f"segment {segment} has lost the rows of partition {part.partition_number}, which are nowhere else",
        hint="Its server was set up anew: pack the dataset again with easeml.refresh_dataset.",
    )


async def bring_part(source: Place, node: Connection, part: Part, encoder: str) -> int:
    """Copy packed rows to a node that may have them already; return the bytes."""
    async with node.transaction():
        if not await _begin_part(node, part, encoder):
            return 0
        return await _copy_blocks(source, node, part)


async def _begin_part(node: Connection, part: Part, encoder: str) -> bool:
    """Note that a node has the rows of a part; return False where it has them already."""
    if (store := other_store(node)) is not None:
        return await store.begin_part(part, encoder)
    await node.execute(NEW_DATASET, [part.dataset_id, encoder])
    values = [part.dataset_id, part.split, part.partition_number]
    return await (await node.execute(NEW_PARTITION, values)).fetchone() is not None


async def _copy_blocks(source: Place, node: Connection, part: Part) -> int:
    """Copy the blocks of a part, some at a time; return the bytes."""
    there, here = other_store(source.connection), other_store(node)
    of_part = {
        "and_here": NOTHING if there is None else there.and_here,
        "schema": sql.Identifier(source.schema),
        "dataset": sql.Literal(part.dataset_id),
        "split": sql.Literal(part.split),
        "part": sql.Literal(part.partition_number),
    }
    row = await (await source.connection.execute(sql.SQL(LAST_BLOCK).format(**of_part))).fetchone()
    n_bytes = 0
    for first in range(0, (row or {"last": -1})["last"] + 1, BLOCKS_AT_ONCE):
        some = {
            "lead": NOTHING if here is None else here.lead,
            "first": sql.Literal(first),
            "last": sql.Literal(first + BLOCKS_AT_ONCE - 1),
        }
        query = sql.SQL(BLOCKS_OUT).format(**of_part, **some)
        into = sql.SQL(BLOCKS_IN) if here is None else here.block_columns
        n_bytes += await copy_rows(source.connection, node, query, into)
    return n_bytes
