"""GoogLeNet (Szegedy et al., 2015): modules of convolutions of several sizes side by side.

It has batch normalisation, as in its second version, which makes the intermediate classifiers unnecessary.
"""

from __future__ import annotations

from easeml_plpy.architectures.images.design import Sketch, image_architecture
from easeml_plpy.architectures.images.hyperparameters import dropout
from easeml_plpy.architectures.images.layers import Branches, Chain, Conv, Dense, Dropout, MaxPool, Shrink, chain

INCEPTIONS = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)  # fmt: skip
"""Table 1 of the paper, by stage: maps of 1x1; before 3x3, 3x3; before 5x5, 5x5; and after the pooling."""


def draw_googlenet(sketch: Sketch) -> Chain:
    """Return the stem, nine modules in three stages, and one dense layer."""
    maps = sketch.maps
    first, second, third, fourth, last = sketch.strides(5)

    def conv(n_maps: int, kernel: int, stride: int = 1) -> Conv:
        return Conv(maps(n_maps), kernel, stride, has_norm=True)

    def inception(one: int, before: int, three: int, reduced: int, five: int, pooled: int) -> Branches:
        return Branches(
            (
                chain(conv(one, 1)),
                chain(conv(before, 1), conv(three, 3)),
                chain(conv(reduced, 1), conv(five, 5)),
                chain(MaxPool(1), conv(pooled, 1)),
            )
        )

    early, middle, late = ([inception(*sizes) for sizes in stage] for stage in INCEPTIONS)
    return chain(
        conv(64, sketch.kernel(7), first), MaxPool(second),
        conv(64, 1), conv(192, 3), MaxPool(third),
        *early, MaxPool(fourth), *middle, MaxPool(last), *late,
        Shrink(1), Dropout(sketch.config.number("dropout")), Dense(sketch.n_outputs, has_activation=False),
    )  # fmt: skip


GOOGLENET = image_architecture(
    "googlenet",
    "GoogLeNet: nine modules of convolutions of several sizes side by side, with batch normalisation, for images",
    draw_googlenet,
    (dropout(0.2),),
)
