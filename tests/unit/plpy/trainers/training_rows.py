"""Rows with something to learn in them, for the tests of trainers."""

import torch

from easeml_plpy.columns.task import Task
from easeml_plpy.trainers import ARCHITECTURES

TENSOR_NETWORKS = [name for name, each in ARCHITECTURES.items() if each.outputs == "tensors"]
"""Architectures that return nothing but tensors."""
TREE_NETWORKS = [name for name, each in ARCHITECTURES.items() if each.made_for == ("tree",)]
"""Architectures that take nothing but trees."""
OTHERS = {name: each for name, each in ARCHITECTURES.items() if name not in (*TENSOR_NETWORKS, *TREE_NETWORKS)}
IMAGE_NETWORKS = [name for name, each in OTHERS.items() if each.made_for == ("image",)]
"""Architectures that take nothing but images."""
SERIES_NETWORKS = [name for name, each in OTHERS.items() if each.made_for == ("series",)]


def no_pause() -> None:
    pass


def rows(task: Task, n_rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs at random; the target is the largest of the first inputs, or a difference of two."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n_rows, *task.input_shape, generator=generator)
    flat = inputs.reshape(n_rows, -1)
    if task.kind == "regression":
        return inputs, flat[:, 0] - flat[:, 1]
    return inputs, flat[:, : task.n_outputs].argmax(dim=1)
