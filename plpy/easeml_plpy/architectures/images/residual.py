"""Common parts of residual networks for images (He et al., 2016): a stem, four stages of blocks, and means of maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from easeml_plpy.architectures.images.design import Sketch
from easeml_plpy.architectures.images.layers import Chain, Conv, Dense, MaxPool, Residual, Shrink, chain

STAGE_MAPS = (64, 128, 256, 512)


def draw_residual(sketch: Sketch, n_blocks: Sequence[int], block: Callable[[Sketch, int, int], Residual]) -> Chain:
    """Return the network with a number of blocks in each stage; `block(sketch, n_maps, stride)` draws one."""
    first, second, *strides = sketch.strides(5)
    stages = [
        block(sketch, n_maps, stride if number == 0 else 1)
        for n_maps, n_of_stage, stride in zip(STAGE_MAPS, n_blocks, (1, *strides), strict=True)
        for number in range(n_of_stage)
    ]
    return chain(
        Conv(sketch.maps(64), sketch.kernel(7), first, has_norm=True), MaxPool(second), *stages,
        Shrink(1), Dense(sketch.n_outputs, has_activation=False),
    )  # fmt: skip
