"""Trials that only answer: they say what the trials say that trained, and import little."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from easeml_plpy.columns.task import Task
from easeml_plpy.server.errors import ShapeMismatch
from easeml_plpy.trainers import ARCHITECTURES, answering_trial, architecture, trainer_for
from easeml_plpy.trainers.networks.numpy_network import NumpyNetwork
from tests.unit.plpy.architectures.test_networks import LAYOUT, WORDS, table_rows
from tests.unit.plpy.trainers.training_rows import (
    IMAGE_NETWORKS,
    SERIES_NETWORKS,
    TENSOR_NETWORKS,
    TREE_NETWORKS,
    no_pause,
)

FLAT = Task("classification", (2, 3), 3)
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("mlp", {"hidden_units": [16, 8], "activation": "relu", "dropout": 0.2}),
    ("mlp", {"hidden_units": [16], "activation": "tanh", "averaging": 0.9}),
    ("mlp", {"hidden_units": [16], "activation": "gelu"}),
    ("resnet", {"width": 16, "n_blocks": 2, "dropout": 0.1}),
    ("tabm", {"width": 16, "n_blocks": 2, "n_members": 4}),
]


def rows_of(task: Task, n: int) -> torch.Tensor:
    """Rows of the task: of words, ids; of LAYOUT, what it says; else numbers."""
    generator = torch.Generator().manual_seed(2)
    if not task.layout:
        return torch.randn(n, *task.input_shape, generator=generator)
    words = torch.randint(-1, 30, (n, len(WORDS)), generator=generator).float()
    return torch.cat([table_rows(n), words], dim=1)[:, : len(task.layout)]


def trained(name: str, config: dict[str, Any], task: Task) -> Any:
    """A trial of that architecture after two passes over a few rows."""
    chosen, inputs = architecture(name), rows_of(task, 200)
    generator = torch.Generator().manual_seed(3)
    wanted = (
        torch.randint(task.n_outputs, (200,), generator=generator)
        if task.kind == "classification"
        else torch.randn(200, generator=generator)
    )
    trial = trainer_for(chosen.trainer).start(chosen, config, task, n_steps_total=100, seed=1)
    for seed in range(2):
        trial.train(inputs, wanted, seed=seed, pause=no_pause)
    return trial


@pytest.mark.parametrize(
    "task",
    [
        FLAT,
        Task("regression", (4,), 1),
        Task("classification", (len(LAYOUT),), 2, "float32", LAYOUT),
        Task("regression", (len(LAYOUT + WORDS),), 1, "float32", LAYOUT + WORDS),
    ],
)
@pytest.mark.parametrize(("name", "config"), CONFIGS)
def test_networks_answer_without_torch_what_torch_answers(name: str, config: dict[str, Any], task: Task) -> None:
    live = trained(name, config, task)
    answering = answering_trial(architecture(name), config, task, live.dump())
    assert isinstance(answering, NumpyNetwork)
    for n in (1, 1500):
        rows = rows_of(task, n)
        expected = live.outputs(rows)
        found = answering.outputs(rows.numpy())
        assert (found.shape, found.dtype) == (expected.shape, np.float32)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_only_images_series_and_bits_need_torch_to_answer() -> None:
    networks = {name for name, each in ARCHITECTURES.items() if each.trainer in ("torch", "adversarial")}
    others = {*IMAGE_NETWORKS, *SERIES_NETWORKS, *TENSOR_NETWORKS, *TREE_NETWORKS, "bit_rnn"} - {"tree_kernel_svm"}
    assert {name for name in networks if ARCHITECTURES[name].forward is None} == others


def test_a_state_of_other_widths_is_refused() -> None:
    state = trained("mlp", {"hidden_units": [16]}, FLAT).dump()
    with pytest.raises(ShapeMismatch, match="shapes that the config asks for"):
        answering_trial(architecture("mlp"), {"hidden_units": [16, 16]}, FLAT, state)
    averaged = trained("resnet", {"width": 16}, FLAT).dump()
    with pytest.raises(ShapeMismatch, match="shapes that the config asks for"):
        answering_trial(architecture("resnet"), {"width": 16, "n_blocks": 3}, FLAT, averaged)


ANSWER = """
import sys
import numpy as np
from easeml_plpy import prediction
from easeml_plpy.trainers import architecture
from easeml_plpy.columns.task import Task
from easeml_plpy.trainers import answering_trial
name, layout = sys.argv[1:]
task = Task("regression", (4,), 1, layout)
trial = answering_trial(architecture(name), {}, task, sys.stdin.buffer.read())
assert trial.outputs(np.zeros((2, 4), layout)).shape == (2, 1)
slow = {"torch"} if name == "sgd" else {"torch", "sklearn", "lightgbm", "scipy", "pandas"}
print(sorted(slow & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("mlp", "float32"),
        ("sgd", "float32"),
        ("lightgbm", "float64"),
        ("random_forest", "float64"),
        ("extra_trees", "float64"),
    ],
)
def test_a_session_that_predicts_imports_nothing_slow(name: str, layout: Any) -> None:
    task = Task("regression", (4,), 1, layout)
    inputs = torch.randn(200, 4, dtype=getattr(torch, layout))
    trial = trainer_for(ARCHITECTURES[name].trainer).start(ARCHITECTURES[name], {}, task, n_steps_total=10, seed=0)
    trial.train(inputs, inputs.sum(dim=1).float(), seed=0, pause=no_pause)
    done = subprocess.run(
        [sys.executable, "-c", ANSWER, name, layout], input=trial.dump(), capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "[]"


def test_one_row_of_boosted_trees_is_answered_as_among_others() -> None:
    task = Task("classification", (4,), 3, "float64")
    inputs = torch.randn(300, 4, dtype=torch.float64)
    inputs[::7, 2] = torch.nan
    trial = trainer_for("boosting").start(architecture("lightgbm"), {}, task, n_steps_total=10, seed=0)
    for seed in range(2):
        trial.train(inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long(), seed=seed, pause=no_pause)
    answering = answering_trial(architecture("lightgbm"), {}, task, trial.dump())
    one_by_one = np.concatenate([answering.outputs(row[None]) for row in inputs.numpy()])
    assert np.array_equal(one_by_one, trial.outputs(inputs))
