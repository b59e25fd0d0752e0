"""On a node: its rows of each block, encoded and packed, for the node that gets the block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import packing
from ..block_decoding import BlockDecoder
from ..columns import array_layout, structured
from ..encoding import fields_to_bytes
from ..session import Command, Session, Statement
from ..value_types import Array
from .request import Told, sources_of, target_of

POSITIONS = "easeml_segment.array_bytes(array_agg(o.position ORDER BY o.position)) AS positions"
COLUMNS = "(dataset_id, split, partition_number, block_number, sender, n_rows, positions, inputs, targets)"
OWN = Command(
    f"INSERT INTO easeml_segment.pieces {COLUMNS} VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    ("int8", "text", "int4", "int4", "int4", "int4", "bytea", "bytea", "bytea"),
)
AWAY = Command(OWN.sql.replace("easeml_segment.pieces", "pg_temp.easeml_pieces"), OWN.types, is_kept=False)
NEW_TABLE = "CREATE TEMPORARY TABLE easeml_pieces (LIKE easeml_segment.pieces) ON COMMIT DROP"


class _Rows(NamedTuple):
    """Rows of one block, as the server sends them."""

    split: str
    part: int
    block: int
    n: int
    positions: bytes
    payload: bytes
    texts: str | None


def pack_pieces(session: Session, told: Told) -> dict[str, Any]:
    """Pack all rows: those of own partitions stay here, all others wait in a temporary table. Return the number of
    bytes.
    """
    sources, target = sources_of(told), target_of(told)
    inputs = [source.field for source in sources]
    sql, dictionaries = packing.block_sql(sources, target, told["rows_of_block"], POSITIONS, session.schema)
    statement = Statement(sql, ("text[]",) * len(dictionaries), _Rows, is_kept=False)
    wire, stored = packing.target_types(target)
    decoder, own, n_bytes = BlockDecoder(inputs, wire), frozenset(told["parts"]), 0
    session.execute(NEW_TABLE)
    for rows in session.each(statement, *dictionaries, at_once=4):
        fields, targets = decoder.decode(rows.payload, rows.texts, rows.n)
        packing.check_values(inputs, fields)
        packed = [fields_to_bytes(fields), targets.astype(stored).tobytes()]
        place = (told["dataset_id"], rows.split, rows.part, rows.block, told["node"], rows.n)
        positions = _positions(rows.positions, rows.n).astype("<i4").tobytes()
        session.run(OWN if rows.part in own else AWAY, *place, positions, *packed)
        n_bytes += sum(map(len, packed))
    return {"n_bytes": n_bytes}


def _positions(payload: bytes, n_rows: int) -> Array:
    """Return the elements of an integer array of the server."""
    layout = np.dtype(array_layout("<i4", 1, n_rows))
    elements: Array = structured(layout, payload, 1)["elements"][0]
    return elements
