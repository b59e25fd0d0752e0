"""Network in Network (Lin et al., 2014): each convolution is followed by two of 1 by 1; means of maps answer."""

from __future__ import annotations

from easeml_plpy.architectures.images.design import Sketch, image_architecture
from easeml_plpy.architectures.images.hyperparameters import dropout
from easeml_plpy.architectures.images.layers import Chain, Conv, Dropout, MaxPool, Shrink, chain


def draw_nin(sketch: Sketch) -> Chain:
    """Return four blocks, the last of which ends in a map for each output."""
    maps = sketch.maps
    first, second, third, fourth, last = sketch.strides(5)

    def block(n_maps: int, kernel: int, stride: int = 1) -> Chain:
        return chain(Conv(maps(n_maps), kernel, stride), Conv(maps(n_maps), 1), Conv(maps(n_maps), 1))

    return chain(
        block(96, sketch.kernel(11), first * second), MaxPool(third),
        block(256, 5), MaxPool(fourth),
        block(384, 3), MaxPool(last),
        Dropout(sketch.config.number("dropout")),
        Conv(maps(1024), 3), Conv(maps(1024), 1), Conv(sketch.n_outputs, 1, has_activation=False),
        Shrink(1),
    )  # fmt: skip


NIN = image_architecture(
    "nin",
    "Network in Network: convolutions followed by ones of 1 by 1, and means of maps as answers, for images",
    draw_nin,
    (dropout(0.5),),
)
