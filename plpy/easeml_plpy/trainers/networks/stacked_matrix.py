"""The parameters of many networks of one shape as a matrix: one row per network, its parameters one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RowsOfNumbers:
    """Where each parameter lies in a row; `n_rows` networks."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    n_rows: int
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, parameters: Mapping[str, torch.Tensor], n_rows: int) -> RowsOfNumbers:
        """Return the layout of networks with parameters like these."""
        first = next(iter(parameters.values()))
        shapes = tuple(parameter.shape for parameter in parameters.values())
        return cls(tuple(parameters), shapes, n_rows, first.device, first.dtype)

    @property
    def n_numbers(self) -> int:
        """Numbers of a network."""
        return sum(shape.numel() for shape in self.shapes)

    def zeros(self) -> torch.Tensor:
        """Return (n_rows, n_numbers) zeros."""
        return torch.zeros(self.n_rows, self.n_numbers, device=self.device, dtype=self.dtype)

    @torch.no_grad()
    def filled(self, parts: Sequence[Sequence[torch.Tensor | None]]) -> torch.Tensor:
        """Return rows made of each network's tensors, in the order of the names; zeros for a missing tensor."""
        rows = self.zeros()
        for place, tensors in enumerate(parts):
            for target, part in zip(self.parts(rows, place), tensors, strict=False):
                if part is not None:
                    target.copy_(part)
        return rows

    def parts(self, rows: torch.Tensor, place: int) -> list[torch.Tensor]:
        """Return the tensors of one network, views of its row."""
        return [part.view(shape) for part, shape in zip(self._split(rows[place]), self.shapes, strict=True)]

    def stacked(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return, by name, each parameter of all networks, (n_rows, *shape): views of the rows that gradients reach."""
        pieces = zip(self.names, self.shapes, self._split(rows), strict=True)
        return {name: piece.view(self.n_rows, *shape).detach().requires_grad_() for name, shape, piece in pieces}

    def joined(self, parts: Iterable[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        """Write tensors of shape (n_rows, *shape), in the order of the names, into rows."""
        return torch.cat([part.reshape(self.n_rows, -1) for part in parts], dim=1, out=rows)

    def _split(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.split(rows, [shape.numel() for shape in self.shapes], dim=-1)
