"""LightGBM's boosters: made on binned rows, read from text, and summed row by row.

Margins of training rows are the same bits whether they were kept or computed again: LightGBM adds one tree after the
other to each row, and so does `add_trees`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from easeml_plpy.server.devices import n_threads
from easeml_plpy.server.errors import CorruptCheckpoint, TrialFailed
from easeml_plpy.server.memory import says_exhausted
from easeml_plpy.server.value_types import JSON, Array, Pause
from easeml_plpy.trainers.lightgbm.c_interface import GrownTrees, LightGBMFailure
from easeml_plpy.trainers.training_rows import Rows

if TYPE_CHECKING:
    import lightgbm

ROWS_AT_ONCE = 8192  # between two calls a cancel takes effect
END_OF_TREES = "end of trees\n"
FIXED: Mapping[str, JSON] = {
    "boost_from_average": False,  # the state says what all rows begin with; each epoch would add a mean of its own
    "deterministic": True,
    "force_row_wise": True,  # LightGBM would time both ways, and sum in another order where the other was faster
    "metric": "None",  # units measure the trial
    "verbosity": -1,
}
SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed", "objective_seed")


def grown(data: lightgbm.Dataset, parameters: Mapping[str, JSON], n_rounds: int, seed: int, pause: Pause) -> Any:
    """Return a booster of a number of rounds, fewer if no split gains anything, with a pause after each."""
    import lightgbm

    seeds = dict.fromkeys(SEEDS, seed % 2**31)
    try:
        booster = lightgbm.Booster({**parameters, **FIXED, **seeds, "num_threads": n_threads()}, data)
        for _ in range(n_rounds):
            is_over = booster.update()
            pause()
            if is_over:
                break
    except lightgbm.basic.LightGBMError as error:
        if says_exhausted(str(error)):
            raise MemoryError from error
        raise TrialFailed(f"trees cannot be grown: {error}") from error
    return booster


def scores_of(booster: lightgbm.Booster, n_margins: int) -> Array:
    """Return the margins of its training rows, float64 (n, n_margins), as they were added up in training."""
    margins: list[Array] = []

    def see(scores: Array, data: object) -> list[Any]:
        margins.append(np.array(scores, np.float64))
        return []

    booster.reset_parameter({"objective": "none"})  # otherwise they would be turned into probabilities
    booster.eval_train(see)
    return margins[0].reshape(-1, n_margins, order="F") if margins[0].ndim == 1 else margins[0]


def text_of(booster: lightgbm.Booster) -> str:
    """Return the trees as text, without the settings that they were grown with: the config has what matters of them."""
    trees, end, _ = booster.model_to_string().partition(END_OF_TREES)
    return trees + end


def trees_of(text: str) -> GrownTrees:
    """Return the trees of a text. Raises CorruptCheckpoint."""
    check_text(text)
    try:
        return GrownTrees(text)
    except LightGBMFailure as error:
        raise CorruptCheckpoint(f"trees cannot be read: {error}") from error


def check_text(text: str) -> None:
    """Raise CorruptCheckpoint unless the trees are as long as the text says: LightGBM would read past its end."""
    header, begin, trees = text.partition("\n\nTree=0\n")
    sizes = [line.removeprefix("tree_sizes=") for line in header.splitlines() if line.startswith("tree_sizes=")]
    n_bytes = sum(int(size) for size in sizes[0].split()) if len(sizes) == 1 and begin else -1
    if not text.endswith(END_OF_TREES) or len(f"Tree=0\n{trees}") != n_bytes + len(END_OF_TREES):
        raise CorruptCheckpoint("trees cannot be read: their text is cut or changed")


def add_sums(trees: GrownTrees, inputs: Array, margins: Array, pause: Pause) -> None:
    """Add the sum of all trees for each row of a matrix."""
    if len(inputs) == 1:
        margins += trees.sums(inputs, 1)
        return
    for rows in _chunks(len(inputs)):
        margins[rows] += trees.sums(inputs[rows], n_threads())
        pause()


def contributions(trees: GrownTrees, inputs: Rows) -> Array:
    """Return what each column adds to the margins of each row, float64 (n, n_margins, n_columns + 1); the last is the
    trees' answer for a row whose values are all unknown. They are the Shapley values that LightGBM computes.
    """
    return trees.contributions(matrix(inputs), n_threads())


def add_trees(trees: GrownTrees, inputs: Rows, margins: Array, pause: Pause) -> None:
    """Add the trees' values for each row, one tree after the other."""
    n_margins = margins.shape[1]
    # Not the library's own sums: it adds the trees of all rounds first and the margin last, which rounds otherwise.
    lines, name = trees.text.splitlines(), "leaf_value="
    values = [np.array(line.removeprefix(name).split(), np.float64) for line in lines if line.startswith(name)]
    for rows in _chunks(len(inputs)):
        leaves = trees.leaves(matrix(inputs[rows]), n_threads())
        for tree, of_leaf in enumerate(values):
            margins[rows, tree % n_margins] += of_leaf[leaves[:, tree]]
        pause()


def _chunks(n_rows: int) -> list[slice]:
    return [slice(start, start + ROWS_AT_ONCE) for start in range(0, n_rows, ROWS_AT_ONCE)]


def matrix(inputs: Rows) -> Array:
    """Return rows as numbers side by side, without copying."""
    return np.asarray(inputs).reshape(len(inputs), -1)
