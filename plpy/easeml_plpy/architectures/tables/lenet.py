"""LeNet-5 (LeCun et al., 1998) with ReLU and max pooling, fitted to the size of the image.

Convolutions keep the size of the image and are each followed by a halving, so images may be as small as
6 by 6. Kernels are 5 by 5, or 3 by 3 where a side is shorter than 16.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.images.design import augmenting_layers, object_to_unknown_range
from easeml_plpy.architectures.images.hyperparameters import AUGMENTATION
from easeml_plpy.architectures.images.pictures import IMAGE_RANKS, object_to_small_images, picture_of
from easeml_plpy.architectures.size import Size, dense_size
from easeml_plpy.architectures.tables.mlp import activation, add_hidden_layers
from easeml_plpy.architectures.torch_hyperparameters import ACTIVATION, AVERAGING, DROPOUT, TORCH_HYPERPARAMETERS
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn

_SIDE_FOR_WIDE_KERNELS = 16


def build_lenet(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, H, W), (n, C, H, W) or (n, H, W, C) to (n, n_outputs)."""
    from torch import nn

    picture, kernel = picture_of(task), _kernel(task)
    n_channels, height, width = picture.n_channels, picture.height, picture.width
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if picture.is_flat:
        layers["add_channel"] = nn.Unflatten(1, (1, height))
    elif picture.has_channels_last:
        from easeml_plpy.architectures.images.modules import ToPicture

        layers["channels_first"] = ToPicture(picture)
    layers |= augmenting_layers(task, config)
    for index, n_maps in enumerate(_maps(config)):
        layers[f"convolution_{index}"] = nn.Conv2d(n_channels, n_maps, kernel, padding=kernel // 2)
        layers[f"convolution_activation_{index}"] = activation(config)
        layers[f"pool_{index}"] = nn.MaxPool2d(2)
        n_channels, height, width = n_maps, height // 2, width // 2
    layers["flatten"] = nn.Flatten()
    return add_hidden_layers(layers, n_channels * height * width, task, config)


def lenet_size(task: Task, config: Config) -> Size:
    """Return the size of the network that the config asks for."""
    picture = picture_of(task)
    n_channels, height, width = picture.n_channels, picture.height, picture.width
    n_parameters = n_outputs = 0
    for n_maps in _maps(config):
        n_parameters += (n_channels * _kernel(task) ** 2 + 1) * n_maps
        n_outputs += n_maps * height * width
        n_channels, height, width = n_maps, height // 2, width // 2
    dense = dense_size(n_channels * height * width, config.integers("hidden_units"), task)
    return Size(n_parameters + dense.n_parameters, n_outputs + dense.n_outputs_a_row)


def _maps(config: Config) -> tuple[int, int]:
    return 6 * config.integer("width"), 16 * config.integer("width")


def _kernel(task: Task) -> int:
    return 5 if picture_of(task).side >= _SIDE_FOR_WIDE_KERNELS else 3


LENET = Architecture(
    name="lenet",
    trainer="torch",
    input_ranks=IMAGE_RANKS,
    made_for=("image",),
    summary="small convolutional network for images (H, W), (C, H, W) or (H, W, C) of at least 6 by 6",
    hyperparameters=(
        Hyperparameter(
            "width",
            "integer",
            1,
            "the multiple of LeNet-5's 6 and 16 feature maps",
            low=1,
            high=64,
            log=True,
            search=[1, 2, 4],
        ),
        Hyperparameter(
            "hidden_units",
            "integers",
            [120, 84],
            "the width of each layer after the convolutions",
            low=1,
            high=65536,
            max_length=16,
        ),
        ACTIVATION,
        DROPOUT,
        *AUGMENTATION,
        *TORCH_HYPERPARAMETERS,
        AVERAGING,
    ),
    build=build_lenet,
    objection=object_to_small_images("lenet"),
    config_objection=object_to_unknown_range,
    size=lenet_size,
)
