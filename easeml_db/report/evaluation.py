"""Answers of the best trial on held-out rows, as small columns for charts and as lines of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from easeml_db.report.rows import Columns, Row, RunRows, columns_of, finite
from easeml_db.report.wording import metric_text

SQUARES = ("roc", "calibration", "residuals")
"""Charts with a diagonal."""

ROC = {
    "name": "positive_class", "wrong": "false_positive_rate", "right": "true_positive_rate", "threshold": "threshold"
}  # fmt: skip
CALIBRATION = {"name": "positive_class", "said": "mean_probability", "seen": "positive_share", "n": "n_rows"}
MOST_CLASSES_IN_MATRIX, MOST_CLASSES_IN_CURVES = 40, 10
MOST_POINTS, MOST_BARS = 400, 20
CHART_ORDER = ("confusion", "residuals", "roc", "calibration", "inputs", "hyperparameters")


def held_out_columns(rows: RunRows) -> dict[str, Columns]:
    """Return the data of the charts by name; one that has nothing to show is left out."""
    answers = {name: rows.held_out.get(name, ()) for name in CHART_ORDER}
    cells = answers["confusion"] if len(answers["confusion"]) <= MOST_CLASSES_IN_MATRIX**2 else ()
    hyperparameters = sorted(answers["hyperparameters"], key=lambda row: -row["importance"])[:MOST_BARS]
    columns: dict[str, Columns] = {
        "confusion": columns_of(cells, {"actual": "actual", "predicted": "predicted", "n": "n_rows", "share": "share"}),
        "roc": _curves(map(thinned, _by_class(answers["roc"])), ROC),
        "calibration": _curves(_by_class(answers["calibration"]), CALIBRATION),
        "residuals": columns_of(thinned(answers["residuals"]), {"actual": "actual", "predicted": "predicted"}),
        "inputs": _inputs(answers["inputs"][:MOST_BARS]),
        "hyperparameters": {
            "name": [f"{row['architecture']}: {row['hyperparameter']}" for row in hyperparameters],
            **columns_of(hyperparameters, {"importance": "importance"}),
        },
    }
    shown = {name: values for name, values in columns.items() if any(map(len, values.values()))}
    return {**shown, **{f"{name}_diagonal": _diagonal(name, shown[name]) for name in SQUARES if name in shown}}


def score_lines(rows: RunRows) -> list[tuple[str, str, str, str]]:
    """Return (metric, validation, test, description) of each metric that is defined for either split."""
    lines = []
    for row in rows.held_out.get("scores", ()):
        is_count = row["metric"].startswith("n_")
        values = [f"{row[split]:,.0f}" if is_count and row[split] is not None else metric_text(row[split])
                  for split in ("validation", "test")]  # fmt: skip
        if any(values):
            lines.append((row["metric"], values[0], values[1], row["summary"]))
    return lines


def thinned(rows: Sequence[Row], n_most: int = MOST_POINTS) -> list[Row]:
    """Return at most a number of rows, evenly spread, including the first and the last."""
    if len(rows) <= n_most:
        return list(rows)
    return [rows[round(k * (len(rows) - 1) / (n_most - 1))] for k in range(n_most)]


def _by_class(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Return the rows of each class; none if there are too many classes to tell their curves apart."""
    names = dict.fromkeys(row["positive_class"] for row in rows)
    if len(names) > MOST_CLASSES_IN_CURVES:
        return []
    return [[row for row in rows if row["positive_class"] == name] for name in names]


def _curves(curves: Iterable[Sequence[Row]], names: Mapping[str, str]) -> Columns:
    """Return columns with the place of each row, so that a line connects consecutive rows."""
    rows = list(chain.from_iterable(curves))
    return {**columns_of(rows, names), "place": list(range(len(rows)))}


def _diagonal(name: str, columns: Columns) -> Columns:
    """Return the ends of the line on which both axes have the same value."""
    if name != "residuals":
        return {"at": [0.0, 1.0]}
    seen = [value for column in columns.values() for value in column]
    low, high = min(seen), max(seen)
    return {"at": [low, high] if low < high else [low - 1, high + 1]}


def _inputs(rows: Sequence[Row]) -> Columns:
    """Return importances with the ends of a line from one standard deviation below to one above."""
    ends = {
        name: [finite(row["importance"] + sign * row["standard_deviation"]) for row in rows]
        for name, sign in (("low", -1), ("high", 1))
    }
    return {**columns_of(rows, {"name": "input", "importance": "importance"}), **ends}
