"""The head of a report: the run in one line, and its key figures."""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.report.datasets import ChartData
from easeml_db.report.figures import Figures
from easeml_db.report.rows import RunRows
from easeml_db.report.wording import UNKNOWN, bytes_text, count_text, duration_text, metric_text, percent_text

NOTHING = "No unit is recorded yet."


@dataclass(frozen=True)
class KeyFigure:
    """A figure for people: its label, its value, and how it is computed."""

    name: str
    value: str
    note: str


def headline(rows: RunRows) -> str:
    """Run 3 on digits: finished."""
    return f"Run {rows.run['run_id']} on {rows.run['dataset_name']}: {rows.run['status']}"


def gantt_note(data: ChartData) -> str:
    """Return the note that explains the Gantt chart."""
    note = "Colour: trial. Height: tall is training, middle validation, low test."
    if data.figures.n_retried_units:
        note += " Red outline: recorded by a later attempt."
    if data.datasets["failures"]["trial"]:
        note += " Red cross: a lost attempt or a failed trial."
    return note


def key_figures(rows: RunRows, total: Figures) -> list[KeyFigure]:
    """Return the figures at the top of the page."""
    return [_best(rows), _makespan(total), _bound(total), _utilisation(total), _units(rows, total), _hopped(rows)]


def _best(rows: RunRows) -> KeyFigure:
    name = f"best {rows.run['metric']}"
    if rows.run["best_trial_id"] is None:
        return KeyFigure(name, UNKNOWN, "nothing is measured yet")
    best = next(trial for trial in rows.trials if trial["trial_id"] == rows.run["best_trial_id"])
    test = metric_text(best["test_metric"])
    note = f"trial {best['trial_id']}, {best['architecture']}" + (f"; {test} on the test rows" if test else "")
    return KeyFigure(name, metric_text(best["validation_metric"]), note)


def _makespan(total: Figures) -> KeyFigure:
    if not total.n_units:
        return KeyFigure("makespan", UNKNOWN, "nothing has run yet")
    if not total.pause_seconds:
        return KeyFigure("makespan", duration_text(total.makespan_seconds), "first start to last end")
    note = f"active; {duration_text(total.makespan_seconds)} with pauses of {duration_text(total.pause_seconds)}"
    return KeyFigure("makespan", duration_text(total.active_seconds), note)


def _bound(total: Figures) -> KeyFigure:
    if total.lower_bound_seconds is None or total.longest_trial_seconds is None or total.active_over_bound is None:
        return KeyFigure("lower bound", UNKNOWN, "nothing has run yet")
    is_trial = total.longest_trial_seconds >= total.busy_seconds / total.n_slots
    why = (
        f"longest trial ({total.longest_trial_id})" if is_trial else f"busy time / {count_text(total.n_slots, 'slot')}"
    )
    note = f"{why}; makespan is {total.active_over_bound:.2f} times that"
    return KeyFigure("lower bound", duration_text(total.lower_bound_seconds), note)


def _utilisation(total: Figures) -> KeyFigure:
    slots = f"{duration_text(total.busy_seconds)} busy on {count_text(total.n_slots, 'slot')}"
    return KeyFigure("utilisation", percent_text(total.utilisation), slots if total.n_units else "nothing has run yet")


def _units(rows: RunRows, total: Figures) -> KeyFigure:
    note = f"of {rows.run['n_units']:,} planned"
    if total.n_retried_units:
        note += f"; {total.n_retried_units:,} by a later attempt"
    return KeyFigure("units", f"{total.n_units:,}", note)


def _hopped(rows: RunRows) -> KeyFigure:
    traffic = rows.traffic
    note = f"{count_text(traffic['n_hops'], 'hop')}; {bytes_text(traffic['bytes_stored'])} stored"
    return KeyFigure("states hopped", bytes_text(traffic["bytes_hopped"]), note)
