"""Ensembles: weighted means of a run's own trials, made at its end. No user requests one, and no hyperparameter of it
is drawn.
"""

from __future__ import annotations

from easeml_plpy.architectures.contract import Architecture

ENSEMBLE = Architecture(
    name="ensemble",
    trainer="ensemble",
    summary="a weighted mean of trials of the run, chosen on its validation rows when it ends",
    hyperparameters=(),
    build=lambda task, config: None,  # the members are in the state
    view="combined",
    is_derived=True,
)
