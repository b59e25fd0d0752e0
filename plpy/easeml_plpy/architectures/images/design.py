"""Design of a network for images: its layers, in the sizes that the given image allows.

Papers design their networks for images of about 224 by 224. Here a network halves an image only as often as its size
allows, and has fewer maps for smaller images: as many as the paper for sides of 128 or more, proportionally fewer
below, but at least a fifth. `width` multiplies that. So small images cost little, and a large one gets the network of
the paper.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.images.hyperparameters import AUGMENTATION, IMAGE_TRAINING, WIDTH
from easeml_plpy.architectures.images.layers import Chain, Shape
from easeml_plpy.architectures.images.pictures import IMAGE_RANKS, Picture, object_to_small_images, picture_of
from easeml_plpy.architectures.size import Size
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn

FULL_SIDE, LEAST_SHARE = 128, 0.2
LEAST_MAPS = 8
FLIPPED = {"none": (), "horizontal": (3,), "vertical": (2,), "both": (2, 3)}


@dataclass(frozen=True)
class Sketch:
    """The quantities on which the layers of a network depend."""

    picture: Picture
    config: Config
    n_outputs: int

    def maps(self, of_paper: int) -> int:
        """Return how many maps, or units, replace a number of them in the paper: a multiple of 8."""
        share = min(1.0, max(LEAST_SHARE, self.picture.side / FULL_SIDE)) * self.config.number("width")
        return max(LEAST_MAPS, LEAST_MAPS * round(of_paper * share / LEAST_MAPS))

    def kernel(self, of_paper: int) -> int:
        """Return the side of a kernel over the image itself: odd, and a fifth of the image at most."""
        return min(of_paper, max(3, self.picture.side // 5 // 2 * 2 + 1))

    def strides(self, n_places: int, *, late: bool = True) -> list[int]:
        """Return 2 for each place of the network where it halves the image, else 1.

        If there are more places than halvings, the first places are skipped; with `late` false, the last.
        """
        n_halvings = self.picture.n_halvings(n_places)
        kept = [2] * n_halvings
        spare = [1] * (n_places - n_halvings)
        return spare + kept if late else kept + spare


def image_architecture(
    name: str, summary: str, layers: Callable[[Sketch], Chain], hyperparameters: tuple[Hyperparameter, ...] = ()
) -> Architecture:
    """Return an architecture whose network is what `layers` draws; it ends in one number for each output."""

    def sketch(task: Task, config: Config) -> tuple[Chain, Shape]:
        picture = picture_of(task)
        return layers(Sketch(picture, config, task.n_outputs)), (picture.n_channels, picture.height, picture.width)

    def build(task: Task, config: Config) -> nn.Module:
        from torch import nn

        from easeml_plpy.architectures.images.modules import network

        made, shape = sketch(task, config)
        named = OrderedDict(first_layers(task, config), network=network(made, shape), flatten=nn.Flatten())
        return nn.Sequential(named)

    def size(task: Task, config: Config) -> Size:
        made, shape = sketch(task, config)
        return Size(0, task.n_features) + made.size(shape)

    return Architecture(
        name=name,
        trainer="torch",
        summary=summary,
        hyperparameters=(WIDTH, *hyperparameters, *AUGMENTATION, *IMAGE_TRAINING),
        build=build,
        input_ranks=IMAGE_RANKS,
        made_for=("image",),
        is_stackable=False,
        objection=object_to_small_images(name),
        config_objection=object_to_unknown_range,
        size=size,
    )


def first_layers(task: Task, config: Config) -> dict[str, nn.Module]:
    """Return what is done to rows before the network proper, by name."""
    from easeml_plpy.architectures.images.modules import ToPicture

    return {"picture": ToPicture(picture_of(task)), **augmenting_layers(task, config)}


def augmenting_layers(task: Task, config: Config) -> dict[str, nn.Module]:
    """Return what changes images as the config asks, by name; nothing by default."""
    from easeml_plpy.architectures.images.augmentation import Crop, Flip, Normalise

    layers: dict[str, nn.Module] = {}
    if config.text("normalization") != "none" and task.input_range is not None:
        layers["normalise"] = Normalise(float(config.text("normalization")), *task.input_range)
    if FLIPPED[config.text("flip")]:
        layers["flip"] = Flip(FLIPPED[config.text("flip")])
    if config.integer("crop"):
        layers["crop"] = Crop(config.integer("crop"))
    return layers


def object_to_unknown_range(task: Task, config: Config) -> str | None:
    """Return why images cannot be scaled to 0..1, or None."""
    if config.text("normalization") == "none" or task.input_range is not None:
        return None
    return "normalization needs the range of the images, which this dataset was packed without: refresh it"
