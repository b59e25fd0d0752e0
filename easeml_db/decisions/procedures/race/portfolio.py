"""Configs to try first: good ones across datasets, from the database's own history, or the shipped ones without a
history.

Greedy cover over past measurements ranks them: the first config is the best on average, and each further one helps most
where the earlier ones are weak. A run tries them before its own proposals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from easeml_db.decisions.procedures.race.shipped_configs import SHIPPED, SKEWED
from easeml_db.decisions.search_space.configs import config_of
from easeml_db.decisions.search_space.parsing import Specs, space_of, specs_of
from easeml_db.decisions.search_space.specs import RESERVED
from easeml_db.errors import InvalidArgument

N_OF_HISTORY = 3  # configs that history adds before the shipped ones
LEAST_DATASETS = 3  # on which trials of an architecture were measured, before history counts
LEAST_TRIALS = 2  # of an architecture on one dataset: one alone is no better than any other

Config = dict[str, Any]
Losses = Mapping[str, Mapping[str, float]]
"""By dataset and config (as sorted JSON): 0 for the best trial on that dataset, 1 for the worst."""


def choose_portfolio(specifications: str, measured: str | None) -> str:
    """Return the configs to try first, as a JSON object {architecture: [config, ...]}.

    `specifications` is a JSON array of {"architecture", "hyperparameters"}; `measured` one of {"architecture",
    "dataset", "config", "quality"} of a tenant's earlier trials, quality from 0 to 1. A dataset is the same in all its
    versions. Configs that are not legal any more are left out.
    """
    rows = json.loads(measured or "[]")
    specs = {declared["architecture"]: declared["hyperparameters"] for declared in json.loads(specifications)}
    return json.dumps({name: _configs_of(name, specs[name], rows) for name in specs})


def _configs_of(name: str, specs: object, rows: Sequence[Mapping[str, Any]]) -> list[Config]:
    losses = losses_of([row for row in rows if row["architecture"] == name])
    learnt = greedy_cover(losses, N_OF_HISTORY) if len(losses) >= LEAST_DATASETS else []
    shipped = [json.dumps(config, sort_keys=True) for config in _shipped(name, specs)]
    parsed = specs_of({name: specs})
    completed = [_completed(name, parsed, json.loads(text)) for text in dict.fromkeys([*learnt, *shipped])]
    return list({json.dumps(config): config for config in completed if config is not None}.values())


def _shipped(name: str, specs: Any) -> Sequence[Mapping[str, Any]]:
    first, *others = SHIPPED.get(name, ({},))
    is_skewed = any(spec["name"] == "target_transform" and spec["search"] for spec in specs)
    return [first, *(SKEWED.get(name, ()) if is_skewed else ()), *others]


def _completed(name: str, specs: Specs, config: Config) -> Config | None:
    """Return a config completed with defaults; None if it is not legal."""
    try:
        space = space_of(specs, {name: {key: [value] for key, value in config.items()}})
    except InvalidArgument:
        return None
    (subspace,) = space.subspaces
    whole = config_of(subspace, [next(iter(dimension.domain.values())) for dimension in subspace.dimensions])
    return {key: value for key, value in whole.items() if key != RESERVED}


def losses_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return how far each config was from the best one of its dataset, as a share of the range of configs there."""
    best: dict[str, dict[str, float]] = {}
    for row in rows:
        of_dataset = best.setdefault(str(row["dataset"]), {})
        text = json.dumps(row["config"], sort_keys=True)
        of_dataset[text] = max(of_dataset.get(text, 0.0), float(row["quality"]))
    return {name: _losses(qualities) for name, qualities in best.items() if len(qualities) >= LEAST_TRIALS}


def _losses(qualities: Mapping[str, float]) -> dict[str, float]:
    high, low = max(qualities.values()), min(qualities.values())
    return {text: (high - quality) / (high - low) if high > low else 0.0 for text, quality in qualities.items()}


def greedy_cover(losses: Losses, n_configs: int) -> list[str]:
    """Return configs in the order in which each lowers the mean loss most, over all datasets; where a config was not
    tried it loses all. Configs that help nowhere any more are left out; ties go to the first in the alphabet."""
    candidates = sorted({text for of_dataset in losses.values() for text in of_dataset})
    chosen: list[str] = []
    left = dict.fromkeys(losses, 1.0)
    while len(chosen) < n_configs:
        gains = {text: _gain(text, losses, left) for text in candidates}
        text = max(candidates, key=gains.__getitem__, default=None)
        if text is None or gains[text] <= 0:
            break
        chosen.append(text)
        left = {name: min(loss, losses[name].get(text, 1.0)) for name, loss in left.items()}
    return chosen


def _gain(text: str, losses: Losses, left: Mapping[str, float]) -> float:
    return sum(max(0.0, loss - losses[name].get(text, 1.0)) for name, loss in left.items())
