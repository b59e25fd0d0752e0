"""AlexNet with batch normalisation after each convolution (Ioffe and Szegedy, 2015)."""

from __future__ import annotations

from easeml_plpy.architectures.images.alexnet import draw_alexnet
from easeml_plpy.architectures.images.design import Sketch, image_architecture
from easeml_plpy.architectures.images.hyperparameters import dropout
from easeml_plpy.architectures.images.layers import Chain


def draw_bn_alexnet(sketch: Sketch) -> Chain:
    """Return AlexNet with normalised convolutions."""
    return draw_alexnet(sketch, has_norm=True)


BN_ALEXNET = image_architecture(
    "bn_alexnet",
    "AlexNet with batch normalisation after each convolution, for images",
    draw_bn_alexnet,
    (dropout(0.5),),
)
