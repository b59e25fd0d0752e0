"""Changes to images before a network sees them: ranges flattened or stretched, and random flips and crops.

Random numbers come from torch's generator on the CPU, which the seed of a pass sets: a replay draws the same ones, on
every device. Only training draws.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Normalise(nn.Module):
    """Scale numbers to 0..1, take f_k(x) = x^k - x^2k (Li et al., ease.ml, 2018), and scale the result to -1..1.

    Small k tell numbers apart that lie many orders of magnitude below the largest. `low` and `high` are the least and
    the greatest number of the training rows.
    """

    def __init__(self, exponent: float, low: float, high: float) -> None:
        super().__init__()
        self._exponent, self._low, self._width = exponent, low, (high - low) or 1.0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of the same shape."""
        powers = ((rows - self._low) / self._width).clamp(0.0, 1.0) ** self._exponent
        return 8 * (powers - powers**2) - 1  # the greatest f is 1/4


class Flip(nn.Module):
    """Mirrors each image along each of some dimensions, or not."""

    def __init__(self, dimensions: tuple[int, ...]) -> None:
        super().__init__()
        self._dimensions = dimensions

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, channels, height, width)."""
        for dimension in self._dimensions if self.training else ():
            is_flipped = (torch.rand(len(rows), 1, 1, 1) < 0.5).to(rows.device)
            rows = torch.where(is_flipped, rows.flip(dimension), rows)
        return rows


class Crop(nn.Module):
    """Shifts each image by up to `most` pixels along both sides; the edge is repeated where the image ends."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, channels, height, width)."""
        if not self.training:
            return rows
        n, _, height, width = rows.shape
        padded = functional.pad(rows, [self._most] * 4, mode="replicate")
        down, right = torch.randint(2 * self._most + 1, (2, n, 1)).to(rows.device)
        vertical = (down + torch.arange(height, device=rows.device)).view(n, 1, height, 1)
        horizontal = (right + torch.arange(width, device=rows.device)).view(n, 1, 1, width)
        images = torch.arange(n, device=rows.device).view(n, 1, 1, 1)
        channels = torch.arange(rows.shape[1], device=rows.device).view(1, -1, 1, 1)
        return padded[images, channels, vertical, horizontal]
