"""Layers of convolutional networks as values: their kind, their output shape for an input shape, and their size.

A network for images is a `Chain` of these, written down like the table of its paper. The module that trains
(modules.py) and its size, known before torch is imported, are derived from the same chain.

symbol   meaning
Shape    (channels, height, width); (channels, 1, 1) after a layer over all positions
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from easeml_plpy.architectures.size import Size

Shape: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class Conv:
    """A convolution whose maps keep the size of the image, or 1 / `stride` of it; then batch normalisation and ReLU."""

    n_maps: int
    kernel: int
    stride: int = 1
    has_norm: bool = False
    has_activation: bool = True

    def after(self, shape: Shape) -> Shape:
        """Return the shape of what it makes."""
        _, height, width = shape
        return self.n_maps, -(-height // self.stride), -(-width // self.stride)

    def size(self, shape: Shape) -> Size:
        """Return what it holds for inputs of a shape. Normalisation has a scale and a shift in place of the bias."""
        n_parameters = self.n_maps * (shape[0] * self.kernel**2 + 1 + self.has_norm)
        return Size(n_parameters, _numbers(self.after(shape)) * (1 + self.has_norm))


@dataclass(frozen=True)
class MaxPool:
    """The greatest of 3 by 3 numbers around every `stride`-th position."""

    stride: int = 2

    def after(self, shape: Shape) -> Shape:
        """Return the shape of what it makes."""
        channels, height, width = shape
        return channels, -(-height // self.stride), -(-width // self.stride)

    def size(self, shape: Shape) -> Size:
        """Return what it holds."""
        return Size(0, _numbers(self.after(shape)))


@dataclass(frozen=True)
class Shrink:
    """Means over squares, so that each side is `most` at most; `Shrink(1)` leaves one number of each map."""

    most: int

    def kernel(self, shape: Shape) -> tuple[int, int]:
        """Return height and width of a square."""
        return -(-shape[1] // self.most), -(-shape[2] // self.most)

    def after(self, shape: Shape) -> Shape:
        """Return the shape of what it makes."""
        height, width = self.kernel(shape)
        return shape[0], -(-shape[1] // height), -(-shape[2] // width)

    def size(self, shape: Shape) -> Size:
        """Return what it holds."""
        return Size(0, _numbers(self.after(shape)))


@dataclass(frozen=True)
class Dense:
    """A layer from all numbers to `n_units`."""

    n_units: int
    has_activation: bool = True

    def after(self, shape: Shape) -> Shape:
        """Return the shape of what it makes."""
        return self.n_units, 1, 1

    def size(self, shape: Shape) -> Size:
        """Return what it holds."""
        return Size((_numbers(shape) + 1) * self.n_units, self.n_units)


@dataclass(frozen=True)
class Dropout:
    """Silences a share of the numbers at each step."""

    share: float

    def after(self, shape: Shape) -> Shape:
        """Return the shape of what it makes."""
        return shape

    def size(self, shape: Shape) -> Size:
        """Return what it holds."""
        return Size(0, _numbers(shape) if self.share else 0)


@dataclass(frozen=True)
class Chain:
    """Layers one after another."""

    layers: tuple[Layer, ...]

    def shapes(self, shape: Shape) -> list[Shape]:
        """Return the shape before each layer, and after the last."""
        return list(accumulate(self.layers, lambda before, layer: layer.after(before), initial=shape))

    def after(self, shape: Shape) -> Shape:
        """Return the shape of what it makes."""
        return self.shapes(shape)[-1]

    def size(self, shape: Shape) -> Size:
        """Return what it holds."""
        pairs = zip(self.layers, self.shapes(shape), strict=False)
        return _total([layer.size(before) for layer, before in pairs])


@dataclass(frozen=True)
class Branches:
    """Parts that see the same input, and whose maps are concatenated."""

    parts: tuple[Chain, ...]

    def after(self, shape: Shape) -> Shape:
        """Return the shape of what it makes."""
        made = [part.after(shape) for part in self.parts]
        return sum(channels for channels, _, _ in made), made[0][1], made[0][2]

    def size(self, shape: Shape) -> Size:
        """Return what it holds."""
        return _total([part.size(shape) for part in self.parts]) + Size(0, _numbers(self.after(shape)))


@dataclass(frozen=True)
class Residual:
    """A part whose outputs are added to its inputs, then ReLU; a convolution of 1 by 1 fits inputs of another shape."""

    inner: Chain
    stride: int = 1

    def shortcut(self, shape: Shape) -> Conv | None:
        """Return the layer that fits inputs of a shape to the outputs; None if they are added unchanged."""
        n_maps = self.inner.after(shape)[0]
        if self.stride == 1 and n_maps == shape[0]:
            return None
        return Conv(n_maps, 1, self.stride, has_norm=True, has_activation=False)

    def after(self, shape: Shape) -> Shape:
        """Return the shape of what it makes."""
        return self.inner.after(shape)

    def size(self, shape: Shape) -> Size:
        """Return what it holds."""
        fitted = self.shortcut(shape)
        parts = [self.inner.size(shape), *([fitted.size(shape)] if fitted else [])]
        return _total(parts) + Size(0, _numbers(self.after(shape)))


Layer: TypeAlias = Conv | MaxPool | Shrink | Dense | Dropout | Chain | Branches | Residual


def chain(*layers: Layer) -> Chain:
    """Return layers one after another."""
    return Chain(layers)


def _numbers(shape: Shape) -> int:
    return shape[0] * shape[1] * shape[2]


def _total(sizes: Sequence[Size]) -> Size:
    return sum(sizes, Size(0, 0))
