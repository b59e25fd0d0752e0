"""A convolutional auto-encoder (Masci et al., 2011): down to a small picture of many maps, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.tensors.design import Levels, last_size, pair_size, recovery_architecture

if TYPE_CHECKING:
    from torch import nn


def build_autoencoder(levels: Levels) -> nn.Module:
    """Return the network."""
    from easeml_plpy.architectures.tensors.modules import PictureToPicture

    return PictureToPicture(levels, has_skips=False)


def autoencoder_size(levels: Levels) -> Size:
    """Return its size."""
    maps, sides = levels.maps, list(levels.sides())
    down = zip((levels.given.n_channels, *maps), maps, sides, strict=False)
    up = zip(maps, maps[1:], sides, strict=False)
    parts = [pair_size(*level) for level in down] + [pair_size(small, large, side) for large, small, side in up]
    return sum(parts, last_size(levels, maps[0]))


AUTOENCODER = recovery_architecture(
    "autoencoder", "convolutional auto-encoder: down to a small picture of many maps and back",
    build_autoencoder, autoencoder_size,
)  # fmt: skip
