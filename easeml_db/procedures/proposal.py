"""The trials that a run starts with: functions from JSON to JSON, called in the server and from Python."""

from __future__ import annotations

import json

from easeml_db.procedures import PROCEDURES
from easeml_db.procedures.contract import Start
from easeml_db.procedures.creation import create_procedure
from easeml_db.search_space.refusal import unknown_name


def propose(
    architectures_json: str,
    search_space_json: str | None,
    procedure: str,
    n_configs: int | None,
    seed: int,
) -> str:
    """Return all configs of a one-shot procedure as a JSON array of objects, in the order of their trials.

    Other procedures are refused: what they start depends on max_epochs, their options and results.
    """
    one_shot = [name for name, factory in PROCEDURES.items() if factory.description.is_one_shot]
    if procedure not in one_shot:
        raise unknown_name("procedure", procedure, one_shot, expected="a one-shot procedure")
    made = create_procedure(
        architectures_json, search_space_json, procedure, n_configs=n_configs, max_epochs=1, seed=seed
    )
    return json.dumps([decision.config for decision in made.ask([]) if isinstance(decision, Start)])


def first_decisions(
    architectures_json: str,
    search_space_json: str | None,
    procedure: str,
    n_configs: int | None,
    max_epochs: int,
    seed: int,
    options_json: str | None,
) -> str:
    """Return the first trials of any procedure: a JSON array of {"config", "n_epochs"}, in their order.

    n_epochs null stands for max_epochs.
    """
    made = create_procedure(
        architectures_json,
        search_space_json,
        procedure,
        n_configs=n_configs,
        max_epochs=max_epochs,
        seed=seed,
        options_json=options_json,
    )
    starts = [decision for decision in made.ask([]) if isinstance(decision, Start)]
    return json.dumps([{"config": start.config, "n_epochs": start.n_epochs} for start in starts])
