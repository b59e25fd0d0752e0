"""ResNet-18 (He et al., 2016). The architecture `resnet` is another: it takes tables."""

from __future__ import annotations

from easeml_plpy.architectures.images.design import Sketch, image_architecture
from easeml_plpy.architectures.images.layers import Chain, Conv, Residual, chain
from easeml_plpy.architectures.images.residual import draw_residual


def draw_block(sketch: Sketch, of_paper: int, stride: int) -> Residual:
    """Return two convolutions of 3 by 3."""
    n_maps = sketch.maps(of_paper)
    inner = chain(Conv(n_maps, 3, stride, has_norm=True), Conv(n_maps, 3, has_norm=True, has_activation=False))
    return Residual(inner, stride)


def draw_resnet18(sketch: Sketch) -> Chain:
    """Return four stages of two blocks."""
    return draw_residual(sketch, (2, 2, 2, 2), draw_block)


RESNET18 = image_architecture(
    "resnet18", "ResNet-18: eight residual blocks of two convolutions, for images", draw_resnet18
)
