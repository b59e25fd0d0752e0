"""LightGBM's texts of trees that come from elsewhere: checked number by number before LightGBM reads them.

LightGBM trusts its texts. A missing child, or a feature beyond the row, would make it read other memory, and an error
that it finds in one of its threads ends the whole process. So each number must be written as LightGBM writes it: 20e-1,
which Python reads as 2, LightGBM reads as 20.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from easeml_plpy.server.errors import CorruptCheckpoint
from easeml_plpy.server.value_types import Array
from easeml_plpy.trainers.lightgbm.boosters import END_OF_TREES, check_text

MOST_LEAVES, MOST_DEPTH = 4096, 256
"""What a trial may have; and what Shapley values can be computed of: they take memory and time by the square of it."""
PLAIN = re.compile(r"[\n -~]*")
_WHOLE, _REAL = r"-?[0-9]{1,10}", r"-?[0-9]{1,400}(\.[0-9]{1,400})?(e[-+]?[0-9]{1,3})?"
WHOLE_NUMBERS, NUMBERS = (re.compile(f"{one}( {one})*") for one in (_WHOLE, _REAL))
HEADER = frozenset(
    {"version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective", "feature_names"}
    | {"feature_infos", "tree_sizes", "monotone_constraints"}
)
PER_LEAF = ("leaf_value", "leaf_weight", "leaf_count")
PER_NODE = (
    *("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child"),
    *("internal_value", "internal_weight", "internal_count"),
)
SINGLE = ("num_leaves", "num_cat", "is_linear", "shrinkage")
CATEGORIES = ("cat_boundaries", "cat_threshold")
REAL = frozenset(
    {"leaf_value", "leaf_weight", "split_gain", "threshold", "internal_value", "internal_weight", "shrinkage"}
)


def check_trees(text: str, n_features: int, n_margins: int) -> None:
    """Raise CorruptCheckpoint unless every number of the trees refers to something that exists."""
    _demand(PLAIN.fullmatch(text) is not None, "there are other characters than those of numbers and names")
    check_text(text)
    header, *trees = text.removesuffix(END_OF_TREES).split("\n\nTree=")
    fields = _entries(header.removeprefix("tree\n"), HEADER)
    expected = {"num_class": n_margins, "num_tree_per_iteration": n_margins, "max_feature_idx": n_features - 1}
    for name, value in {**expected, "version": "v4", "label_index": 0}.items():
        _demand(fields.get(name) == str(value), f"{name} is {fields.get(name)!r}, expected {value}")
    objectives = ("custom", "regression", "binary sigmoid:1", f"multiclass num_class:{n_margins}")
    _demand(fields.get("objective", "custom") in objectives, f"the objective is {fields.get('objective')!r}")
    names, ranges = fields.get("feature_names", "").split(" "), fields.get("feature_infos", "").split(" ")
    _demand(len(names) == len(ranges) == n_features, f"features are not {n_features}")
    _check_sizes(fields["tree_sizes"], trees)
    _demand(len(trees) % n_margins == 0, "a round has too few trees")
    for number, tree in enumerate(trees):
        place, _, entries = tree.partition("\n")
        _demand(place == str(number), f"tree {place!r} stands at the place of {number}")
        _check_tree(_entries(entries, {*PER_LEAF, *PER_NODE, *SINGLE, *CATEGORIES}), n_features)


def _check_sizes(sizes_text: str, trees: Sequence[str]) -> None:
    """Check the sizes of trees: LightGBM adds up those of the earlier trees to find where a tree begins."""
    sizes = [len(f"Tree={tree}\n\n") for tree in trees]
    sizes[-1] -= len("\n\n")  # the end stands in the place of what parts trees
    _demand(sizes_text == " ".join(map(str, sizes)), "a tree is not where its size says")


def _check_tree(fields: Mapping[str, str], n_features: int) -> None:
    single = {name: _numbers(fields, name, np.float64, 1)[0] for name in SINGLE}
    n_leaves, n_sets = int(single["num_leaves"]), int(single["num_cat"])
    _demand(1 <= n_leaves <= MOST_LEAVES and n_sets >= 0 and single["is_linear"] == 0, "a tree is of an unknown kind")
    for name in PER_LEAF:
        if n_leaves > 1 or name == "leaf_value":
            _numbers(fields, name, np.float64, n_leaves)
    if n_leaves == 1:
        _demand(n_sets == 0, "a tree without splits has categories")
        return
    nodes = {name: _numbers(fields, name, np.float64, n_leaves - 1) for name in PER_NODE}
    _check_links(nodes["left_child"], nodes["right_child"])
    features, kinds = nodes["split_feature"], nodes["decision_type"]
    _demand(_are_whole(features, 0, n_features), "a tree splits by a feature that is not there")
    _demand(_are_whole(kinds, 0, 16), "a tree has a split of an unknown kind")
    _check_sets(fields, nodes["threshold"][kinds % 2 == 1], n_sets)


def _check_links(left: Array, right: Array) -> None:
    """Check that each child is a later node or a leaf (-1 - its number), and of one node only: so a walk ends."""
    nodes = np.arange(len(left))
    for children in (left, right):
        _demand(_are_whole(children, -(len(nodes) + 1), len(nodes)), "a tree has a child that is not there")
        _demand(bool(((children < 0) | (children > nodes)).all()), "a tree leads back to an earlier node")
    both = np.concatenate([left, right])
    _demand(len(np.unique(both)) == len(both), "two nodes of a tree have the same child")
    depth = [1] * len(left)
    for node, pair in enumerate(np.stack([left, right], 1).astype(int).tolist()):
        for child in pair:
            if child > 0:
                depth[child] = depth[node] + 1
    _demand(max(depth) <= MOST_DEPTH, f"a tree is more than {MOST_DEPTH} splits deep")


def _check_sets(fields: Mapping[str, str], sets: Array, n_sets: int) -> None:
    """Check sets of categories: words of bits, with boundaries that say where each begins."""
    if not n_sets:
        _demand(not len(sets), "a tree splits by categories that are not there")
        return
    boundaries = _numbers(fields, "cat_boundaries", np.float64, n_sets + 1)
    most = len(fields.get("cat_threshold", "").split(" "))
    _demand(_are_whole(boundaries, 0, most + 1), "a tree has sets of categories that are not there")
    _demand(boundaries[0] == 0 and boundaries[-1] == most and bool((np.diff(boundaries) > 0).all()), "sets overlap")
    _demand(_are_whole(_numbers(fields, "cat_threshold", np.float64, most), 0, 1 << 32), "a set is no number")
    _demand(_are_whole(sets, 0, n_sets), "a tree splits by a set that is not there")


def _are_whole(numbers: Array, low: int, end: int) -> bool:
    return bool(((numbers == np.floor(numbers)) & (numbers >= low) & (numbers < end)).all())


def _entries(text: str, names: frozenset[str] | set[str]) -> dict[str, str]:
    """Return `name=value` lines by name; each name may occur once."""
    entries: dict[str, str] = {}
    for line in filter(None, text.split("\n")):
        name, is_set, value = line.partition("=")
        _demand(bool(is_set) and name in names and name not in entries, f"a line begins with {name[:40]!r}")
        entries[name] = value
    return entries


def _numbers(fields: Mapping[str, str], name: str, dtype: type[np.float64], n: int) -> Array:
    value = fields.get(name, "")
    words = value.split(" ")
    _demand(len(words) == n, f"{name} has {len(words)} numbers, expected {n}")
    _demand((NUMBERS if name in REAL else WHOLE_NUMBERS).fullmatch(value) is not None, f"{name} is no number")
    numbers = np.array(words, dtype)
    _demand(bool(np.isfinite(numbers).all()), f"{name} is not finite")
    return numbers


def _demand(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise CorruptCheckpoint(f"trees cannot be read: {otherwise}")
