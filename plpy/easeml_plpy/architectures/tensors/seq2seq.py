"""seq2seq with attention (Bahdanau et al., 2015): a recurrent network reads a series, another one writes a series.

The writer starts with zeros, and reads its own output of the step before, both in training and in prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.series.design import series_of
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.torch_hyperparameters import COSINE_HYPERPARAMETERS
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn

WIDTH = Hyperparameter(
    "width",
    "integer",
    64,
    "the numbers that reader and writer keep from step to step",
    low=2,
    high=2048,
    log=True,
    search=[32, 64, 128],
)
MOST_STEPS = 2000
"""Of what comes out: each is written by itself."""


def build_seq2seq(task: Task, config: Config) -> nn.Module:
    """Build a network from (n, steps, numbers) to (n, n_outputs)."""
    from easeml_plpy.architectures.tensors.recurrent import ReadAndWrite

    n_in, is_unequal = series_of(task).n_channels, task.objects is not None
    return ReadAndWrite(n_in, task.output_shape, config.integer("width"), is_unequal=is_unequal)


def seq2seq_size(task: Task, config: Config) -> Size:
    """Return its size."""
    width, n_in = config.integer("width"), series_of(task).n_channels
    n_steps, n_out = task.output_shape
    reader = 2 * 3 * width * (n_in + width + 2)
    bridge = (2 * width + 1) * width
    keys = 2 * width * width
    writer = 3 * width * (n_out + 2 * width + width + 2)
    last = (3 * width + 1) * n_out
    return Size(reader + bridge + keys + writer + last, task.n_features + (n_steps + task.input_shape[0]) * 2 * width)


def _objection(task: Task) -> str | None:
    if len(task.output_shape) != 2:
        return "seq2seq returns series: tensors of two sizes, steps and numbers"
    if task.output_shape[0] > MOST_STEPS:
        return f"seq2seq writes at most {MOST_STEPS} steps, not {task.output_shape[0]}"
    return None


SEQ2SEQ = Architecture(
    name="seq2seq",
    trainer="torch",
    summary="seq2seq with attention: a bidirectional GRU reads a series, another GRU writes one step by step",
    hyperparameters=(WIDTH, *COSINE_HYPERPARAMETERS),
    build=build_seq2seq,
    tasks=("regression",),
    input_ranks=(2,),
    made_for=("series",),
    is_stackable=False,
    objection=_objection,
    size=seq2seq_size,
    outputs="tensors",
)
