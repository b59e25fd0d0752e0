"""Forests (scikit-learn): independent trees, each grown on all rows at once; an epoch adds some."""

from __future__ import annotations

from dataclasses import dataclass

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter
from easeml_plpy.architectures.size import Size
from easeml_plpy.columns.task import Task

HYPERPARAMETERS = (
    Hyperparameter(
        "trees_per_epoch", "integer", 20, "the trees that an epoch adds", low=1, high=1000, log=True,
    ),
    Hyperparameter(
        "min_samples_leaf", "integer", 2, "the rows of a leaf at least", low=1, high=1_000_000, log=True,
        search={"type": "integer", "low": 1, "high": 20, "log": True},
    ),
    Hyperparameter(
        "feature_fraction", "float", 0.7, "the share of the columns that a split chooses from", low=0.01, high=1.0,
        search={"type": "float", "low": 0.2, "high": 1.0},
    ),
    Hyperparameter(
        "max_samples", "integer", 50_000, "the rows that a tree is grown from at most, drawn for each tree",
        low=10, high=1_000_000_000, log=True,
    ),
    Hyperparameter("max_depth", "integer", 64, "the depth of a tree at most", low=1, high=64),
    Hyperparameter(
        "class_weight", "categorical", "none", "whether rows of rare classes weigh more", choices=("none", "balanced")
    ),
)  # fmt: skip


@dataclass(frozen=True)
class ForestParameters:
    """How a forest is grown; `is_random`: thresholds are drawn and rows without replacement, all of them if they are
    few enough, instead of the best threshold on rows drawn with replacement."""

    is_random: bool
    trees_per_epoch: int
    min_samples_leaf: int
    feature_fraction: float
    max_samples: int
    max_depth: int
    is_balanced: bool


def _parameters(config: Config, *, is_random: bool) -> ForestParameters:
    return ForestParameters(
        is_random=is_random,
        trees_per_epoch=config.integer("trees_per_epoch"),
        min_samples_leaf=config.integer("min_samples_leaf"),
        feature_fraction=config.number("feature_fraction"),
        max_samples=config.integer("max_samples"),
        max_depth=config.integer("max_depth"),
        is_balanced=config.text("class_weight") == "balanced",
    )


def forest_size(task: Task, config: Config) -> Size:
    """Return the trees that an epoch adds, the numbers of a row and its sums."""
    return Size(config.integer("trees_per_epoch"), task.n_features, task.n_outputs)


EXTRA_TREES = Architecture(
    name="extra_trees",
    trainer="forest",
    summary="a forest of trees whose thresholds are drawn at random, over all rows at once",
    hyperparameters=HYPERPARAMETERS,
    build=lambda task, config: _parameters(config, is_random=True),
    size=forest_size,
    view="tree",
)

RANDOM_FOREST = Architecture(
    name="random_forest",
    trainer="forest",
    summary="a forest of trees on rows drawn with replacement, over all rows at once",
    hyperparameters=HYPERPARAMETERS,
    build=lambda task, config: _parameters(config, is_random=False),
    size=forest_size,
    view="tree",
)
