"""What a run may cost at most, before it starts: a function from JSON to JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from easeml_db.procedures.creation import create_procedure


def preview(
    architectures_json: str,
    search_space_json: str | None,
    procedure: str,
    n_configs: int | None,
    max_epochs: int,
    seed: int,
    options_json: str | None,
) -> str:
    """Return the rungs of a run as a JSON array of {bracket, rung, n_trials, n_epochs, total_epochs}.

    n_epochs is what a trial of the rung has in total, total_epochs the work of all trials of the rung beyond the
    rung before. For asha these are caps; for pbt a rung is a round, and each round replaces some trials.
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
    return json.dumps([asdict(rung) for rung in made.preview()])
