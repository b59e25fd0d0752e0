"""ResNet-50 (He et al., 2016), with the strides in the middle convolution of a block.

The architecture `resnet` is another: it takes tables.
"""

from __future__ import annotations

from easeml_plpy.architectures.images.design import Sketch, image_architecture
from easeml_plpy.architectures.images.layers import Chain, Conv, Residual, chain
from easeml_plpy.architectures.images.residual import draw_residual


def draw_bottleneck(sketch: Sketch, of_paper: int, stride: int) -> Residual:
    """Return a convolution of 3 by 3 between two of 1 by 1, the last with four times the maps."""
    inner = chain(
        Conv(sketch.maps(of_paper), 1, has_norm=True),
        Conv(sketch.maps(of_paper), 3, stride, has_norm=True),
        Conv(sketch.maps(4 * of_paper), 1, has_norm=True, has_activation=False),
    )
    return Residual(inner, stride)


def draw_resnet50(sketch: Sketch) -> Chain:
    """Return four stages of 3, 4, 6 and 3 blocks."""
    return draw_residual(sketch, (3, 4, 6, 3), draw_bottleneck)


RESNET50 = image_architecture(
    "resnet50", "ResNet-50: sixteen residual blocks of three convolutions, for images", draw_resnet50
)
