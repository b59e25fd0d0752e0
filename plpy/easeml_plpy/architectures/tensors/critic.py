"""The size of a critic, which judges for each patch of a picture whether it is real."""

from __future__ import annotations

from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.tensors.design import KERNEL, Levels

MOST_HALVINGS = 2


def critic_maps(levels: Levels) -> tuple[int, ...]:
    """Return the feature maps of its halvings of the sides: as many as the generator has, two at most."""
    return levels.maps[: max(1, min(MOST_HALVINGS, len(levels.maps) - 1))]


def critic_size(n_channels: int, levels: Levels) -> Size:
    """Return its size, which judges a real picture and one that was made."""
    size, before = Size(0, 0), n_channels
    height, width = levels.wanted.height, levels.wanted.width
    for n_maps in critic_maps(levels):
        height, width = -(-height // 2), -(-width // 2)
        size += Size((KERNEL**2 * before + 1) * n_maps, 2 * n_maps * height * width)
        before = n_maps
    return size + Size(KERNEL**2 * before + 1, 2 * height * width)
