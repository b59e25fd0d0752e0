"""AlexNet (Krizhevsky et al., 2012), in the single-tower form of 2014."""

from __future__ import annotations

from easeml_plpy.architectures.images.design import Sketch, image_architecture
from easeml_plpy.architectures.images.hyperparameters import dropout
from easeml_plpy.architectures.images.layers import Chain, Conv, Dense, Dropout, MaxPool, Shrink, chain


def draw_alexnet(sketch: Sketch, *, has_norm: bool = False) -> Chain:
    """Return five convolutions and three dense layers. The paper's first stride of 4 is a stride and a pooling here."""
    maps, share = sketch.maps, sketch.config.number("dropout")
    first, second, third, fourth, last = sketch.strides(5)
    return chain(
        Conv(maps(64), sketch.kernel(11), first * second, has_norm), MaxPool(third),
        Conv(maps(192), 5, has_norm=has_norm), MaxPool(fourth),
        Conv(maps(384), 3, has_norm=has_norm),
        Conv(maps(256), 3, has_norm=has_norm),
        Conv(maps(256), 3, has_norm=has_norm), MaxPool(last),
        Shrink(7),
        Dropout(share), Dense(maps(4096)), Dropout(share), Dense(maps(4096)),
        Dense(sketch.n_outputs, has_activation=False),
    )  # fmt: skip


ALEXNET = image_architecture(
    "alexnet",
    "AlexNet: five convolutions and three dense layers, for images",
    draw_alexnet,
    (dropout(0.5),),
)
