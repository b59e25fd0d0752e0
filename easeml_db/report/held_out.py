"""What the best trial answers for held-out rows, as small columns for charts and as lines of HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from easeml_db.report.rows import Row, RunRows
from easeml_db.report.wording import metric_text

SQUARES = ("roc", "calibration", "residuals")
"""Charts with a diagonal."""

Columns = dict[str, list[Any]]

MOST_CLASSES_IN_MATRIX, MOST_CLASSES_IN_CURVES = 40, 10
MOST_POINTS, MOST_BARS = 400, 20
CHART_ORDER = ("confusion", "residuals", "roc", "calibration", "inputs", "hyperparameters")


def held_out_columns(rows: RunRows) -> dict[str, Columns]:
    """Return the data of the charts by name; one that has nothing to show is left out."""
    found = rows.held_out
    columns: dict[str, Columns] = {
        "confusion": _confusion(found.get("confusion", ())),
        "roc": _roc(found.get("roc", ())),
        "calibration": _calibration(found.get("calibration", ())),
        "residuals": _residuals(found.get("residuals", ())),
        "inputs": _inputs(found.get("inputs", ())),
        "hyperparameters": _hyperparameters(found.get("hyperparameters", ())),
    }
    shown = {name: each for name, each in columns.items() if any(map(len, each.values()))}
    return {**shown, **{f"{name}_diagonal": _diagonal(name, shown[name]) for name in SQUARES if name in shown}}


def score_lines(rows: RunRows) -> list[tuple[str, str, str, str]]:
    """Return (metric, validation, test, description) of each metric that is defined for either split."""
    found = []
    for row in rows.held_out.get("scores", ()):
        is_count = row["metric"].startswith("n_")
        values = [f"{row[split]:,.0f}" if is_count and row[split] is not None else metric_text(row[split])
                  for split in ("validation", "test")]  # fmt: skip
        if any(values):
            found.append((row["metric"], values[0], values[1], row["summary"]))
    return found


def thinned(rows: Sequence[Row], n_most: int = MOST_POINTS) -> list[Row]:
    """Return at most a number of rows, evenly spread, including the first and the last."""
    if len(rows) <= n_most:
        return list(rows)
    return [rows[round(k * (len(rows) - 1) / (n_most - 1))] for k in range(n_most)]


def _columns(rows: Sequence[Row], names: Mapping[str, str]) -> Columns:
    return {name: [_plain(row[column]) for row in rows] for name, column in names.items()}


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold, numbers with six digits."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _confusion(rows: Sequence[Row]) -> Columns:
    if len(rows) > MOST_CLASSES_IN_MATRIX**2:
        return {}
    return _columns(rows, {"actual": "actual", "predicted": "predicted", "n": "n_rows", "share": "share"})


def _by_class(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Return the rows of each class; none if there are too many classes to tell their curves apart."""
    names = dict.fromkeys(row["positive_class"] for row in rows)
    if len(names) > MOST_CLASSES_IN_CURVES:
        return []
    return [[row for row in rows if row["positive_class"] == name] for name in names]


def _roc(rows: Sequence[Row]) -> Columns:
    thin = [row for own in _by_class(rows) for row in thinned(own)]
    return _numbered(
        thin, {"name": "positive_class", "wrong": "false_positive_rate", "right": "true_positive_rate",
               "threshold": "threshold"},
    )  # fmt: skip


def _calibration(rows: Sequence[Row]) -> Columns:
    all_rows = [row for own in _by_class(rows) for row in own]
    return _numbered(
        all_rows, {"name": "positive_class", "said": "mean_probability", "seen": "positive_share", "n": "n_rows"}
    )


def _numbered(rows: Sequence[Row], names: Mapping[str, str]) -> Columns:
    """Return columns with the place of each row, so that a line connects consecutive rows."""
    return {**_columns(rows, names), "place": list(range(len(rows)))}


def _residuals(rows: Sequence[Row]) -> Columns:
    return _columns(thinned(rows), {"actual": "actual", "predicted": "predicted"})


def _diagonal(name: str, columns: Columns) -> Columns:
    """Return the ends of the line on which both axes say the same."""
    if name != "residuals":
        return {"at": [0.0, 1.0]}
    seen = [value for column in columns.values() for value in column]
    low, high = min(seen), max(seen)
    return {"at": [low, high] if low < high else [low - 1, high + 1]}


def _inputs(rows: Sequence[Row]) -> Columns:
    shown = rows[:MOST_BARS]
    spread = [(row["importance"], row["standard_deviation"]) for row in shown]
    return {
        "name": [row["input"] for row in shown],
        "importance": [_plain(mean) for mean, _ in spread],
        "low": [_plain(mean - deviation) for mean, deviation in spread],
        "high": [_plain(mean + deviation) for mean, deviation in spread],
    }


def _hyperparameters(rows: Sequence[Row]) -> Columns:
    shown = sorted(rows, key=lambda row: -row["importance"])[:MOST_BARS]
    return {
        "name": [f"{row['architecture']}: {row['hyperparameter']}" for row in shown],
        "importance": [_plain(row["importance"]) for row in shown],
    }
