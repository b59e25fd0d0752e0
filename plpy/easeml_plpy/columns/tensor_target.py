"""The target of a dataset whose outputs are tensors, such as pictures and series."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from easeml_plpy.columns.task import TaskKind
from easeml_plpy.server.value_types import JSON, Array, Floats

BYTE_RANGE = (0.0, 255.0)


@dataclass(frozen=True)
class TensorTarget:
    """Tensors of one shape, trained on as (value - mean) / scale; `low` and `high` are the range of the training rows,
    or that of 8-bit values."""

    column: str
    type: str
    dtype: str
    shape: tuple[int, ...]
    mean: float = 0.0
    scale: float = 1.0
    low: float = BYTE_RANGE[0]
    high: float = BYTE_RANGE[1]

    task: ClassVar[TaskKind] = "regression"

    @property
    def n_outputs(self) -> int:
        """The numbers of one tensor."""
        return math.prod(self.shape)

    @property
    def stored_type(self) -> np.dtype[Any]:
        """The little-endian element type in blocks."""
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def is_bytes(self) -> bool:
        """Whether its numbers are whole ones from 0 to 255."""
        return self.dtype == "u1"

    def stored(self, payload: bytes, n_rows: int) -> Array:
        """Return the targets of a block, (n_rows, n_outputs)."""
        return np.frombuffer(payload, self.stored_type).reshape(n_rows, self.n_outputs)

    def numbers(self, stored: Array) -> Array:
        """Return the numbers that statistics are taken of."""
        return stored

    def standard(self, stored: Array) -> Floats:
        """Return targets on the standard scale, on which they are learnt."""
        return ((stored - self.mean) / self.scale).astype(np.float32)

    def raw(self, outputs: Array) -> Array:
        """Return outputs in the target's unit."""
        values: Array = outputs.astype(np.float64) * self.scale + self.mean
        return values.clip(self.low, self.high) if self.is_bytes else values

    def shaped(self, outputs: Array) -> Array:
        """Return the outputs (n_outputs,) of a row in their shape; 8-bit values are rounded."""
        shaped: Array = outputs.reshape(self.shape)
        return shaped.round().astype(np.int64) if self.is_bytes else shaped

    def to_json(self) -> dict[str, JSON]:
        """Return the target as it is stored."""
        base: dict[str, JSON] = {"column": self.column, "type": self.type, "task": self.task, "dtype": self.dtype}
        moments: dict[str, JSON] = {"mean": self.mean, "scale": self.scale, "low": self.low, "high": self.high}
        return {**base, "shape": list(self.shape), **moments}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """Parse what is stored."""
        moments = (entry[key] for key in ("mean", "scale", "low", "high"))
        return cls(entry["column"], entry["type"], entry["dtype"], tuple(entry["shape"]), *moments)
