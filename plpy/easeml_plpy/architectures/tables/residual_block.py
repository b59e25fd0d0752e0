"""A block of a residual network: normalise, widen to twice the width, activate, drop, narrow, and add."""

from __future__ import annotations

import torch
from torch import nn


class ResidualBlock(nn.Module):
    """From float32 (n, width) to the same shape."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        inner = [nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Dropout(dropout)]
        self.inner = nn.Sequential(*inner, nn.Linear(2 * width, width))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows with what the block adds to them."""
        added: torch.Tensor = self.inner(rows)
        return rows + added
