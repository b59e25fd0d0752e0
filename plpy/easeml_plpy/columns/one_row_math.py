"""One row of numbers in plain Python: for one row, numpy's calls take longer than its computation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from easeml_plpy.server.value_types import Array


class RowNumbers(Sequence[Array]):
    """The fields of one row, each float64 (1,), with NaN for a missing number; `values` are the numbers."""

    __slots__ = ("values",)

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, place: int) -> Array: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Array]: ...

    def __getitem__(self, place: int | slice) -> Array | Sequence[Array]:
        values = self.values[place]
        return RowNumbers(values) if isinstance(values, list) else np.array([values])

    def are_finite(self) -> bool:
        """Return whether none is infinite."""
        return math.isfinite(sum(self.values)) or not (math.inf in self.values or -math.inf in self.values)


def numbers_of(row: Sequence[Array]) -> npt.NDArray[np.float64]:
    """Return the numbers of a row whose fields are numbers, float64 (fields,)."""
    return np.array(row.values) if isinstance(row, RowNumbers) else np.concatenate(row)
