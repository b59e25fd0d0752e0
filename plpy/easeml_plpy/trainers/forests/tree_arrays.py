"""The trees of a forest as arrays, and the walk of rows through all of them at once.

A node's left child is the node after it. `feature` is -1 at a leaf; `link` is the right child of a split, and the row
of `values` of a leaf. `roots` are the first nodes. Thresholds are the largest float32 that is not above scikit-learn's,
so that float32 rows go the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from easeml_plpy.server.errors import CorruptCheckpoint
from easeml_plpy.server.value_types import Array, Pause

ROWS_AT_ONCE = 2048
MAX_DEPTH = 64
NAMES = ("roots", "feature", "threshold", "link", "values")


@dataclass(frozen=True)
class Trees:
    """Trees one after the other; `values` is float32 (n_leaves, n_outputs)."""

    roots: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float32]
    link: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in NAMES}

    def add_sums(self, rows: npt.NDArray[np.float32], sums: Array, pause: Pause) -> None:
        """Add the value that each tree gives each row."""
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            leaves = self._leaves(rows[some])
            for tree in range(len(self.roots)):
                sums[some] += self.values[leaves[:, tree]]
            pause()

    def _leaves(self, rows: npt.NDArray[np.float32]) -> Array:
        """Return the leaf of each row in each tree, (n, n_trees)."""
        node = np.tile(self.roots, (len(rows), 1))
        number = np.arange(len(rows))[:, None]
        for _ in range(MAX_DEPTH + 1):
            feature = self.feature[node]
            is_split = feature >= 0
            if not is_split.any():
                break
            is_left = rows[number, feature] <= self.threshold[node]
            node = np.where(is_split, np.where(is_left, node + 1, self.link[node]), node)
        leaves: Array = self.link[node]
        return leaves


def trees_of(grown: Sequence[Any], n_outputs: int) -> Trees:
    """Return the trees that scikit-learn has grown; probabilities of all classes, or values, at the leaves."""
    parts = [_arrays_of(tree, n_outputs) for tree in grown]
    n_nodes = np.cumsum([0, *(len(feature) for feature, _, _, _ in parts)])
    n_leaves = np.cumsum([0, *(len(values) for _, _, _, values in parts)])
    links = [
        np.where(feature >= 0, link + n_nodes[k], link + n_leaves[k]) for k, (feature, _, link, _) in enumerate(parts)
    ]
    return Trees(
        n_nodes[:-1].astype(np.int32),
        np.concatenate([feature for feature, _, _, _ in parts]),
        np.concatenate([threshold for _, threshold, _, _ in parts]),
        np.concatenate(links).astype(np.int32),
        np.concatenate([values for _, _, _, values in parts]),
    )


def of_all_classes(grown: Any, answers: Array, n_outputs: int) -> Array:
    """Return answers for all classes where the tree was grown from rows of some of them only."""
    if answers.shape[1] == n_outputs:
        return answers
    spread = np.zeros((len(answers), n_outputs), answers.dtype)
    spread[:, grown.classes_] = answers
    return spread


def _arrays_of(grown: Any, n_outputs: int) -> tuple[Array, Array, Array, Array]:
    """Return features, thresholds, links and the values of the leaves of one tree."""
    tree = grown.tree_
    is_split = tree.children_left >= 0
    nodes = np.flatnonzero(is_split)
    if not np.array_equal(tree.children_left[nodes], nodes + 1):
        raise TypeError("scikit-learn does not put a node's left child after it any more")
    threshold = tree.threshold.astype(np.float32)
    threshold = np.where(threshold > tree.threshold, np.nextafter(threshold, np.float32(-np.inf)), threshold)
    values = of_all_classes(grown, tree.value[~is_split][:, 0, :], n_outputs)
    link = np.where(is_split, tree.children_right, np.cumsum(~is_split) - 1)
    feature = np.where(is_split, tree.feature, -1).astype(np.int32)
    return feature, threshold.astype(np.float32), link, values.astype(np.float32)


def checked_trees(arrays: Mapping[str, Array], n_features: int, n_outputs: int) -> Trees:
    """Return trees from a state. Raises CorruptCheckpoint if a walk could leave them or never end."""
    if set(arrays) != set(NAMES):
        raise CorruptCheckpoint(f"state has {sorted(arrays)} of trees, expected {sorted(NAMES)}")
    trees = Trees(**{name: np.asarray(arrays[name]) for name in NAMES})
    nodes, is_split = np.arange(len(trees.feature)), trees.feature >= 0
    limit = np.where(is_split, len(nodes), len(trees.values))
    is_sound = (
        len(trees.threshold) == len(trees.link) == len(nodes)
        and trees.values.shape[1:] == (n_outputs,)
        and bool((trees.feature < n_features).all())
        and bool(((trees.link >= np.where(is_split, nodes + 1, 0)) & (trees.link < limit)).all())
        and not is_split[-1:].any()
        and bool(((trees.roots >= 0) & (trees.roots < len(nodes))).all())
    )
    if not is_sound:
        raise CorruptCheckpoint("state has trees that lead nowhere")
    return trees
