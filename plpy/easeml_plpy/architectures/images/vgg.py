"""VGG (Simonyan and Zisserman, 2015): many convolutions of 3 by 3, and a pooling after each stage."""

from __future__ import annotations

from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.images.design import Sketch, image_architecture
from easeml_plpy.architectures.images.hyperparameters import dropout
from easeml_plpy.architectures.images.layers import Chain, Conv, Dense, Dropout, MaxPool, Shrink, chain

STAGES = {"11": (1, 1, 2, 2, 2), "13": (2, 2, 2, 2, 2), "16": (2, 2, 3, 3, 3), "19": (2, 2, 4, 4, 4)}
"""Convolutions of each stage, by the number of layers with weights (configurations A, B, D and E of the paper)."""
STAGE_MAPS = (64, 128, 256, 512, 512)

DEPTH = Hyperparameter(
    "depth", "categorical", "11", "the number of layers with weights", choices=tuple(STAGES), search=["11", "16"]
)
BATCH_NORM = Hyperparameter(
    "batch_norm", "categorical", True, "whether each convolution is followed by batch normalisation",
    choices=(True, False),
)  # fmt: skip


def draw_vgg(sketch: Sketch) -> Chain:
    """Return five stages and three dense layers."""
    maps, share, has_norm = sketch.maps, sketch.config.number("dropout"), sketch.config.flag("batch_norm")
    stages = zip(STAGE_MAPS, STAGES[sketch.config.text("depth")], sketch.strides(5, late=False), strict=True)
    return chain(
        *(
            chain(*[Conv(maps(n_maps), 3, has_norm=has_norm)] * n_layers, MaxPool(stride))
            for n_maps, n_layers, stride in stages
        ),
        Shrink(7),
        Dense(maps(4096)), Dropout(share), Dense(maps(4096)), Dropout(share),
        Dense(sketch.n_outputs, has_activation=False),
    )  # fmt: skip


VGG = image_architecture(
    "vgg",
    "VGG: stages of convolutions of 3 by 3, with batch normalisation by default, and three dense layers, for images",
    draw_vgg,
    (DEPTH, BATCH_NORM, dropout(0.5)),
)
