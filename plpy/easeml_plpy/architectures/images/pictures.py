"""Interpretation of an array as a picture: which of its sizes are sides, and which is the number of channels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from easeml_plpy.columns.task import Task

SMALLEST_SIDE = 6
IMAGE_RANKS = (2, 3)


@dataclass(frozen=True)
class Picture:
    """The sizes of an image; `has_channels_last` for (H, W, C), `is_flat` for (H, W)."""

    n_channels: int
    height: int
    width: int
    has_channels_last: bool = False
    is_flat: bool = False

    @property
    def side(self) -> int:
        """The shorter side."""
        return min(self.height, self.width)

    def n_halvings(self, most: int) -> int:
        """Return how often the sides can be halved until the shorter one is 2, and `most` times at most."""
        return min(most, int(math.log2(self.side / 1.5)))


def picture_of(task: Task) -> Picture:
    """Return how an input of rank 2 or 3 is read."""
    return picture_of_shape(task.input_shape)


def picture_of_shape(shape: tuple[int, ...]) -> Picture:
    """Return how an array of two or three sizes is read.

    Channels come last if the last size is too small for a side and smaller than the first; else they come first.
    """
    if len(shape) == 2:
        height, width = shape
        return Picture(1, height, width, is_flat=True)
    first, middle, last = shape
    if last < SMALLEST_SIDE and last < first:
        return Picture(last, first, middle, has_channels_last=True)
    return Picture(first, middle, last)


def object_to_small_images(name: str) -> Callable[[Task], str | None]:
    """Return an objection for the architecture of that name: it says why an image is too small."""

    def objection(task: Task) -> str | None:
        picture = picture_of(task)
        if picture.side >= SMALLEST_SIDE:
            return None
        sizes = f"{picture.height} by {picture.width}"
        return f"{name} needs images of at least {SMALLEST_SIDE} by {SMALLEST_SIDE}, got {sizes}"

    return objection
