"""The data behind the charts: small columns, so that a page of 20,000 units stays small.

Ids and short codes travel once for each unit; names of trials and slots are looked up by the charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from easeml_db.report.evaluation import held_out_columns
from easeml_db.report.figures import KINDS, Figures, busy_over_time, figures
from easeml_db.report.forecasts import forecast_columns
from easeml_db.report.rows import Columns, Row, RunRows, finite
from easeml_db.report.timeline import Timeline, timeline
from easeml_db.report.wording import duration_text, metric_text, percent_text

# After Paul Tol's "muted" scheme: hues that remain distinct under the common forms of colour blindness, and a grey.
HUES = ("#332288", "#CC6677", "#44AA99", "#DDAA33", "#117733", "#88CCEE", "#882255", "#999933", "#AA4499", "#4D4D4D")
FAILURES = {"failed": "trial failed", "retry": "attempt lost"}
FAILURE_LANE = "failures"


@dataclass(frozen=True)
class ChartData:
    """The inputs of a run's charts: its rows, timeline and figures, how many trials to list, hues, data by name. Hues
    follow the leaderboard: the best trials have hues of their own, later ones reuse them.
    """

    rows: RunRows
    line: Timeline
    figures: Figures
    n_top: int
    hues: dict[int, int]
    datasets: dict[str, Columns]
    slot_lanes: list[str]
    trial_lanes: list[str]

    @property
    def n_in_colour(self) -> int:
        """How many of the best trials are highlighted in the learning curves: at most one for each hue."""
        return min(self.n_top, len(HUES))

    @property
    def has_only_top(self) -> bool:
        """Whether only the best trials are drawn."""
        return len(self.rows.trials) <= self.n_in_colour


def chart_data(rows: RunRows, *, n_top: int) -> ChartData:
    """Prepare a run for drawing; the `n_top` best trials are highlighted in the learning curves, at most one for each
    hue.
    """
    line = timeline(rows.units)
    run_figures = figures(line)
    hues = {trial["trial_id"]: place % len(HUES) for place, trial in enumerate(rows.trials)}
    slots = slot_names(rows.slots, [use.slot_id for use in run_figures.slots])
    trials = {trial["trial_id"]: f"{trial['trial_id']} {trial['architecture']}" for trial in rows.trials}
    top = {trial["trial_id"] for trial in rows.trials[: min(n_top, len(HUES))]}
    datasets: dict[str, Columns] = {
        "units": _units(line, hues),
        "trials": {"trial": list(trials), "trial_name": list(trials.values())},
        "slots": {"slot": list(slots), "slot_name": list(slots.values())},
        "failures": _failures(rows.events, line, hues),
        "pauses": _pauses(line),
        "curves": _curves(rows.curves, hues, top),
        "busy": _busy(line),
        "uses": _uses(run_figures, slots),
        "use_labels": _use_labels(run_figures, slots),
        "best": _best(rows.trials[: len(HUES)], hues),
        **forecast_columns(rows),
        **held_out_columns(rows),
    }
    by_number = sorted(rows.trials, key=lambda trial: int(trial["trial_number"]))
    lanes = [trials[trial["trial_id"]] for trial in by_number]
    return ChartData(rows, line, run_figures, n_top, hues, datasets, list(slots.values()), lanes)


def as_rows(columns: Columns) -> list[dict[str, Any]]:
    """Return columns as the rows that Vega reads."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def slot_names(slots: Sequence[Row], used: Sequence[int]) -> dict[int, str]:
    """Return distinct names of the slots that ran a unit; a slot that has since been removed is named by its number."""
    named = {slot["slot_id"]: slot["slot_name"] for slot in slots}
    names = {slot_id: named.get(slot_id, f"slot {slot_id}") for slot_id in used}
    taken = list(names.values())
    return {slot_id: name if taken.count(name) == 1 else f"{name} ({slot_id})" for slot_id, name in names.items()}


def _columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Columns:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _units(line: Timeline, hues: dict[int, int]) -> Columns:
    names = ("trial", "hue", "kind", "epoch", "partition", "slot", "attempt", "begin", "end")
    return _columns(
        names,
        (
            (u.trial_id, hues.get(u.trial_id, 0), KINDS.index(u.kind), u.epoch, u.partition_number, u.slot_id,
             u.attempt, round(u.begin_seconds, 4), round(u.end_seconds, 4))
            for u in line.units
        ),
    )  # fmt: skip


def _failures(events: Sequence[Row], line: Timeline, hues: dict[int, int]) -> Columns:
    return _columns(
        ("trial", "begin", "what", "message"),
        (
            (event["trial_id"], round(line.active(event["happened_seconds"]), 4), FAILURES[event["kind"]],
             event["message"])
            for event in events
            if event["kind"] in FAILURES and event["trial_id"] in hues
        ),
    )  # fmt: skip


def _pauses(line: Timeline) -> Columns:
    return _columns(
        ("at", "label"), ((pause.at_seconds, f"pause of {duration_text(pause.seconds)}") for pause in line.pauses)
    )


def _curves(curves: Sequence[Row], hues: dict[int, int], top: set[int]) -> Columns:
    return _columns(
        ("trial", "hue", "is_top", "epoch", "loss", "metric"),
        (
            (c["trial_id"], hues.get(c["trial_id"], 0), c["trial_id"] in top, c["epoch"],
             finite(c["training_loss"]), finite(c["validation_metric"]))
            for c in curves
        ),
    )  # fmt: skip


def _busy(line: Timeline) -> Columns:
    bins = busy_over_time(line.units, line.active_seconds)
    points = [(finite(span.begin_seconds), finite(span.n_busy)) for span in bins]
    points += [(finite(bins[-1].end_seconds), finite(bins[-1].n_busy))] if bins else []
    return _columns(("at", "n_busy"), points)


def _uses(run_figures: Figures, slots: dict[int, str]) -> Columns:
    shares = [
        (slots[use.slot_id], kind, number, finite(seconds / run_figures.active_seconds), duration_text(seconds))
        for use in run_figures.slots
        for number, (kind, seconds) in enumerate(
            zip(KINDS, (use.train_seconds, use.validate_seconds, use.test_seconds), strict=True)
        )
        if run_figures.active_seconds
    ]
    return _columns(("slot_name", "kind", "number", "share", "busy"), shares)


def _use_labels(run_figures: Figures, slots: dict[int, str]) -> Columns:
    return _columns(
        ("slot_name", "share", "label"),
        ((slots[use.slot_id], finite(use.utilisation), percent_text(use.utilisation)) for use in run_figures.slots),
    )


def _best(trials: Sequence[Row], hues: dict[int, int]) -> Columns:
    return _columns(
        ("place", "hue", "name", "value"),
        (
            (place, hues[t["trial_id"]], f"{t['trial_id']} {t['architecture']}",
             metric_text(t["validation_metric"]) or t["status"])
            for place, t in enumerate(trials)
        ),
    )  # fmt: skip
