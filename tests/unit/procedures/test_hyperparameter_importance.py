"""Importance of hyperparameters: what decides the metric comes first, whatever its kind; little is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from easeml_db.decisions.procedures.hyperparameter_importance import hyperparameter_importances

SPECS: list[dict[str, Any]] = [
    {"name": "rate", "kind": "float", "default": 0.1, "low": 1e-4, "high": 1, "log": True},
    {"name": "size", "kind": "integers", "default": [8], "low": 1, "high": 512},
    {"name": "loss", "kind": "categorical", "default": "a", "choices": ["a", "b", "c"]},
    {"name": "fixed", "kind": "integer", "default": 3, "low": 1, "high": 9},
]


def trials(n: int, decides: str, architecture: str = "net") -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(n):
        config = {
            "rate": float(10 ** rng.uniform(-4, 0)),
            "size": [[8], [16], [16, 16]][rng.integers(3)],
            "loss": "abc"[rng.integers(3)],
        }
        worth = {"rate": np.log10(config["rate"]), "size": sum(config["size"]), "loss": "abc".index(config["loss"])}
        value = float(worth[decides] + rng.normal() / 100)
        found.append({"architecture": architecture, "config": config, "value": value})
    return found


def importances(given: list[dict[str, Any]], **specs: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(hyperparameter_importances(json.dumps(given), json.dumps(specs)))
    return found


@pytest.mark.parametrize("decides", ["rate", "size", "loss"])
def test_what_decides_the_metric_is_most_important(decides: str) -> None:
    found = importances(trials(30, decides), net=SPECS)
    assert found[0]["hyperparameter"] == decides
    assert found[0]["importance"] > 0.8
    assert {row["hyperparameter"] for row in found} == {"rate", "size", "loss"}, "one that never varied is left out"
    assert {row["n_trials"] for row in found} == {30}
    assert found == importances(trials(30, decides), net=SPECS)


def test_each_architecture_is_judged_by_its_own_trials() -> None:
    given = trials(20, "rate") + trials(20, "loss", "other") + trials(3, "rate", "few")
    found = importances(given, net=SPECS, other=SPECS, few=SPECS)
    firsts = {row["architecture"]: row["hyperparameter"] for row in reversed(found)}
    assert firsts == {"net": "rate", "other": "loss"}


def test_nothing_that_varied_gives_no_row() -> None:
    alike = [{"architecture": "net", "config": {"rate": 0.1}, "value": value} for value in (1.0, 2.0, 3.0, 4.0)]
    assert importances(alike, net=SPECS) == []
    assert importances([], net=SPECS) == []


def test_a_metric_that_is_the_same_in_all_trials_has_no_cause() -> None:
    found = importances([trial | {"value": 1.0} for trial in trials(5, "rate")], net=SPECS)
    assert {row["hyperparameter"]: row["importance"] for row in found} == {"rate": 0, "size": 0, "loss": 0}
