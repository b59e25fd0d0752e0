"""A block as packing reads it from the source, decoded into fields: numbers and codes at once, free texts by tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from easeml_plpy.columns import columns as columns_of
from easeml_plpy.columns.coded_fields import TextField
from easeml_plpy.columns.encoder import Field
from easeml_plpy.columns.tokens import Tokenizer
from easeml_plpy.server.value_types import Array


class PackedRows(NamedTuple):
    """The rows of a block, decoded, and its place. `keys` or `hashes` name the rows: arrays as SQL writes them."""

    split: str
    part: int
    block: int
    n: int
    keys: str | None
    hashes: str | None
    fields: Sequence[Array]
    targets: Array


class BlockDecoder:
    """Decodes blocks of these inputs, with targets of a numpy type."""

    def __init__(self, inputs: Sequence[Field], target: str) -> None:
        self._inputs, self._target = inputs, target
        self._sent = [field for field in inputs if not isinstance(field, TextField)]
        self._tokenizers = [(field, Tokenizer(field.analyzer)) for field in inputs if isinstance(field, TextField)]

    def decode(self, payload: bytes, texts: str | None, n_rows: int) -> tuple[list[Array], Array]:
        """Return the fields and the targets of a block. Raises InvalidData."""
        numbers, targets = columns_of.decode_rows(self._sent, self._target, payload, n_rows)
        columns = columns_of.text_columns(texts, len(self._tokenizers), n_rows)
        tokens = [
            tokenizer.rows(column, field.width)
            for (field, tokenizer), column in zip(self._tokenizers, columns, strict=True)
        ]
        sent, tokenized = iter(numbers), iter(tokens)
        return [next(tokenized if isinstance(field, TextField) else sent) for field in self._inputs], targets
