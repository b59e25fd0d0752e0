"""The part of a dataset's training rows that is needed to know their distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from easeml_plpy.columns.encoder import Encoder
from easeml_plpy.columns.encoding import fields_from_bytes, targets_from_bytes
from easeml_plpy.drift.bins import Bins
from easeml_plpy.drift.columns import Compared, bins_of, compared_columns, values_of
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Session, Statement
from easeml_plpy.server.value_types import Array

MOST_ROWS = 100_000
MOST_BYTES = 128 << 20


class Block(NamedTuple):
    """A block as it is stored."""

    n_rows: int
    inputs: bytes
    targets: bytes


# Rows are in the order of a hash, so the first of each partition are as good as any.
BLOCKS = Statement(
    "SELECT n_rows, inputs, targets FROM {schema}.version_blocks WHERE dataset_id = $1 AND split = 'train'"
    " ORDER BY block_number, partition_number",
    ("int8",),
    Block,
)


def trained_bins(session: Session, dataset_id: int, encoder: Encoder, *, has_target: bool) -> list[Bins]:
    """Return the bins of the inputs, and of the target if it is compared. Raises NotAllowed without rows."""
    compared = compared_columns(encoder, has_target=has_target)
    parts: list[list[Array]] = []
    n_rows = n_bytes = 0
    for block in session.each(BLOCKS, dataset_id):
        parts.append(block_values(encoder, compared, block, has_target=has_target))
        n_rows, n_bytes = n_rows + block.n_rows, n_bytes + len(block.inputs)
        if n_rows >= MOST_ROWS or n_bytes >= MOST_BYTES:
            break
    if not parts:
        raise NotAllowed("the dataset was imported: it has no training rows to compare with")
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return [bins_of(field, values) for field, values in zip(compared, columns, strict=True)]


def block_values(encoder: Encoder, compared: Sequence[Compared], block: Block, *, has_target: bool) -> list[Array]:
    """Return the values of a block by column."""
    stored = [*fields_from_bytes(encoder, block.inputs, block.n_rows)]
    if has_target:
        stored.append(targets_from_bytes(encoder.target, block.targets, block.n_rows))
    return [values_of(field, part) for field, part in zip(compared, stored, strict=True)]
