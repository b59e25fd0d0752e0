"""What easeml.create_dataset asks to be packed, parsed once."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from .errors import InvalidArgument
from .task import MAX_RANK, TaskKind
from .value_types import JSON


@dataclass(frozen=True)
class PackRequest:
    """The arguments of easeml.create_dataset, with the source as an oid and as a name quoted for SQL.

    None: `task` follows from the target's type, `input_shape` from the arrays, `block_rows` from the size of a row.
    """

    name: str
    version: int
    relation: int
    source: str
    inputs: tuple[str, ...]
    target: str
    n_partitions: int
    validation_fraction: float
    test_fraction: float
    seed: int
    task: TaskKind | None
    input_shape: tuple[int, ...] | None
    block_rows: int | None

    @classmethod
    def from_text(cls, text: str) -> PackRequest:
        """Parse the jsonb argument of easeml.pack_dataset. Raises InvalidArgument."""
        fields = json.loads(text)
        shape = fields.pop("input_shape")
        if fields["target"] is None:
            raise InvalidArgument("target: expected a column, got NULL")
        if shape is not None and len(shape) > MAX_RANK:
            raise InvalidArgument(f"input_shape: expected at most {MAX_RANK} sizes, got {len(shape)}")
        if shape is not None and (not shape or any(size is None or size < 1 for size in shape)):
            raise InvalidArgument(f"input_shape: expected sizes of 1 or more, got {shape}")
        inputs = tuple(fields.pop("inputs") or ())
        return cls(**fields, inputs=inputs, input_shape=None if shape is None else tuple(shape))

    def to_json(self) -> dict[str, JSON]:
        """Return the request as the statement that records the dataset reads it."""
        return asdict(self)
