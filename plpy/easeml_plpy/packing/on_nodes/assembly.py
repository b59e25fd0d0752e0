"""On a node: assembles blocks from the pieces that nodes have sent, and computes what each adds to the statistics."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

import numpy as np

from easeml_plpy.columns.encoder import Encoder, Field
from easeml_plpy.columns.encoding import fields_from_bytes, fields_to_bytes, targets_from_bytes
from easeml_plpy.columns.target_statistics import folds_of
from easeml_plpy.packing.on_nodes.block_facts import facts_to_bytes
from easeml_plpy.packing.on_nodes.images_in_memory import let_go, pieces_for
from easeml_plpy.packing.on_nodes.pieces import Piece
from easeml_plpy.packing.on_nodes.request import fields_of, target_of
from easeml_plpy.packing.packing_statistics import PackingStatistics
from easeml_plpy.server.errors import InvalidData
from easeml_plpy.server.session import Command, Session, Statement
from easeml_plpy.server.value_types import Array, Told

PIECES = Statement(
    """
SELECT split, part, block, n_rows, positions, inputs, targets FROM pg_temp.easeml_pieces
WHERE part = ANY ($1) ORDER BY split, part, block, sender
""",
    ("int4[]",),
    Piece,
    is_kept=False,
)
NEW_BLOCK = Command(
    "INSERT INTO easeml_segment.version_blocks (dataset_id, split, partition_number, block_number, n_rows, inputs,"
    " targets) VALUES ($1, $2, $3, $4, $5, $6, $7)",
    ("int8", "text", "int4", "int4", "int4", "bytea", "bytea"),
)
NEW_PART = Command(
    "INSERT INTO easeml_segment.partitions (dataset_id, split, partition_number) SELECT $1, s, $2"
    " FROM unnest(ARRAY['train', 'validation', 'test']) s",
    ("int8", "int4"),
)
NEW_FACTS = Command("INSERT INTO pg_temp.easeml_facts VALUES ($1, $2, $3)", ("int4", "int4", "bytea"), is_kept=False)


def assemble(session: Session, message: Told) -> dict[str, Any]:
    """Write the blocks of this node's partitions; return their sizes and checksums. Raises InvalidData."""
    assembly = _Assembly(session, message)
    session.execute("CREATE TEMPORARY TABLE easeml_facts (part integer, block integer, facts bytea) ON COMMIT DROP")
    sent = session.each(PIECES, message["parts"], at_once=4)
    pieces = heapq.merge(sent, pieces_for(session, message, is_own=True), key=_place)
    for _, block in itertools.groupby(pieces, key=_place):
        assembly.write(list(block))
    let_go(session)
    for part in message["parts"]:
        session.run(NEW_PART, message["dataset_id"], part)
    return {"checksums": assembly.statistics.checksums, "n_bytes": assembly.statistics.n_bytes, "rows": assembly.rows()}


def _place(piece: Piece) -> tuple[str, int, int]:
    return piece.split, piece.part, piece.block


class _Assembly:
    """The blocks of a node, one after another."""

    def __init__(self, session: Session, message: Told) -> None:
        self._session, self._message = session, message
        self._inputs: list[Field] = fields_of(message)
        self._encoder = Encoder(tuple(self._inputs), (), target_of(message))
        self._block_rows: int = message["rows_of_block"]
        self._n_before = _rows_before(message)
        self.statistics = PackingStatistics(self._inputs, self._encoder.target, message["n_train_rows"])

    def rows(self) -> list[list[Any]]:
        """Return the rows of each split in each partition, as [split, partition, rows]."""
        return [[split, part, n] for (split, part), n in sorted(self.statistics.n_rows.items())]

    def write(self, pieces: list[Piece]) -> None:
        """Store a block; of training rows, also what it adds to the statistics."""
        split, part, number = pieces[0][:3]
        first = number * self._block_rows
        fields, targets = self._joined(pieces, first)
        packed = [fields_to_bytes(fields), targets.tobytes()]
        self._session.run(NEW_BLOCK, self._message["dataset_id"], split, part, number, len(targets), *packed)
        self.statistics.count(split, part, len(targets), packed)
        if split == "train":
            folds = folds_of(first, len(targets))
            facts = self.statistics.look(fields, targets, folds, self._n_before[part] + first)
            self._session.run(NEW_FACTS, part, number, facts_to_bytes(facts))

    def _joined(self, pieces: list[Piece], first: int) -> tuple[list[Array], Array]:
        """Return the rows of a block in their order. Raises InvalidData."""
        positions = np.concatenate([np.frombuffer(piece.positions, "<i4") for piece in pieces])
        order = np.argsort(positions)
        if (positions[order] != np.arange(first, first + len(positions))).any():
            raise InvalidData("a block lacks rows that were sent", hint="The dataset is packed again by itself.")
        parts = [fields_from_bytes(self._encoder, piece.inputs, piece.n_rows) for piece in pieces]
        targets = [targets_from_bytes(self._encoder.target, piece.targets, piece.n_rows) for piece in pieces]
        if len(pieces) == 1:
            return parts[0], targets[0]
        return [np.concatenate(columns)[order] for columns in zip(*parts, strict=True)], np.concatenate(targets)[order]


def _rows_before(message: Told) -> dict[int, int]:
    """Return, by partition, the number of training rows in the partitions before it."""
    train = sorted((part, n) for split, part, n in message["rows"] if split == "train")
    sums = itertools.accumulate((n for _, n in train), initial=0)
    return {part: before for (part, _), before in zip(train, sums, strict=False)}
