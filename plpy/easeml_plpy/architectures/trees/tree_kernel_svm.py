"""A support vector machine with a kernel over trees (Collins and Duffy, 2001), by its random features.

The kernel counts the fragments that two trees share, where a fragment is an object with everything that it links to, or
with some of that cut off; a fragment of many objects counts less. Objects hold numbers here, which are rarely equal, so
a Gaussian measures how alike two objects are.

    K(T, T') = sum over their objects v, v' of k(v, v')
    k(v, v') = decay * exp(-|x - x'|^2 / 2 bandwidth^2) * product over links of (1 + k(child, child'))

here          paper            meaning
bandwidth     sigma            the distance at which two objects are little alike
decay         lambda           what each further object of a fragment counts
n_features    d                numbers of a tree's vector z; on average z(T) . z(T') / d = K(T, T')

A link that only one of them has makes k zero. A machine over the kernel itself would compare each tree with all trees
that it has kept. So each tree becomes a vector whose products equal the kernel's values on average, as in distributed
tree kernels (Zanzotto and Dell'Arciprete, 2012), and a linear machine learns from those, partition by partition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter, magnitude
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.tables.incremental import BATCH_ROWS, IncrementalEstimator
from easeml_plpy.architectures.tables.stochastic_gradient import sgd_class
from easeml_plpy.architectures.trees.design import objects_of
from easeml_plpy.columns.task import Objects, Task
from easeml_plpy.server.value_types import Array

CACHED_NUMBERS = 1 << 19
"""Of all objects of some trees: what stays in the processor's cache is made five times as fast."""
NUMBERS_A_BATCH = 1 << 25
"""After which training pauses, so that a cancel is seen within a second."""


class TreeFeatures:
    """Makes vectors (n, n_features) of unit length out of trees (n, objects, numbers + 1 + links).

    The random numbers follow from the sizes alone, so every session draws the same.
    """

    def __init__(self, objects: Objects, n_features: int, bandwidth: float, decay: float) -> None:
        generator = np.random.default_rng((objects.n_numbers, objects.n_links, n_features))
        self._objects = objects
        # Rahimi and Recht (2007): with w ~ N(0, 1/sigma^2) and b ~ U(0, 2 pi), the mean of 2 cos(w.x + b) cos(w.x' + b)
        # is exp(-|x - x'|^2 / 2 sigma^2). The factor 2 decay goes into both sides as its root.
        directions = generator.normal(scale=1 / bandwidth, size=(objects.n_numbers, n_features))
        self._directions = directions.astype(np.float32)
        self._shifts = generator.uniform(0, 2 * math.pi, n_features).astype(np.float32)
        shape = (objects.n_links, n_features)
        # A product of independent signs is 0 on average, so sums and products of features are those of kernels.
        self._kept, self._missing = (generator.choice((-1.0, 1.0), shape).astype(np.float32) for _ in range(2))
        # Parent and child are made with the same directions; a permutation of its own for each link keeps their numbers
        # independent.
        self._places = [generator.permutation(n_features) for _ in range(objects.n_links)]
        self._scale = np.float32(math.sqrt(2 * decay))

    def of(self, trees: Array) -> Array:
        """Return the vectors of trees, some at a time."""
        n_rows = max(1, CACHED_NUMBERS // (trees.shape[1] * len(self._shifts)))
        return np.concatenate([self._of(trees[i : i + n_rows]) for i in range(0, max(len(trees), 1), n_rows)])

    def _of(self, trees: Array) -> Array:
        n_numbers = self._objects.n_numbers
        owner, place = np.nonzero(trees[:, :, n_numbers] > 0)
        objects = trees[owner, place]
        numbers = np.full(trees.shape[:2], len(objects))
        numbers[owner, place] = np.arange(len(objects))
        links = objects[:, n_numbers + 1 :].astype(np.intp)
        # Links count from 1, and 0 is none: the last row of `made`, which stays zero.
        children = np.where(links > 0, numbers[owner[:, None], links - 1], len(objects))
        made = np.zeros((len(objects) + 1, len(self._shifts)), np.float32)  # of each object, and zeros for none
        made[:-1] = self._scale * np.cos(objects[:, :n_numbers] @ self._directions + self._shifts)
        for level in _levels(children):
            for link, order in enumerate(self._places):
                # In a product of two vectors, `kept` squared is the 1 of 1 + k(child, child'), and cross terms vanish
                # on average. So does `missing` times anything, where one tree lacks the link; where both do, its
                # square is 1.
                child = children[level, link]
                below = self._kept[link] + made[child].take(order, axis=1)
                made[level] *= np.where(child[:, None] < len(objects), below, self._missing[link])
        # Each tree has an object at least, and its objects lie one after another.
        sums = np.add.reduceat(made[:-1], np.searchsorted(owner, np.arange(len(trees))), axis=0)
        # Unit length, so that K(T, T') / sqrt(K(T, T) K(T', T')) is learned from: large trees share more fragments.
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        vectors: Array = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
        return vectors


def _levels(children: Array) -> Iterator[Array]:
    """Yield the objects of all trees from the leaves up: each after all objects that it links to."""
    is_done = np.zeros(len(children) + 1, bool)
    is_done[-1] = True
    while not is_done.all():
        ready = np.nonzero(~is_done[:-1] & is_done[children].all(axis=1))[0]
        yield ready
        is_done[ready] = True


@lru_cache(8)
def _features(objects: Objects, n_features: int, bandwidth: float, decay: float) -> TreeFeatures:
    return TreeFeatures(objects, n_features, bandwidth, decay)


def build_tree_kernel_svm(task: Task, config: Config) -> IncrementalEstimator:
    """Build SGDClassifier with the hinge loss, or SGDRegressor with the epsilon-insensitive one, over the features."""
    objects, n_features = objects_of(task), config.integer("n_features")
    features = _features(objects, n_features, config.number("bandwidth"), config.number("decay"))
    loss = "hinge" if task.kind == "classification" else "epsilon_insensitive"
    estimator = sgd_class(task)(
        loss=loss, alpha=config.number("alpha"), learning_rate="invscaling", eta0=config.number("learning_rate"),
        shuffle=False,
    )  # fmt: skip
    n_rows = int(np.clip(NUMBERS_A_BATCH // (task.input_shape[0] * n_features), 1, BATCH_ROWS))
    return IncrementalEstimator(estimator, lambda rows: features.of(rows.reshape(-1, *task.input_shape)), n_rows)


def tree_kernel_svm_size(task: Task, config: Config) -> Size:
    """Return its size."""
    n_features = config.integer("n_features")
    return Size((n_features + 1) * task.n_outputs, task.n_features + n_features * task.input_shape[0])


TREE_KERNEL_SVM = Architecture(
    name="tree_kernel_svm",
    trainer="partial_fit",
    summary="support vector machine with a tree kernel: how many fragments two trees share; uncalibrated probabilities",
    hyperparameters=(
        Hyperparameter(
            "n_features", "integer", 1024, "random features: the more, the nearer to the kernel", low=16, high=65536
        ),
        magnitude(
            "bandwidth",
            0.5,
            "the distance at which the numbers of two objects are little alike",
            legal=(1e-3, 1e3),
            search=(0.2, 4.0),
        ),
        Hyperparameter(
            "decay",
            "float",
            0.4,
            "what each further object of a fragment counts",
            low=0.0,
            high=1.0,
            search=[0.1, 0.2, 0.4, 0.8],
        ),
        magnitude("alpha", 1e-5, "the strength of the penalty", legal=(1e-12, 1e3), search=(1e-7, 1e-3)),
        magnitude("learning_rate", 10.0, "the size of the first step", legal=(1e-8, 1e3), search=(1.0, 100.0)),
    ),
    build=build_tree_kernel_svm,
    size=tree_kernel_svm_size,
    input_ranks=(2,),
    made_for=("tree",),
)
