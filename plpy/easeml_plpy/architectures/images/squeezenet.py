"""SqueezeNet 1.1 (Iandola et al., 2016): few parameters, since convolutions of 3 by 3 see few maps."""

from __future__ import annotations

from easeml_plpy.architectures.images.design import Sketch, image_architecture
from easeml_plpy.architectures.images.hyperparameters import dropout
from easeml_plpy.architectures.images.layers import Branches, Chain, Conv, Dropout, MaxPool, Shrink, chain

FIRES = (((16, 64), (16, 64)), ((32, 128), (32, 128)), ((48, 192), (48, 192), (64, 256), (64, 256)))
"""By stage: maps that are squeezed to, and maps of each kernel that they are expanded to."""


def draw_squeezenet(sketch: Sketch) -> Chain:
    """Return the stem, eight fire modules in three stages, and a map for each output."""
    maps = sketch.maps
    first, second, third, last = sketch.strides(4)

    def fire(squeezed: int, expanded: int) -> Chain:
        parts = (chain(Conv(maps(expanded), kernel)) for kernel in (1, 3))
        return chain(Conv(maps(squeezed), 1), Branches(tuple(parts)))

    early, middle, late = ([fire(*sizes) for sizes in stage] for stage in FIRES)
    return chain(
        Conv(maps(64), 3, first), MaxPool(second), *early, MaxPool(third), *middle, MaxPool(last), *late,
        Dropout(sketch.config.number("dropout")),
        Conv(sketch.n_outputs, 1, has_activation=False),
        Shrink(1),
    )  # fmt: skip


SQUEEZENET = image_architecture(
    "squeezenet",
    "SqueezeNet: few parameters, since wide convolutions see few maps, for images",
    draw_squeezenet,
    (dropout(0.5),),
)
