"""U-Net (Ronneberger et al., 2015): a network from pictures to pictures whose levels are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.tensors.design import Levels, last_size, pair_size, recovery_architecture

if TYPE_CHECKING:
    from torch import nn


def build_unet(levels: Levels) -> nn.Module:
    """Return the network."""
    from easeml_plpy.architectures.tensors.modules import PictureToPicture

    return PictureToPicture(levels, has_skips=True)


def unet_size(levels: Levels) -> Size:
    """Return its size."""
    maps, sides = levels.maps, list(levels.sides())
    down = zip((levels.given.n_channels, *maps), maps, sides, strict=False)
    up = zip(maps, maps[1:], sides, strict=False)
    parts = [pair_size(*level) for level in down] + [pair_size(large + small, large, side) for large, small, side in up]
    return sum(parts, last_size(levels, maps[0]))


UNET = recovery_architecture(
    "unet", "U-Net: convolutions down to small pictures and back, with joins from level to level",
    build_unet, unet_size,
)  # fmt: skip
