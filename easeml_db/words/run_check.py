"""Whether the rows of a run are consistent: checked once on reading, so that no later step has to check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from easeml_db.errors import InvalidData
from easeml_db.words.run import Run
from easeml_db.words.training_unit import n_steps_total
from easeml_db.words.trial import Trial

RULES: Mapping[str, Callable[[Trial], bool]] = MappingProxyType(
    {
        "its dataset has no partitions": lambda trial: trial.n_partitions >= 1,
        "it has no epochs to train": lambda trial: trial.max_epochs >= 1,
        "its target is not within its epochs": lambda trial: 1 <= trial.due_epochs <= trial.max_epochs,
        "more steps are done than it has": lambda trial: (
            0 <= trial.n_steps_done <= n_steps_total(trial.n_partitions, trial.max_epochs)
        ),
        "it has met partitions that there are not": lambda trial: trial.met <= set(range(trial.n_partitions)),
    }
)


def check_run(run: Run) -> None:
    """Raise InvalidData for a run that cannot be served."""
    if not run.trials:
        raise InvalidData(f"run {run.run_id} has no trials")
    n_partitions = run.trials[0].n_partitions
    if run.holders is not None and len(run.holders) != n_partitions:
        raise InvalidData(
            f"run {run.run_id}: its dataset has {n_partitions} partition(s), and {len(run.holders)} are there"
        )
    for trial in run.trials:
        for objection, is_kept in RULES.items():
            if not is_kept(trial):
                raise InvalidData(f"run {run.run_id}, trial {trial.trial_number}: {objection}")
