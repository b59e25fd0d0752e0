"""Limits of a run whose user left some out: time by default, epochs or trials if those were given."""

from __future__ import annotations

import json

DEFAULT_SECONDS = 120.0  # of a run that is bounded neither in time, nor in epochs, nor in trials
MOST_EPOCHS = 100  # of a trial of a run that is not bounded in epochs: patience ends nearly all of them before
TIMED, COUNTED = "race", "random"  # the procedure of a run where none was asked for, without and with max_epochs


def complete_budget(
    procedure: str | None, n_configs: int | None, max_epochs: int | None, max_seconds: float | None
) -> str:
    """Return the limits of a run as a JSON object {"procedure", "max_epochs", "max_seconds"}.

    With max_epochs and without max_seconds no clock decides: the same seed gives the same bytes.
    """
    if max_seconds is None and max_epochs is None and n_configs is None:
        max_seconds = DEFAULT_SECONDS
    return json.dumps({
        "procedure": procedure if procedure is not None else TIMED if max_epochs is None else COUNTED,
        "max_epochs": MOST_EPOCHS if max_epochs is None else max_epochs,
        "max_seconds": max_seconds,
    })  # fmt: skip
