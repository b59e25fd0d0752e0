"""Ensembles: weighted means of a run's own trials, made at its end. No user requests one, and no hyperparameter of it
is drawn.
"""

from __future__ import annotations

from easeml_plpy.architectures.config import Config
from easeml_plpy.architectures.contract import Architecture
from easeml_plpy.columns.task import Task


def _nothing(task: Task, config: Config) -> object:
    return None  # the members are in the state


ENSEMBLE = Architecture(
    name="ensemble",
    trainer="ensemble",
    summary="a weighted mean of trials of the run, chosen on its validation rows when it ends",
    hyperparameters=(),
    build=_nothing,
    view="combined",
    is_derived=True,
)
