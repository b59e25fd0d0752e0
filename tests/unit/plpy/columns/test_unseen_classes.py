"""A split by time or by a column may leave a class out of the training rows: trials learn the others all the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from easeml_plpy.columns.task import Task
from easeml_plpy.trainers import ARCHITECTURES, architecture, trainer_for
from tests.unit.plpy.trainers.training_rows import IMAGE_NETWORKS, TENSOR_NETWORKS, TREE_NETWORKS, no_pause

NAMES = [
    name
    for name, each in ARCHITECTURES.items()
    if not each.is_derived and each.view != "table" and name not in (*IMAGE_NETWORKS, *TENSOR_NETWORKS, *TREE_NETWORKS)
]
SMALL = {"trees_per_epoch": 4, "num_leaves": 5}


@pytest.mark.parametrize("name", NAMES)
def test_a_class_without_training_rows_harms_nothing(name: str) -> None:
    chosen = architecture(name)
    view = {"tree": "float64"}.get(chosen.view, "float32")
    task = Task("classification", (2,), 3, view)  # type: ignore[arg-type]
    inputs = torch.from_numpy(np.abs(np.random.default_rng(0).normal(size=(200, 2))).astype(view))
    targets = (inputs[:, 0] > inputs[:, 1]).long() * 2  # classes 0 and 2
    known = {each.name for each in chosen.hyperparameters}
    config = {key: value for key, value in SMALL.items() if key in known}
    live = trainer_for(chosen.trainer).start(chosen, config, task, n_steps_total=14, seed=1)
    for seed in (1, 2):
        live.train(inputs, targets, seed=seed, pause=no_pause)
    outputs = live.outputs(inputs)
    assert outputs.shape == (200, 3)
    assert np.isfinite(outputs).all()
