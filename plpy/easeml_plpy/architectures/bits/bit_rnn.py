"""The bit-level recurrent network of ease.ml (Li et al., VLDB 2018, figure 4), for programs that match no other
template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.bits.design import HYPERPARAMETERS, Reading, reader_size
from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.series.design import SERIES_TRAINING
from easeml_plpy.architectures.size import Size
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn


def build_bit_rnn(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, *input_shape) to (n, n_outputs)."""
    from easeml_plpy.architectures.bits.modules import BitClassifier, BitReader

    wide = config.integer("width")
    return BitClassifier(BitReader(Reading.of(task), wide, config.number("dropout")), wide, task.n_outputs)


def bit_rnn_size(task: Task, config: Config) -> Size:
    """Return its size."""
    wide = config.integer("width")
    return reader_size(task, wide) + Size((wide + 1) * task.n_outputs, task.n_outputs)


BIT_RNN = Architecture(
    name="bit_rnn",
    trainer="torch",
    summary="GRU over the bits of any input: numbers, arrays, series and trees",
    hyperparameters=(*HYPERPARAMETERS, *SERIES_TRAINING),
    build=build_bit_rnn,
    size=bit_rnn_size,
    made_for=("table", "series", "tree"),
    is_stackable=False,
)
