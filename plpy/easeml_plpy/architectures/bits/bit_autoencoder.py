"""The bit-level auto-encoder of ease.ml (Li et al., VLDB 2018, figure 4), for tensors and series from any input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.bits.design import HYPERPARAMETERS, N_WRITTEN, Reading, reader_size
from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.torch_hyperparameters import COSINE_HYPERPARAMETERS
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn


def build_bit_autoencoder(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, *input_shape) to (n, n_outputs)."""
    from easeml_plpy.architectures.bits.modules import BitAutoencoder, BitReader

    wide = config.integer("width")
    return BitAutoencoder(BitReader(Reading.of(task), wide, config.number("dropout")), wide, task.n_outputs)


def bit_autoencoder_size(task: Task, config: Config) -> Size:
    """Return its size."""
    wide, n_bits = config.integer("width"), task.n_outputs * N_WRITTEN
    return reader_size(task, wide) + Size((wide + 1) * 2 * wide + (2 * wide + 1) * n_bits, 2 * wide + n_bits)


BIT_AUTOENCODER = Architecture(
    name="bit_autoencoder",
    trainer="torch",
    summary="GRU over the bits of any input, and a writer of bits: tensors, and series, out of anything",
    hyperparameters=(*HYPERPARAMETERS, *COSINE_HYPERPARAMETERS),
    build=build_bit_autoencoder,
    tasks=("regression",),
    size=bit_autoencoder_size,
    made_for=("table", "series", "tree"),
    is_stackable=False,
    outputs="tensors",
)
