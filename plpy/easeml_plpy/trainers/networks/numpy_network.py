"""A network that only predicts, with numpy functions over the weights of a torch trial's state."""

from __future__ import annotations

import numpy as np

from easeml_plpy.architectures.tables.numpy_layers import Layer, Weights
from easeml_plpy.architectures.tables.target_transforms import TargetTransform, target_transform
from easeml_plpy.columns.task import Task
from easeml_plpy.server.chunks import ANSWER_ROWS
from easeml_plpy.server.devices import one_blas_thread
from easeml_plpy.server.errors import ShapeMismatch
from easeml_plpy.server.value_types import Array, Floats
from easeml_plpy.states import checkpoint
from easeml_plpy.trainers.contract import Blueprint
from easeml_plpy.trainers.training_rows import Rows, check_inputs

MODULE = "module/"
AVERAGE = "average/"


class NumpyNetwork:
    """A network and the task that it answers."""

    def __init__(self, task: Task, forward: Layer, transform: TargetTransform | None = None) -> None:
        self._task, self._forward, self._transform = task, forward, transform

    def outputs(self, inputs: Rows) -> Array:
        """See AnsweringTrial."""
        check_inputs(self._task, inputs)
        rows = np.asarray(inputs)
        with one_blas_thread():
            if len(rows) <= ANSWER_ROWS:
                return self._answer(rows)
            starts = range(0, len(rows), ANSWER_ROWS)
            return np.concatenate([self._answer(rows[start : start + ANSWER_ROWS]) for start in starts])

    def _answer(self, rows: Floats) -> Floats:
        outputs = self._forward(rows)
        if self._task.kind == "classification":
            # A row by itself waits longer for the methods max and sum, which only call these.
            outputs = np.exp(outputs - np.maximum.reduce(outputs, axis=-1, keepdims=True))
            outputs /= np.add.reduce(outputs, axis=-1, keepdims=True)
        if self._transform is not None:
            outputs = self._transform.inverse(outputs)
        if outputs.ndim == 2:
            return outputs
        means: Floats = np.add.reduce(outputs, axis=1)
        means /= outputs.shape[1]
        return means


def restored_network(blueprint: Blueprint, state: checkpoint.Checkpoint) -> NumpyNetwork | None:
    """Return the network of a state; None for an architecture that only torch computes. Raises ShapeMismatch."""
    make = blueprint.architecture.forward
    if make is None:
        return None
    task = blueprint.task
    try:
        forward = make(task, blueprint.config, _weights(blueprint, state))
        network = NumpyNetwork(task, forward, target_transform(task, blueprint.config))
        fits = network.outputs(np.zeros((1, *task.input_shape), np.float32)).shape == (1, task.n_outputs)
    except (KeyError, ValueError, IndexError):
        fits = False
    if not fits:
        raise ShapeMismatch(
            "state does not have the shapes that the config asks for",
            hint="A trial's architecture cannot change once it has started.",
        )
    return network


def _weights(blueprint: Blueprint, state: checkpoint.Checkpoint) -> Weights:
    """Return the weights that answer: the averages if there are any."""
    is_averaged = "averaging" in blueprint.config and blueprint.config.number("averaging") > 0
    prefixes = (MODULE, AVERAGE) if is_averaged else (MODULE,)
    return {
        name.removeprefix(prefix): array
        for prefix in prefixes
        for name, array in state.arrays.items()
        if name.startswith(prefix)
    }
