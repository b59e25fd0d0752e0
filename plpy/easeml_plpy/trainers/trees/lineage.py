"""The epochs of a trial, identified by their content, and the margins kept for them.

A trial that hops comes back to a session that knew it some epochs ago. The sum of its earlier epochs for a row has not
changed, whichever session trained them, so only the newer trees are added.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from easeml_plpy.server.value_types import Array
from easeml_plpy.trainers.trees.kept_margins import Margins, keep_margins, kept_margins

if TYPE_CHECKING:
    import torch

MARK_BYTES = 16


class Lineage:
    """Marks of the epochs so far: each follows from all that was in its epoch and in those before."""

    def __init__(self) -> None:
        self._marks: list[bytes] = []

    def add(self, parts: Iterable[bytes | memoryview]) -> None:
        """Add an epoch, by all that its margins follow from."""
        mark = blake2b(self._marks[-1] if self._marks else b"", digest_size=MARK_BYTES)
        for part in parts:
            mark.update(part)
        self._marks.append(mark.digest())

    def kept(self, what: str, inputs: torch.Tensor) -> Margins | None:
        """Return what was kept for these rows of the latest epoch of which something was."""
        for mark in reversed(self._marks):
            found = kept_margins((what, mark), inputs)
            if found is not None:
                return found
        return None

    def keep(self, what: str, inputs: torch.Tensor, values: Array) -> None:
        """Keep what all epochs add up to for these rows."""
        keep_margins((what, self._marks[-1]), Margins(inputs, len(self._marks), values))
