"""On the control server: the places of images that the sessions of the nodes hold, by numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from easeml_plpy.columns.columns import Column
from easeml_plpy.columns.encoder import LabelTarget
from easeml_plpy.packing import source_rows
from easeml_plpy.packing.dealing import SPLITS
from easeml_plpy.packing.image_rows import Labels, Shuffled, shuffle
from easeml_plpy.packing.on_nodes.images_in_memory import IN_ORDER, TOLD_ROW
from easeml_plpy.packing.on_nodes.request import array_from, array_text, pack_request, target_of
from easeml_plpy.packing.on_nodes.source_columns import columns_in, settled_source, type_sql
from easeml_plpy.packing.pack_request import PackRequest
from easeml_plpy.packing.random_places import places_in_split
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Session, Statement, only_column
from easeml_plpy.server.value_types import Array, Told

RANKS = "SELECT row_number() OVER (ORDER BY l::{type}) AS rank FROM unnest($1) WITH ORDINALITY u(l, n) ORDER BY n"


def settle_images(session: Session, message: Told) -> dict[str, Any]:
    """Return what `settle_source` returns, and the place of each row; nothing if the nodes have to use tables."""
    answers = message["found"]
    if not all("rows" in answer for answer in answers):
        return {}
    request = pack_request(message)
    column = columns_in(message)[request.target]
    if not _are_labels(request, column, answers):
        return {}
    settled = settled_source(session, message)
    target = target_of(settled)
    if not isinstance(target, LabelTarget):
        return {}
    rows = [rows_told(answer) for answer in answers]
    labels = _labels(session, column, target, answers, rows)
    everything = np.concatenate(rows)
    shuffled = shuffle(session, request, everything["hash"], everything["k"].copy(), labels, None)
    if shuffled is None:
        return {}
    counts, places = _places(shuffled, request.n_partitions)
    split_places = np.split(places, np.cumsum([len(node_rows) for node_rows in rows])[:-1])
    of_nodes = {answer["segment"]: array_text(part) for answer, part in zip(answers, split_places, strict=True)}
    return settled | {"rows": counts, "row_places": of_nodes}


def rows_told(facts: Told) -> Array:
    """Return the hashes, shuffle keys and codes that a node sent. Raises InvalidData if its counts contradict them."""
    rows = array_from(facts["rows"], TOLD_ROW)
    codes = rows["code"]
    if not 0 < len(rows) == facts["n"] or codes.min() < 0 or codes.max() >= len(facts["labels"]):
        raise InvalidData(f"segment {facts['segment']} tells of other rows than it has", hint="Pack the dataset again.")
    return rows


def _are_labels(request: PackRequest, column: Column, answers: Sequence[Told]) -> bool:
    names = {name for answer in answers for name in answer["labels"]}
    n_rows = sum(answer["n"] for answer in answers)
    is_open = source_rows.is_left_open(request, column)
    return source_rows.task_of(request, column) == "classification" and (
        not is_open or source_rows.are_few(n_rows, len(names))
    )


def _labels(
    session: Session, column: Column, target: LabelTarget, answers: Sequence[Told], rows: Sequence[Array]
) -> Labels:
    """Return the labels of all rows by their codes, and by their ranks in the order of this server."""
    codes_by_label: Mapping[str, int] = {label: code for code, label in enumerate(target.labels)}
    codes = [
        np.array([codes_by_label[name] for name in answer["labels"]], np.int32)[node_rows["code"]]
        for answer, node_rows in zip(answers, rows, strict=True)
    ]
    whole = np.concatenate(codes)
    if "." in column.type:  # an enum, whose labels are in its own order
        return Labels(target.labels, whole, whole)
    ranks: Statement[int] = Statement(RANKS.format(type=type_sql(column.type)), ("text[]",), only_column, is_kept=False)
    return Labels(target.labels, whole, np.array(session.rows(ranks, list(target.labels)))[whole])


def _places(shuffled: Shuffled, n_partitions: int) -> tuple[list[list[Any]], Array]:
    """Return how many rows each split has in each partition; and of each row the place, as one number whose order is
    that of splits by name, partitions and positions.
    """
    ordinals = np.array([IN_ORDER.index(split) for split in SPLITS])[shuffled.splits]
    place = places_in_split(shuffled.splits, shuffled.k)
    numbers = (ordinals.astype(np.int64) << 48) + (place % n_partitions << 32) + place // n_partitions
    distinct, counts = np.unique(numbers >> 32, return_counts=True)
    parts = zip(distinct.tolist(), counts.tolist(), strict=True)
    return [[IN_ORDER[number >> 16], number & 0xFFFF, n] for number, n in parts], numbers
