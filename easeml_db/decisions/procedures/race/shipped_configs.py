"""The portfolio that is shipped: by architecture, configs that were good across tables or pictures, the best
on average first.

docs/design/defaults.md says on what they were measured. What a config does not name keeps the default of the
architecture, so {} is the config of all defaults; it is also what an architecture begins with that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

SHIPPED: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType(
    {
        "sgd": ({"alpha": 1e-5, "schedule": "optimal"}, {}),
        "lenet": ({"width": 2, "dropout": 0.2}, {}),
        "lightgbm": (
            {},
            {
                "learning_rate": 0.03, "num_leaves": 15, "min_data_in_leaf": 10, "feature_fraction": 0.7,
                "bagging_fraction": 0.8, "lambda_l2": 1.0, "trees_per_epoch": 150,
            },
            {
                "learning_rate": 0.05, "num_leaves": 63, "min_data_in_leaf": 50, "feature_fraction": 0.5,
                "bagging_fraction": 0.9, "lambda_l2": 10.0, "trees_per_epoch": 100,
            },
            {
                "learning_rate": 0.03, "num_leaves": 31, "min_data_in_leaf": 3, "feature_fraction": 0.5,
                "bagging_fraction": 0.6, "lambda_l2": 0.1, "cat_smooth": 50.0, "trees_per_epoch": 150,
            },
            {"learning_rate": 0.05, "num_leaves": 4, "min_data_in_leaf": 10, "trees_per_epoch": 100},
        ),
    }
)  # fmt: skip

SKEWED: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType(
    {"lightgbm": ({"target_transform": "logarithm"}, {"target_transform": "root"})}
)
"""Where targets are skewed, so that a search tries transforms of them: what comes after the first of the shipped."""
