"""The first layer of networks for tables: every number and every category becomes a small vector.

Numbers come as positions among their knots (row form `table`). A position fills the bins below it, which is the
piecewise linear encoding of Gorishniy et al. ("On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS
2022, section 3.2); a linear layer of its own per number, with a linear term beside it, makes the vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from easeml_plpy.architectures.tables.table_size import (
    TOKEN_SIZE,
    UNIT_SPREAD,
    is_placed,
    is_plain,
    n_known_tokens,
    text_columns,
)
from easeml_plpy.columns.layout import FormColumn, Layout

TOKEN_SPREAD = 0.05
"""Standard deviation of the vectors of tokens at first: a text sums many."""


class TableEmbedding(nn.Module):
    """From rows of the row form `table`, float32 (n, columns), to float32 (n, width).

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
        self.parts.extend(_Tokens(n_known_tokens(layout[columns[0]])) for columns in texts)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the vectors of each row, one after another."""
        made = [rows[:, self._plain]] if self._plain else []
        made += [part(rows[:, columns]) for part, columns in zip(self.parts, self._columns, strict=True)]
        return torch.cat(made, dim=1)


class _PlacedNumbers(nn.Module):
    """Positions among knots, from 0 to 1, (n, numbers), to (n, numbers * size)."""

    def __init__(self, columns: Sequence[FormColumn], size: int) -> None:
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

    def __init__(self, columns: Sequence[FormColumn], size: int) -> None:
        super().__init__()
        counts = torch.tensor([column.cardinality for column in columns])
        self.register_buffer("first", torch.cumsum(counts, dim=0) - counts, persistent=True)
        self.first: torch.Tensor
        self.table = nn.Embedding(int(sum(column.cardinality for column in columns)), size)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.table(codes.long() + self.first)
        return vectors.flatten(1)


class _Tokens(nn.Module):
    """Ids of tokens, the commonest first, (n, longest text) with -1 where there is none, to the sum of their vectors,
    (n, TOKEN_SIZE). Rare tokens have none."""

    def __init__(self, n_tokens: int) -> None:
        super().__init__()
        self._n_tokens = n_tokens
        self.bag = nn.EmbeddingBag(n_tokens + 1, TOKEN_SIZE, mode="sum", padding_idx=n_tokens)
        nn.init.normal_(self.bag.weight, std=TOKEN_SPREAD)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the sums."""
        whole = ids.long()
        is_known = (whole >= 0) & (whole < self._n_tokens)
        vectors: torch.Tensor = self.bag(torch.where(is_known, whole, self._n_tokens))
        return vectors


class WideAndDeep(nn.Module):
    """Adds a linear layer beside the hidden ones (Cheng et al., 2016): of texts, most is said by words one by one."""

    def __init__(self, first: nn.Module, deep: nn.Module, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.first, self.deep, self.wide = first, deep, nn.Linear(n_features, n_outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        embedded = self.first(rows)
        outputs: torch.Tensor = self.deep(embedded) + self.wide(embedded)
        return outputs
