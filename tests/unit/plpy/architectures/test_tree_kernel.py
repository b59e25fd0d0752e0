"""The tree kernel: its random features have its values, whatever is beside a tree; and it tells real digits apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from easeml_plpy.architectures.trees.tree_kernel_svm import TreeFeatures
from easeml_plpy.columns.task import Objects
from easeml_plpy.trainers import ARCHITECTURES, trainer_for
from tests.digit_objects import halves, labels
from tests.unit.plpy.architectures.object_rows import field_of, read, task_of
from tests.unit.plpy.trainers.training_rows import no_pause

FIELD = field_of(1, "left", "right", name="x")
BANDWIDTH, DECAY = 1.0, 0.4
LEAF, OTHER = {"x": [1.0]}, {"x": [-0.5]}
TREES: list[Any] = [
    LEAF,
    {"x": [0.0], "left": LEAF, "right": OTHER},
    {"x": [0.0], "left": OTHER, "right": LEAF},
    {"x": [0.0], "left": LEAF},
    {"x": [0.2], "right": {"x": [0.0], "left": LEAF, "right": OTHER}},
]


def objects_of(rows: Any) -> list[tuple[float, list[int]]]:
    """Return number and links of each object of a row."""
    return [(float(row[0]), [int(link) for link in row[2:]]) for row in rows if row[1] > 0]


def kernel(first: Any, second: Any) -> float:
    """Return the kernel by its definition."""

    def of_objects(v: int, w: int) -> float:
        (x, links), (y, others) = first[v], second[w]
        value = DECAY * math.exp(-((x - y) ** 2) / (2 * BANDWIDTH**2))
        for child, other in zip(links, others, strict=True):
            if (child > 0) != (other > 0):
                return 0.0
            value *= 1 + of_objects(child - 1, other - 1) if child else 1.0
        return value

    return sum(of_objects(v, w) for v in range(len(first)) for w in range(len(second)))


def test_products_of_features_are_the_values_of_the_kernel() -> None:
    rows, _ = read(FIELD, TREES)
    numbers = rows.numpy()
    objects = [objects_of(each) for each in numbers]
    exact = np.array([[kernel(a, b) for b in objects] for a in objects])
    lengths = np.sqrt(np.diag(exact))
    vectors = TreeFeatures(Objects(1, 2), 65536, BANDWIDTH, DECAY).of(numbers)
    np.testing.assert_allclose(vectors @ vectors.T, exact / np.outer(lengths, lengths), atol=0.03)
    assert exact[1, 2] < 0.95 * exact[1, 1]  # left is not right


@pytest.mark.parametrize("n_rows", [1, 2])
def test_a_tree_has_the_same_vector_alone_as_among_others(n_rows: int) -> None:
    numbers = read(FIELD, TREES)[0].numpy()
    features = TreeFeatures(Objects(1, 2), 64, BANDWIDTH, DECAY)
    together = features.of(numbers)
    for start in range(0, len(numbers), n_rows):
        page = slice(start, start + n_rows)
        np.testing.assert_allclose(features.of(numbers[page]), together[page], atol=1e-6)
    assert features.of(numbers[:0]).shape == (0, 64)


def n_objects(tree: dict[str, Any]) -> int:
    return 1 + sum(n_objects(tree[side]) for side in ("first", "second") if side in tree)


def test_real_digits_are_told_apart_by_their_halves_of_halves() -> None:
    """In three passes over 900 digits, at least 15 points better than what the sizes of trees tell (about 22 %)."""
    given, digits = halves(1200), labels()[:1200]
    rows, field = read(field_of(2, "first", "second", name="ink"), given)
    config = {"n_features": 256}
    live = trainer_for("partial_fit").start(
        ARCHITECTURES["tree_kernel_svm"], config, task_of(field, 10), n_steps_total=6, seed=1
    )
    for seed in range(3):
        live.train(rows[:900], torch.tensor(digits[:900]), seed=seed, pause=no_pause)
    again = trainer_for("partial_fit").resume(ARCHITECTURES["tree_kernel_svm"], config, task_of(field, 10), live.dump())
    assert again.dump() == live.dump()
    sizes = np.array([[n_objects(each)] for each in given])
    baseline = LogisticRegression(max_iter=500).fit(sizes[:900], digits[:900]).score(sizes[900:], digits[900:])
    assert (again.outputs(rows[900:]).argmax(axis=1) == digits[900:]).mean() > baseline + 0.15
