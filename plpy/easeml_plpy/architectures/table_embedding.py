"""The first layer of networks for tables: every number and every category becomes a small vector.

Numbers come as positions among their knots (view `table`). A position fills the bins below it, which is the piecewise
linear encoding of Gorishniy et al. ("On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022,
section 3.2); a linear layer of its own per number, with a linear term beside it, makes the vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from easeml_plpy.architectures.table_size import TOKEN_SIZE, is_placed, is_plain, text_columns
from easeml_plpy.layout import Layout, ViewColumn

UNIT_SPREAD = math.sqrt(12.0)
"""Scales a number spread evenly over an interval of length 1 to unit variance."""


class TableEmbedding(nn.Module):
    """From rows of the view `table`, float32 (n, columns), to float32 (n, width).

    Numbers without knots, and flags, go through as they are.
    """

    def __init__(self, layout: Layout, size: int) -> None:
        super().__init__()
        self._plain = [k for k, column in enumerate(layout) if is_plain(column)]
        numbers = [k for k, column in enumerate(layout) if is_placed(column)]
        categories = [k for k, column in enumerate(layout) if column.kind == "category"]
        texts = text_columns(layout)
        self._columns = [*([numbers] if numbers else []), *([categories] if categories else []), *texts]
        self.parts = nn.ModuleList()
        if numbers:
            self.parts.append(_PlacedNumbers([layout[k] for k in numbers], size))
        if categories:
            self.parts.append(_Categories([layout[k] for k in categories], size))
        self.parts.extend(_Words(layout[columns[0]].cardinality, TOKEN_SIZE) for columns in texts)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the vectors of each row, one after another."""
        made = [rows[:, self._plain]] if self._plain else []
        made += [part(rows[:, columns]) for part, columns in zip(self.parts, self._columns, strict=True)]
        return torch.cat(made, dim=1)


class _PlacedNumbers(nn.Module):
    """Positions among knots, from 0 to 1, (n, numbers), to (n, numbers * size)."""

    def __init__(self, columns: Sequence[ViewColumn], size: int) -> None:
        super().__init__()
        n_bins = [column.cardinality for column in columns]
        bound = 1 / math.sqrt(max(n_bins))
        self.bins = nn.Parameter(torch.empty(len(columns), max(n_bins), size).uniform_(-bound, bound))
        self.slope = nn.Parameter(torch.empty(len(columns), size).normal_(std=0.3))
        self.bias = nn.Parameter(torch.zeros(len(columns), size))
        self.register_buffer("first", torch.arange(max(n_bins), dtype=torch.float32), persistent=True)
        self.register_buffer("n_bins", torch.tensor(n_bins, dtype=torch.float32), persistent=True)
        self.first: torch.Tensor
        self.n_bins: torch.Tensor

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        filled = ((positions * self.n_bins).unsqueeze(2) - self.first).clamp(0.0, 1.0)
        steps = torch.einsum("nfb,fbd->nfd", filled, self.bins)
        centred = (positions - 0.5) * UNIT_SPREAD
        return torch.relu(steps + centred.unsqueeze(2) * self.slope + self.bias).flatten(1)


class _Categories(nn.Module):
    """Codes, (n, categories), to (n, categories * size), from one table of vectors for all."""

    def __init__(self, columns: Sequence[ViewColumn], size: int) -> None:
        super().__init__()
        counts = torch.tensor([column.cardinality for column in columns])
        self.register_buffer("first", torch.cumsum(counts, dim=0) - counts, persistent=True)
        self.first: torch.Tensor
        self.table = nn.Embedding(int(sum(column.cardinality for column in columns)), size)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.table(codes.long() + self.first)
        return vectors.flatten(1)


class _Words(nn.Module):
    """Ids of words, (n, longest text) with -1 where there is none, to the mean of their vectors, (n, size)."""

    def __init__(self, n_buckets: int, size: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(n_buckets + 1, size, mode="mean", padding_idx=n_buckets)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        whole = ids.long()
        vectors: torch.Tensor = self.bag(torch.where(whole < 0, self.bag.num_embeddings - 1, whole))
        return vectors
