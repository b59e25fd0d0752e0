"""Common parts of networks from pictures to pictures: their levels, their sizes, and the layout of their outputs.

A level halves the sides of the one before and has twice its maps, up to eight times those of the first. The input is
first resized to the sides of the output if they differ; the last convolution makes the channels of the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.images.pictures import Picture, picture_of, picture_of_shape
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.torch_hyperparameters import COSINE_HYPERPARAMETERS
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn

KERNEL = 3
MOST_TIMES = 8
"""The maps of a level, at most, as a multiple of those of the first."""

N_MAPS = Hyperparameter(
    "n_maps",
    "integer",
    16,
    "the feature maps of the first level; each further level has twice as many, eight times as many at most",
    low=1,
    high=512,
    log=True,
    search=[8, 16, 32],
)
N_LEVELS = Hyperparameter(
    "n_levels",
    "integer",
    3,
    "how often the sides are halved, as far as the picture allows",
    low=1,
    high=6,
    search=[2, 3, 4],
)


@dataclass(frozen=True)
class Levels:
    """Both pictures, and the maps of each level from the widest to the smallest."""

    given: Picture
    wanted: Picture
    maps: tuple[int, ...]

    @classmethod
    def of(cls, task: Task, config: Config) -> Levels:
        """Return the levels that a config asks for and the picture allows."""
        given, target = picture_of(task), picture_of_shape(task.output_shape)
        n_levels = target.n_halvings(config.integer("n_levels"))
        first = config.integer("n_maps")
        return cls(given, target, tuple(first * min(2**level, MOST_TIMES) for level in range(n_levels + 1)))

    def sides(self) -> Iterator[tuple[int, int]]:
        """Yield height and width of each level."""
        height, width = self.wanted.height, self.wanted.width
        for _ in self.maps:
            yield height, width
            height, width = math.ceil(height / 2), math.ceil(width / 2)


def pair_size(n_in: int, n_out: int, sides: tuple[int, int]) -> Size:
    """Return the size of two convolutions with normalisation."""
    n_parameters = KERNEL**2 * n_out * (n_in + n_out) + 4 * n_out
    return Size(n_parameters, 4 * n_out * sides[0] * sides[1])


def last_size(levels: Levels, n_in: int) -> Size:
    """Return the size of the convolution that makes the output."""
    n_out = levels.wanted.n_channels
    return Size(n_in * n_out + n_out, n_out * levels.wanted.height * levels.wanted.width)


def object_to_pictures(name: str) -> Callable[[Task], str | None]:
    """Return an objection: it says why a task is none from pictures to pictures."""

    def objection(task: Task) -> str | None:
        if len(task.output_shape) not in (2, 3):
            return f"{name} returns pictures, not {list(task.output_shape)}"
        if min(picture_of(task).side, picture_of_shape(task.output_shape).side) < 4:
            return f"{name} needs pictures of at least 4 by 4 on both ends"
        return None

    return objection


CLOSENESS = Hyperparameter(
    "closeness",
    "float",
    100.0,
    "what a mean distance of 1 from the wanted picture counts, where fooling the critic counts 1 at most",
    low=0.0,
    high=1e6,
)


def recovery_architecture(
    name: str,
    summary: str,
    network: Callable[[Levels], nn.Module],
    size: Callable[[Levels], Size],
    *,
    trainer: str = "torch",
) -> Architecture:
    """Return an architecture from pictures to pictures, whose network is what `network` makes of its levels."""

    def build(task: Task, config: Config) -> nn.Module:
        return network(Levels.of(task, config))

    def sized(task: Task, config: Config) -> Size:
        return Size(0, task.n_features) + size(Levels.of(task, config))

    return Architecture(
        name=name,
        trainer=trainer,
        summary=summary,
        hyperparameters=(N_MAPS, N_LEVELS, *([CLOSENESS] if trainer == "adversarial" else []), *COSINE_HYPERPARAMETERS),
        build=build,
        tasks=("regression",),
        input_ranks=(2, 3),
        made_for=("image",),
        is_stackable=False,
        objection=object_to_pictures(name),
        size=sized,
        outputs="tensors",
    )
