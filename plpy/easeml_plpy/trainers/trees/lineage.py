"""The epochs of a trial, identified by their content, and what a process keeps of their margins.

A trial that hops comes back to a session that knew it some epochs ago. The sum of its earlier epochs for a row has not
changed, whichever session trained them, so only the newer trees are added. This only saves time: all that is kept can
be made again from the rows and the state. Rows are identified by the tensor that holds them, which is kept alive with
the margins: otherwise its id could become that of other rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from easeml_plpy.server.cache import Bounded
from easeml_plpy.server.value_types import Array

if TYPE_CHECKING:
    import torch

KEPT_BYTES = 1 << 29
MARK_BYTES = 16


@dataclass(frozen=True)
class Margins:
    """The sums of the trees of a trial's first epochs: float64 (n, n_margins)."""

    inputs: torch.Tensor
    n_epochs: int
    values: Array

    @property
    def nbytes(self) -> int:
        """Memory of the rows and the margins."""
        return int(self.inputs.nbytes + self.values.nbytes)


_MARGINS: Bounded[Margins] = Bounded(KEPT_BYTES, lambda kept: kept.nbytes)


class Lineage:
    """Hashes of the epochs so far: each covers the content of its epoch and of all before."""

    def __init__(self) -> None:
        self._marks: list[bytes] = []

    def add(self, parts: Iterable[bytes | memoryview]) -> None:
        """Add an epoch, by all that its margins follow from."""
        mark = blake2b(self._marks[-1] if self._marks else b"", digest_size=MARK_BYTES)
        for part in parts:
            mark.update(part)
        self._marks.append(mark.digest())

    def kept(self, what: str, inputs: torch.Tensor) -> Margins | None:
        """Return the margins of these rows after the latest epoch of which some were kept.

        They leave the cache: nobody asks for them again, because the present epoch keeps its own.
        """
        candidates = (_MARGINS.pop((what, mark, id(inputs))) for mark in reversed(self._marks))
        return next((margins for margins in candidates if margins is not None), None)

    def keep(self, what: str, inputs: torch.Tensor, values: Array) -> None:
        """Keep the margins of these rows after all epochs."""
        _MARGINS.put((what, self._marks[-1], id(inputs)), Margins(inputs, len(self._marks), values))
