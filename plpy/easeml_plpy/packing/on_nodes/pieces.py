"""On a node: its rows of each block, encoded and packed, for the node that gets the block.

They wait in a temporary table, where those of other nodes arrive: a dataset whose packing fails leaves none behind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from easeml_plpy.columns.block_decoding import BlockDecoder
from easeml_plpy.columns.columns import array_layout, structured
from easeml_plpy.columns.encoding import fields_to_bytes
from easeml_plpy.packing import packing
from easeml_plpy.packing.on_nodes.request import sources_of, target_of
from easeml_plpy.server.session import Command, Session, Statement
from easeml_plpy.server.value_types import Array, Told

POSITIONS = "easeml_segment.array_bytes(array_agg(o.position ORDER BY o.position)) AS positions"
NEW_TABLE = """
CREATE TEMPORARY TABLE easeml_pieces (split text, part integer, block integer, sender integer, n_rows integer,
    positions bytea, inputs bytea, targets bytea) ON COMMIT DROP;
ALTER TABLE pg_temp.easeml_pieces
    ALTER positions SET STORAGE EXTERNAL, ALTER inputs SET STORAGE EXTERNAL, ALTER targets SET STORAGE EXTERNAL
"""
NEW_PIECE = Command(
    "INSERT INTO pg_temp.easeml_pieces VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    ("text", "int4", "int4", "int4", "int4", "bytea", "bytea", "bytea"),
    is_kept=False,
)


class Piece(NamedTuple):
    """Rows of a block that came from one node, and their places in the partition."""

    split: str
    part: int
    block: int
    n_rows: int
    positions: bytes
    inputs: bytes
    targets: bytes


class _Rows(NamedTuple):
    """Rows of one block, as the server sends them."""

    split: str
    part: int
    block: int
    n: int
    positions: bytes
    payload: bytes
    texts: str | None


def pack_pieces(session: Session, message: Told) -> dict[str, Any]:
    """Pack all rows, if there are any here."""
    session.execute(NEW_TABLE)
    if message["tables"] is None:
        return {}
    sources, target = sources_of(message), target_of(message)
    inputs = [source.field for source in sources]
    sql, dictionaries = packing.block_sql(sources, target, message["rows_of_block"], POSITIONS, session.schema)
    statement = Statement(sql, ("text[]",) * len(dictionaries), _Rows, is_kept=False)
    wire, stored = packing.target_types(target)
    decoder = BlockDecoder(inputs, wire)
    for rows in session.each(statement, *dictionaries, at_once=4):
        fields, targets = decoder.decode(rows.payload, rows.texts, rows.n)
        packing.check_values(inputs, fields)
        packed = [fields_to_bytes(fields), targets.astype(stored).tobytes()]
        positions = _positions(rows.positions, rows.n).astype("<i4").tobytes()
        session.run(NEW_PIECE, rows.split, rows.part, rows.block, message["node"], rows.n, positions, *packed)
    return {}


def _positions(payload: bytes, n_rows: int) -> Array:
    """Return the elements of an integer array of the server."""
    layout = np.dtype(array_layout("<i4", 1, n_rows))
    elements: Array = structured(layout, payload, 1)["elements"][0]
    return elements
