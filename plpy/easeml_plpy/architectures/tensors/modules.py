"""Torch modules for networks whose outputs are tensors."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from easeml_plpy.architectures.images.modules import BatchNorm, ToPicture
from easeml_plpy.architectures.images.pictures import Picture
from easeml_plpy.architectures.tensors.design import KERNEL, Levels


def pair(n_in: int, n_out: int) -> nn.Sequential:
    """Return two convolutions that keep the sides, each with normalisation and ReLU."""
    layers: list[nn.Module] = []
    for before in (n_in, n_out):
        convolution = nn.Conv2d(before, n_out, KERNEL, padding=KERNEL // 2, bias=False)
        layers += [convolution, BatchNorm(n_out), nn.ReLU()]
    return nn.Sequential(*layers)


class PictureToPicture(nn.Module):
    """From rows to flattened rows, over levels that are joined (`has_skips`, a U-Net) or not (an auto-encoder)."""

    def __init__(self, levels: Levels, *, has_skips: bool) -> None:
        super().__init__()
        self._target, self._has_skips = levels.wanted, has_skips
        self.picture = ToPicture(levels.given)
        before = (levels.given.n_channels, *levels.maps)
        self.down = nn.ModuleList(pair(*channels) for channels in zip(before, levels.maps, strict=False))
        steps = reversed(list(pairwise(levels.maps)))
        self.up = nn.ModuleList(pair(small + large * has_skips, large) for large, small in steps)
        self.last = nn.Conv2d(levels.maps[0], levels.wanted.n_channels, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        maps = resized(self.picture(rows), (self._target.height, self._target.width))
        kept = []
        for level, layers in enumerate(self.down):
            maps = layers(functional.max_pool2d(maps, 2, ceil_mode=True) if level else maps)
            kept.append(maps)
        for layers, beside in zip(self.up, reversed(kept[:-1]), strict=True):
            maps = functional.interpolate(maps, size=beside.shape[2:], mode="nearest")
            maps = layers(torch.cat([maps, beside], dim=1) if self._has_skips else maps)
        return flattened(self.last(maps), self._target)


def resized(maps: torch.Tensor, sides: tuple[int, int]) -> torch.Tensor:
    """Return maps (n, channels, height, width) with these sides."""
    if tuple(maps.shape[2:]) == sides:
        return maps
    return functional.interpolate(maps, size=sides, mode="bilinear", align_corners=False)


def flattened(maps: torch.Tensor, picture: Picture) -> torch.Tensor:
    """Return (n, numbers), in the order in which a tensor of that picture has them."""
    return (maps.permute(0, 2, 3, 1) if picture.has_channels_last else maps).flatten(1)
