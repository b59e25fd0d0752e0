"""Hyperparameters that networks for images share."""

from __future__ import annotations

from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.torch_hyperparameters import (
    AVERAGING,
    CLASS_WEIGHT,
    COSINE_HYPERPARAMETERS,
    LABEL_SMOOTHING,
)

WIDTH = Hyperparameter(
    "width",
    "float",
    1.0,
    "the multiple of the number of feature maps, which is the paper's for sides of 128 and falls with the image",
    low=0.05,
    high=16.0,
    log=True,
    search=[0.5, 1.0, 2.0],
)

FLIP = Hyperparameter(
    "flip",
    "categorical",
    "none",
    "along which axis training mirrors images at random",
    choices=("none", "horizontal", "vertical", "both"),
)

CROP = Hyperparameter("crop", "integer", 0, "by how many pixels training moves images at random", low=0, high=64)

NORMALIZATION = Hyperparameter(
    "normalization",
    "categorical",
    "none",
    "the k of x^k - x^2k, over numbers scaled to 0..1 by the training rows: for images whose numbers span many orders"
    " of magnitude",
    choices=("none", "0.2", "0.4", "0.6", "0.8", "1"),
)

AUGMENTATION = (FLIP, CROP, NORMALIZATION)

IMAGE_TRAINING = (*COSINE_HYPERPARAMETERS, AVERAGING, LABEL_SMOOTHING, CLASS_WEIGHT)
"""How they are trained: averages answer as long as the rate has not fallen far."""


def dropout(default: float) -> Hyperparameter:
    """Return the share that layers before the output silence."""
    return Hyperparameter(
        "dropout",
        "float",
        default,
        "the share of numbers before the dense layers and the output that each step silences",
        low=0.0,
        high=0.95,
        search=[0.0, 0.2, 0.5],
    )
