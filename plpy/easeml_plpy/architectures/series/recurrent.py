"""Common parts of recurrent networks: layers that read a series step by step; their final state gives the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.series.design import n_layers, series_architecture, series_of, width
from easeml_plpy.architectures.size import Size
from easeml_plpy.columns.task import Task

if TYPE_CHECKING:
    from torch import nn

HYPERPARAMETERS = (
    width(64, "how many numbers each layer keeps from step to step"),
    n_layers(1, "the number of layers, each over the outputs of the one before"),
)


def recurrent_architecture(name: str, summary: str, layer: str, *, n_gates: int, n_directions: int = 1) -> Architecture:
    """Return an architecture of torch's layer of that name, which has `n_gates` matrices for each direction."""

    def build(task: Task, config: Config) -> nn.Module:
        from torch import nn

        from easeml_plpy.architectures.series.modules import Recurrent

        made = getattr(nn, layer)(
            series_of(task).n_channels, config.integer("width"), config.integer("n_layers"),
            batch_first=True, bidirectional=n_directions == 2,
        )  # fmt: skip
        return Recurrent(made, config.number("dropout"), task.n_outputs, is_unequal=task.objects is not None)

    def size(task: Task, config: Config) -> Size:
        steps, channels = series_of(task)
        wide = config.integer("width")
        n_inputs = [channels, *[n_directions * wide] * (config.integer("n_layers") - 1)]
        layers = sum(n_directions * n_gates * wide * (n_in + wide + 2) for n_in in n_inputs)
        answers = (n_directions * wide + 1) * task.n_outputs
        kept = steps * n_directions * n_gates * wide * len(n_inputs)
        return Size(layers + answers, task.n_features + kept + task.n_outputs)

    return series_architecture(name, summary, HYPERPARAMETERS, build, size)
