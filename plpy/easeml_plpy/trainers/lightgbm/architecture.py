"""Gradient boosted trees (LightGBM): all rows at once, one epoch a number of rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.architectures.hyperparameter import Hyperparameter, magnitude
from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.tables.target_transforms import TARGET_TRANSFORM, object_to_transform
from easeml_plpy.columns.task import Task
from easeml_plpy.server.value_types import JSON

HISTOGRAM_MEGABYTES = 512
"""What histograms of leaves may take; beyond it LightGBM computes some of them twice."""
BIN_SEED = 1
NUMBERS = ("learning_rate", "lambda_l2", "feature_fraction", "bagging_fraction", "cat_smooth")


@dataclass(frozen=True)
class LightGBMParameters:
    """Parameters of LightGBM: those of its binned rows, which trials can share, and those of its trees.

    An epoch adds `rounds_per_epoch` rounds, of `n_margins` trees each. With `is_balanced` all classes have the same
    weight.
    """

    rows: Mapping[str, JSON]
    trees: Mapping[str, JSON]
    rounds_per_epoch: int
    n_margins: int
    is_balanced: bool


def build_lightgbm(task: Task, config: Config) -> LightGBMParameters:
    """Return LightGBM's parameters."""
    bagging = config.number("bagging_fraction")
    trees: dict[str, JSON] = {name: config.integer(name) for name in ("num_leaves", "min_data_in_leaf", "max_depth")}
    trees |= {name: config.number(name) for name in NUMBERS}
    return LightGBMParameters(
        rows={"max_bin": config.integer("max_bin"), "data_random_seed": BIN_SEED, "feature_pre_filter": False},
        trees={
            **trees,
            **_objective(task),
            **constraints(task, config),
            "bagging_freq": int(bagging < 1),
            "histogram_pool_size": HISTOGRAM_MEGABYTES,
        },
        rounds_per_epoch=rounds_per_epoch(task, config),
        n_margins=n_margins(task),
        is_balanced=config.text("class_weight") == "balanced",
    )


def constraints(task: Task, config: Config) -> dict[str, JSON]:
    """Return what trees may not do, by the number of each column."""
    parameters: dict[str, JSON] = {}
    rising, falling = config.names("increasing"), config.names("decreasing")
    if rising or falling:
        signs = [(not c.part) * ((c.field in rising) - (c.field in falling)) for c in task.layout]
        parameters["monotone_constraints"] = signs
    groups = config.groups("interactions")
    if groups:
        others = {column.field for column in task.layout} - {name for group in groups for name in group}
        every = [*groups, *([name] for name in sorted(others))]
        columns = [[k for k, column in enumerate(task.layout) if column.field in group] for group in every]
        parameters["interaction_constraints"] = columns
    return parameters


def lightgbm_objection(task: Task, config: Config) -> str | None:
    """Return which column of a constraint does not exist or cannot have it, or why targets cannot be transformed."""
    objection = object_to_transform(task, config)
    if objection:
        return objection
    kinds = {column.field: "array" if column.part else column.kind for column in reversed(task.layout)}
    signed = config.names("increasing") + config.names("decreasing")
    for name in [*signed, *(name for group in config.groups("interactions") for name in group)]:
        if name not in kinds:
            return f"there is no input {name!r}; the inputs are {', '.join(reversed(kinds))}"
    for name in signed:
        if kinds[name] != "number":
            return f"{name} is no single number ({kinds[name]}), so the answer cannot increase or decrease with it"
        if signed.count(name) > 1:
            return f"the answer cannot both increase and decrease with {name}, or be told twice to"
    if signed and n_margins(task) > 1:
        return "with more than two classes no answer can increase or decrease with an input"
    return None


def n_margins(task: Task) -> int:
    """Return how many numbers trees sum up for a row: one for two classes, else one for each output."""
    return 1 if task.kind == "classification" and task.n_outputs == 2 else task.n_outputs


def rounds_per_epoch(task: Task, config: Config) -> int:
    """Return how many rounds make a number of trees; with many classes a round has many trees."""
    return max(1, config.integer("trees_per_epoch") // n_margins(task))


def _objective(task: Task) -> dict[str, str | int]:
    if task.kind == "regression":
        return {"objective": "regression"}
    if n_margins(task) == 1:
        return {"objective": "binary"}
    return {"objective": "multiclass", "num_class": task.n_outputs}


def lightgbm_size(task: Task, config: Config) -> Size:
    """Return the leaves that an epoch adds at most, the numbers of a row and its margins."""
    n_leaves = rounds_per_epoch(task, config) * n_margins(task) * config.integer("num_leaves")
    return Size(n_leaves, task.n_features, n_margins(task))


ARCHITECTURE = Architecture(
    name="lightgbm",
    trainer="boosting",
    summary="gradient boosted trees over all rows at once (LightGBM); an epoch adds rounds",
    hyperparameters=(
        magnitude(
            "learning_rate", 0.1, "the share of each tree that is added", legal=(1e-4, 1.0), search=(0.04, 0.2)
        ),
        Hyperparameter(
            "num_leaves", "integer", 31, "the leaves of a tree at most", low=2, high=4096, log=True,
            search={"type": "integer", "low": 15, "high": 255, "log": True},
        ),
        Hyperparameter(
            "max_depth", "integer", -1, "the depth of a tree at most, -1 for any", low=-1, high=64,
        ),
        Hyperparameter(
            "min_data_in_leaf", "integer", 20, "the rows of a leaf at least", low=1, high=1_000_000, log=True,
            search={"type": "integer", "low": 3, "high": 100, "log": True},
        ),
        Hyperparameter(
            "feature_fraction", "float", 1.0, "the share of the columns that a tree may use", low=0.01, high=1.0,
            search={"type": "float", "low": 0.5, "high": 1.0},
        ),
        Hyperparameter(
            "bagging_fraction", "float", 1.0, "the share of the rows that a tree is fitted to", low=0.01, high=1.0,
            search={"type": "float", "low": 0.5, "high": 1.0},
        ),
        magnitude(
            "lambda_l2", 1e-3, "the penalty on the values of leaves", legal=(1e-9, 1e6), search=(1e-3, 10.0)
        ),
        magnitude(
            "cat_smooth", 10.0, "how far the statistics of rare categories are trusted less",
            legal=(1e-3, 1e6), search=(1.0, 100.0),
        ),
        Hyperparameter("max_bin", "integer", 255, "the intervals of a number at most", low=3, high=65_535),
        Hyperparameter(
            "trees_per_epoch", "integer", 50, "the trees that an epoch adds, a round of one for each class at least",
            low=1, high=10_000, log=True,
        ),
        Hyperparameter(
            "class_weight", "categorical", "none", "whether rows of rare classes weigh more",
            choices=("none", "balanced"),
        ),
        TARGET_TRANSFORM,
        Hyperparameter("increasing", "names", [], "the inputs with which the answer never decreases"),
        Hyperparameter("decreasing", "names", [], "the inputs with which the answer never increases"),
        Hyperparameter("interactions", "groups", [], "groups of inputs that may act together; others act alone"),
    ),
    build=build_lightgbm,
    size=lightgbm_size,
    view="tree",
    config_objection=lightgbm_objection,
)  # fmt: skip
