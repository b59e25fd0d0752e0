"""Forecasts of a run beside what happened: data of a chart, and a sentence."""

from __future__ import annotations

from easeml_db.report.rows import Columns, Row, RunRows
from easeml_db.report.wording import billing_text, cost_text, duration_text

TENTH = 0.1


def forecast_columns(rows: RunRows) -> dict[str, Columns]:
    """Return the columns of the chart of forecasts; empty if there are fewer than two forecasts."""
    if len(rows.forecasts) < 2:
        return {}
    names = {"made": "made_seconds", "expected": "eta_seconds", "least": "earliest_seconds", "most": "latest_seconds"}
    lines = {name: [round(row[column], 2) for row in rows.forecasts] for name, column in names.items()}
    end = seconds_in_all(rows.run)
    return {"forecasts": lines, "forecast_end": {"end": [] if end is None else [round(end, 2)]}}


def seconds_in_all(run: Row) -> float | None:
    """Return how long a run took since its last start; None while it has not ended."""
    if run["finished_at"] is None or run["started_at"] is None:
        return None
    return float((run["finished_at"] - run["started_at"]).total_seconds())


def forecast_sentences(rows: RunRows) -> list[str]:
    """Return sentences on the forecast after a tenth of the time and the outcome of the run; while it runs, on the
    newest forecast.
    """
    run, end = rows.run, seconds_in_all(rows.run)
    cost = f"cost {cost_text(run['cost_so_far'])}, {billing_text(run['price_list'])}"
    outcome = f"It took {duration_text(end)} and {cost}." if end is not None else f"So far it {cost}."
    if not rows.forecasts:
        return [outcome]
    row = rows.forecasts[-1]
    if end is not None:
        row = next((later for later in rows.forecasts if later["made_seconds"] >= TENTH * end), row)
    interval = f"in 90 of 100 cases {duration_text(row['earliest_seconds'])} to {duration_text(row['latest_seconds'])}"
    return [
        f"{duration_text(row['made_seconds'])} after its start the run was expected to take"
        f" {duration_text(row['eta_seconds'])} ({interval}), and to cost {cost_text(row['cost_expected'])}. {outcome}"
    ]
