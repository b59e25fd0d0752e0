"""The product on a table: asked through SQL, as a user would ask it, and scored on its own test rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from psycopg.types.json import Jsonb

from easeml_db import __version__
from easeml_db.errors import EasemlError
from easeml_experiments.experiment_server import ExperimentServer, Session, wait_until_ended
from easeml_experiments.tables.loading import KEY
from easeml_experiments.tables.scoring import score_of
from easeml_experiments.tables.splitting import Loaded, digest_of, mark_test_rows, pack
from easeml_experiments.tables.table import Table

Arguments = Mapping[str, Any]
DEFAULT_SECONDS = 120.0  # of the product's search
N_TRIALS_SHOWN = 12


def arguments(*, seconds: float, seed: int, is_quick: bool = False) -> dict[str, Any]:
    """Return the arguments of easeml.select_models beside the dataset's name: the seed alone, as of a user who chooses
    nothing, and the time where it is not the product's own.

    The quick form is bounded by epochs, so that it ends alike everywhere.
    """
    if is_quick:
        return {"architectures": ["linear"], "n_configs": 2, "max_epochs": 2, "seed": seed}
    return {"seed": seed} | ({} if seconds == DEFAULT_SECONDS else {"max_seconds": seconds})


def run(server: ExperimentServer, loaded: Loaded, asked: Arguments) -> dict[str, Any]:
    """Pack a loaded table, select, predict for its test rows; return scores, times and the first trials.

    What the product refuses, or fails at, is a result too: `failure`.
    """
    table = loaded.table
    known = {"version": __version__, "split": digest_of(loaded.splits), "arguments": dict(asked)}
    with server.coordinator(), server.session() as session:
        launched = time.time()
        try:
            pack(session, table, loaded.inputs, loaded.seed)
            packed = time.time()
            run_id = ask(session, table.name, asked)
            ended = wait_until_ended(session, run_id)["finished"]
            found = _found(session, loaded, run_id)
        except (EasemlError, psycopg.Error) as error:
            return known | {"failure": " ".join(str(error).split())}
        times = {"seconds": ended - launched, "packing_seconds": packed - launched}
        return known | times | found | {"curve": _curve(session, table, run_id, launched)}


def ask(session: Session, dataset: str, asked: Arguments) -> int:
    """Queue a run; return its number."""
    named = [sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in asked]
    call = sql.SQL("SELECT easeml.select_models({}) AS run_id").format(
        sql.SQL(", ").join([sql.SQL("dataset => {}").format(sql.Literal(dataset)), *named])
    )
    values = {name: Jsonb(value) if isinstance(value, dict) else value for name, value in asked.items()}
    return int(session.execute(call, values).fetchall()[0]["run_id"])


def _found(session: Session, loaded: Loaded, run_id: int) -> dict[str, Any]:
    """Return what the run has found: its best trials, and their predictions' score."""
    trials = session.execute(
        "SELECT rank, trial_id, architecture, status, validation_metric, test_metric, best_epoch, n_epochs_done,"
        " config, failure_reason FROM easeml.leaderboard WHERE run_id = %s ORDER BY rank, trial_id", [run_id]
    ).fetchall()  # fmt: skip
    started = time.time()
    score = _score(session, loaded.table, loaded.splits)
    return {
        **score,
        "prediction_seconds": time.time() - started,
        "n_trials": len(trials),
        "n_epochs": sum(trial["n_epochs_done"] or 0 for trial in trials),
        "validation_metric": trials[0]["validation_metric"],
        "test_metric": trials[0]["test_metric"],
        "architecture": trials[0]["architecture"],
        "trials": trials[:N_TRIALS_SHOWN],
    }


def _score(session: Session, table: Table, splits: NDArray[np.str_]) -> dict[str, Any]:
    """Predict for the test rows with the trial that answers by itself, and compare."""
    source, output = mark_test_rows(session, table, splits), f"{table.name}_predicted"
    session.execute("SELECT easeml.predict_table(%s, %s, %s)", [table.name, f'"{source}"', f'"{output}"'])
    predicted = "predicted_label" if table.task == "classification" else "predicted_value"
    query = "SELECT t.{}::text AS truth, p.{}::text AS predicted FROM {} t JOIN {} p USING ({})"
    names = (table.target, predicted, table.name, output, KEY)
    rows = session.execute(sql.SQL(query).format(*map(sql.Identifier, names))).fetchall()
    kind: Any = str if table.task == "classification" else float
    truth, answers = (np.array([row[name] for row in rows]).astype(kind) for name in ("truth", "predicted"))
    score = score_of(table.metric, truth, answers)
    return {"score": score.value, "standard_error": score.standard_error, "n_scored_rows": len(rows)}


def _curve(session: Session, table: Table, run_id: int, launched: float) -> list[tuple[float, float]]:
    """Return each improvement of the best validation metric, with its seconds since the call."""
    rows = session.execute(
        "SELECT extract(epoch FROM measured_at)::float8 AS at, validation_metric AS value FROM easeml.learning_curves"
        " WHERE run_id = %s AND validation_metric IS NOT NULL ORDER BY measured_at", [run_id]
    ).fetchall()  # fmt: skip
    curve: list[tuple[float, float]] = []
    for row in rows:
        best = curve[-1][1] if curve else None
        if best is None or (row["value"] > best if table.is_higher_better else row["value"] < best):
            curve.append((row["at"] - launched, row["value"]))
    return curve
