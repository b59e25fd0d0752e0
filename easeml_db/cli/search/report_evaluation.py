"""The evaluation section of a report: results of SQL functions about the best trial on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from easeml_db.cli.terminal.statements import Connection, Row, call_rows
from easeml_db.postgres.connection import server_error

OF_CLASSES = {"confusion": "confusion_matrix", "roc": "roc_curve", "calibration": "calibration"}
OF_NUMBERS = {"residuals": "residuals"}
N_EXPLAINED_ROWS = 500

HeldOut = Mapping[str, Sequence[Row]]


def read_held_out(connection: Connection, run: Row) -> tuple[HeldOut, str | None]:
    """Return rows by subject, or why there are none: no trial is measured, or the caller may not see the rows.

    Runs in the caller's transaction, so that the trial is the one that its snapshot shows.
    """
    if run["best_trial_id"] is None:
        return {}, "no trial is measured yet"
    dataset, trial_id = f"{run['tenant']}.{run['dataset_name']}", run["best_trial_id"]
    try:
        with connection.transaction():
            answers = {"scores": call_rows(connection, "evaluate", dataset, trial_id)}
            for subject, function in (OF_NUMBERS if run["task"] == "regression" else OF_CLASSES).items():
                answers[subject] = call_rows(connection, function, dataset, trial_id)
            answers["inputs"] = call_rows(connection, "explain", dataset, trial_id, n_rows=N_EXPLAINED_ROWS)
    except psycopg.Error as error:
        if not _is_refusal(error):
            raise
        return {}, server_error(error).message
    return {**answers, "hyperparameters": _hyperparameters(connection, run["run_id"])}, None


def _hyperparameters(connection: Connection, run_id: int) -> Sequence[Row]:
    """Return importances, none where too few trials differ."""
    try:
        with connection.transaction():
            return call_rows(connection, "hyperparameter_importance", run_id)
    except psycopg.Error as error:
        if not _is_refusal(error):
            raise
        return []


def _is_refusal(error: psycopg.Error) -> bool:
    return (error.sqlstate or "").startswith("ML")
