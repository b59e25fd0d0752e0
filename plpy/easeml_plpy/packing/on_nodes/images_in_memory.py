"""Labelled images that fit into the memory of the nodes' sessions: each node keeps its own, and the control server
deals them by numbers alone.

The way of one server (image_rows.py), cut in two. A node reads its rows and sends the hash, the shuffle key and the
label of each. The control server returns their places. Only rows that go to another node pass through a temporary
table. In all other cases (rows of some other kind, more than fit, a class with few rows) the steps with tables follow,
which also say what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from easeml_plpy.columns.encoder import Target, TensorField
from easeml_plpy.columns.encoding import fields_to_bytes
from easeml_plpy.packing import packing, source_rows
from easeml_plpy.packing.dealing import SPLITS
from easeml_plpy.packing.image_rows import HELD_BYTES, ImageRows, Labels, may_be_images, read_images
from easeml_plpy.packing.on_nodes.pieces import NEW_PIECE, NEW_TABLE, Piece
from easeml_plpy.packing.on_nodes.request import array_from, array_text, target_of
from easeml_plpy.packing.on_nodes.tables import Opened, open_tables
from easeml_plpy.packing.on_nodes.tenant_rows import RELATION
from easeml_plpy.server.session import Kept, Session, Statement, only_column
from easeml_plpy.server.value_types import Array, Told

MOST_ROWS = 2 << 20
"""On all nodes together: each row takes 27 bytes of the messages, 54 MB in all."""
MOST_BYTES = 8 * HELD_BYTES
"""Of a table that may fit: an array takes at most eight times as many bytes there."""
SIZE: Statement[int] = Statement("SELECT pg_table_size($1) AS n_bytes", ("regclass",), only_column)
TOLD_ROW = np.dtype([("hash", "<i8"), ("k", "<i8"), ("code", "<i4")])
IN_ORDER = tuple(sorted(SPLITS))


@dataclass
class Held:
    """The images that a session keeps, and the places of its rows in ascending order."""

    images: ImageRows | None = None
    places: Array | None = None
    rows: Array | None = None


HELD: Kept[Held] = Kept(Held)


def hold(session: Session, message: Told) -> dict[str, Any]:
    """Read the images of a node into its session; return facts about them and what decides the place of each row;
    nothing if they do not fit.
    """
    opened = open_tables(session, message)
    if len(opened.tables) != 1 or not may_be_images(opened.wanted, opened.columns, opened.inputs):
        return {}
    if session.row(SIZE, opened.tables[0].relation) > MOST_BYTES:
        return {}
    with opened.copied(session) as source:
        images = _read(session, opened, source, MOST_ROWS // len(message["places"]))
    if images is None:
        return {}
    session.kept(HELD).images = images
    n = len(images.k)
    rows = np.empty(n, TOLD_ROW)
    rows["hash"], rows["k"], rows["code"] = images.hashes, images.k, images.labels.codes
    shapes = {
        k: [[[math.prod(field.shape), n]], 0] for k, field in enumerate(images.fields) if isinstance(field, TensorField)
    }
    facts = {"n": n, "n_known": n, "labels": images.labels.names, "shapes": shapes}
    return facts | opened.facts() | {"rows": array_text(rows)}


def _read(session: Session, opened: Opened, source: str, most_rows: int) -> ImageRows | None:
    nameless = replace(opened.wanted, source=source)
    sql = source_rows.rows_sql(session, nameless, opened.columns, opened.inputs)
    request = replace(nameless, relation=session.row(RELATION, source))
    return read_images(session, request, opened.columns, opened.inputs, sql, most_rows)


def pieces_for(session: Session, message: Told, *, is_own: bool) -> Iterator[Piece]:
    """Yield the pieces that a node keeps for its own partitions, or those for others, in the order of blocks."""
    held = session.kept(HELD)
    if held.images is None:
        return
    if held.places is None or held.rows is None:  # sent once
        places = array_from(message["row_places"], np.dtype("<i8"))
        held.rows = np.argsort(places)
        held.places = places[held.rows]
    codes = _codes(held.images.labels, target_of(message))
    positions, parts = held.places & 0xFFFFFFFF, held.places >> 32
    blocks = positions // message["rows_of_block"]
    starts = np.flatnonzero(np.append(True, (np.diff(parts) != 0) | (np.diff(blocks) != 0)))
    for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
        split, part = divmod(int(parts[start]), 1 << 16)
        if (part in message["parts"]) is is_own:
            rows = held.rows[start:end]
            fields = [values.take(rows, axis=0) for values in held.images.values]
            packing.check_values(held.images.fields, fields)
            packed = fields_to_bytes(fields), codes[rows].tobytes()
            at = positions[start:end].astype("<i4").tobytes()
            yield Piece(IN_ORDER[split], part, int(blocks[start]), len(rows), at, *packed)


def pack_image_pieces(session: Session, message: Told) -> dict[str, Any]:
    """Pack the rows that other nodes get, if there are any here."""
    session.execute(NEW_TABLE)
    for piece in pieces_for(session, message, is_own=False):
        session.run(NEW_PIECE, *piece[:3], message["node"], *piece[3:])
    return {}


def let_go(session: Session) -> None:
    """Keep no images any more."""
    held = session.kept(HELD)
    held.images = held.places = held.rows = None


def _codes(labels: Labels, target: Target) -> Array:
    """Return the codes of rows among the labels of all nodes."""
    codes_by_label = {label: code for code, label in enumerate(getattr(target, "labels", ()))}
    return np.array([codes_by_label[name] for name in labels.names], "<i4")[labels.codes]
