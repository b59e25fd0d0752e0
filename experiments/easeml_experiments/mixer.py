"""An example for easeml.register_architecture: a small MLP-Mixer (Tolstikhin et al., 2021) for pictures.

It mixes patches, then channels, by turns; a patch is a fourth of the shorter side.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class ChannelsFirst(nn.Module):
    """From (n, height, width, channels) to (n, channels, height, width)."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Move the channels."""
        return rows.movedim(-1, 1)


class Mixing(nn.Module):
    """One block over (n, channels, patches): each patch learns from the others, then each channel."""

    def __init__(self, n_channels: int, n_patches: int) -> None:
        super().__init__()
        self.of_patches = nn.Sequential(nn.LayerNorm(n_patches), *_dense(n_patches))
        self.of_channels = nn.Sequential(nn.LayerNorm(n_channels), *_dense(n_channels))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Mix, and add what went in."""
        rows = rows + self.of_patches(rows)
        mixed: torch.Tensor = rows + self.of_channels(rows.transpose(1, 2)).transpose(1, 2)
        return mixed


def build(input_shape: Sequence[int], n_outputs: int, *, n_blocks: int, n_channels: int) -> nn.Module:
    """Return a network from (n, height, width, channels) to (n, n_outputs)."""
    height, width, depth = input_shape
    side = max(1, min(height, width) // 4)
    n_patches = (height // side) * (width // side)
    blocks = [Mixing(n_channels, n_patches) for _ in range(n_blocks)]
    return nn.Sequential(
        ChannelsFirst(), nn.Conv2d(depth, n_channels, side, side), nn.Flatten(2), *blocks,
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(n_channels, n_outputs),
    )  # fmt: skip


def _dense(width: int) -> tuple[nn.Module, ...]:
    return nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
