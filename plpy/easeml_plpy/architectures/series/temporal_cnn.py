"""A temporal convolutional network (Bai et al., 2018): causal convolutions, each reaching twice as far back."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.series.design import series_architecture, series_of, width
from easeml_plpy.architectures.size import Size
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn

KERNEL = 3


def n_blocks(n_steps: int) -> int:
    """Return how many blocks the last step needs to see all of a series."""
    return max(1, math.ceil(math.log2((n_steps - 1) / (2 * (KERNEL - 1)) + 1)))


def _widths(task: Task, config: Config) -> list[int]:
    steps, channels = series_of(task)
    return [channels, *[config.integer("width")] * n_blocks(steps)]


def build_temporal_cnn(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, steps) or (n, steps, channels) to (n, n_outputs)."""
    from easeml_plpy.architectures.series.modules import CausalBlock, TemporalConvolutions

    blocks = [
        CausalBlock(before, after, KERNEL, 2**number, config.number("dropout"))
        for number, (before, after) in enumerate(pairwise(_widths(task, config)))
    ]
    return TemporalConvolutions(blocks, config.integer("width"), task.n_outputs, is_unequal=task.objects is not None)


def temporal_cnn_size(task: Task, config: Config) -> Size:
    """Return the size of the network that the config asks for."""
    pairs = list(pairwise(_widths(task, config)))
    convolutions = sum(((before + after) * KERNEL + 2) * after for before, after in pairs)
    fitted = sum((before + 1) * after for before, after in pairs if before != after)
    wide = config.integer("width")
    made = series_of(task).n_steps * 3 * wide * len(pairs)
    return Size(convolutions + fitted + (2 * wide + 1) * task.n_outputs, task.n_features + made + task.n_outputs)


TEMPORAL_CNN = series_architecture(
    "temporal_cnn",
    "temporal convolutional network: causal convolutions that reach back to the first step of a series",
    (width(32, "the number of feature maps of each block"),),
    build_temporal_cnn,
    temporal_cnn_size,
)
