"""Charts of the searches, in the shape of Cerebro's figures 12, 13 and 18 to 21."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from easeml_experiments.procedures.comparison import TITLES, Row, Run

DOT_SIZE = 12


def plots(runs: Sequence[Run]) -> dict[str, Any]:
    """Draw makespans; the best error over time; learning curves by epoch and by time; ASHA's rungs."""
    first = min(run.seed for run in runs)
    shown = [run for run in runs if run.seed == first]
    charts = {"makespans": _makespans(runs), "best_errors": _best_errors(shown), "curves_by_time": _by_time(shown)}
    if any(run.procedure == "hyperband" for run in shown):
        charts["curves_by_epoch"] = _by_epoch([run for run in shown if run.procedure == "hyperband"])
    asha = [run for run in shown if run.procedure == "asha"]
    return charts | ({"rungs": _counts(asha) | _rung_errors(asha)} if asha else {})


def _makespans(runs: Sequence[Run]) -> Any:
    """Draw a bar for the mean of each system, a tick for each search."""
    import altair as alt

    rows = [
        {"panel": TITLES[run.procedure], "system": run.system, "seconds": run.measured.training_seconds}
        for run in runs
        if run.max_seconds is None
    ]
    y = alt.Y("system:N", title=None)
    bars = alt.Chart().mark_bar(opacity=0.6).encode(
        x=alt.X("mean(seconds):Q", title="makespan, seconds"), y=y, color=alt.Color("system:N", legend=None)
    )  # fmt: skip
    ticks = alt.Chart().mark_tick(color="black").encode(x="seconds:Q", y=y)
    panel = alt.Row("panel:N", title=None, sort=list(TITLES.values()))
    layers = alt.layer(bars, ticks, data=alt.InlineData(rows)).properties(width=420)
    return layers.facet(row=panel).resolve_scale(y="independent")


def _best_errors(runs: Sequence[Run]) -> Any:
    """Draw the lowest validation error so far over time, a panel for each procedure."""
    import altair as alt

    rows = [
        row for run in runs for row in _lowest(run.points(), {"panel": TITLES[run.procedure], "system": run.system})
    ]
    lines = alt.Chart(alt.InlineData(rows)).mark_line(interpolate="step-after")
    return lines.encode(
        x=alt.X("seconds:Q", title="seconds", scale=alt.Scale(domainMin=0)),
        y=alt.Y("error:Q", title="best validation error", scale=alt.Scale(zero=False)),
        color=alt.Color("system:N", title=None),
        facet=alt.Facet("panel:N", title=None, sort=list(TITLES.values()), columns=2),
    ).properties(width=300, height=200).resolve_scale(x="independent", y="independent")  # fmt: skip


def _lowest(points: Sequence[Row], key: Row) -> list[Row]:
    """Return the lowest error so far at each point."""
    lowest = accumulate((point["validation_error"] for point in points), min)
    return [key | {"seconds": each["seconds"], "error": error} for each, error in zip(points, lowest, strict=True)]


def _by_time(runs: Sequence[Run]) -> Any:
    """Draw all learning curves by time: figures 12, 13 and 19."""
    return _curves(runs, "seconds:Q", "seconds")


def _by_epoch(runs: Sequence[Run]) -> Any:
    """Draw all learning curves by epoch: figure 18."""
    return _curves(runs, "epoch:Q", "epoch")


def _curves(runs: Sequence[Run], x: str, title: str) -> Any:
    """Draw a line for each trial, a panel for each search."""
    import altair as alt

    rows = [
        {"procedure": TITLES[run.procedure], "system": run.system, **point} for run in runs for point in run.points()
    ]
    panels = []
    for name in dict.fromkeys(row["procedure"] for row in rows):
        mine = [row for row in rows if row["procedure"] == name]
        lines = alt.Chart(alt.InlineData(mine)).mark_line(point=alt.OverlayMarkDef(size=DOT_SIZE), strokeWidth=1)
        panels.append(
            lines.encode(
                x=alt.X(x, title=title, scale=alt.Scale(domainMin=0)),
                y=alt.Y("validation_error:Q", title="validation error", scale=alt.Scale(domain=[0, 1])),
                color=alt.Color("trial_number:N", legend=None),
                column=alt.Column("system:N", title=name),
            ).properties(width=250, height=170)
        )
    return alt.vconcat(*panels)


def _counts(runs: Sequence[Run]) -> Any:
    """Draw how many configs were run for how many epochs: figure 20."""
    import altair as alt

    rows = [{"system": run.system, "epochs": n} for run in runs for n in run.epochs().values()]
    bars = alt.Chart(alt.InlineData(rows)).mark_bar()
    return bars.encode(
        x=alt.X("epochs:O", title="epochs that a config was run for", axis=alt.Axis(labelAngle=0)),
        xOffset="system:N",
        y=alt.Y("count():Q", title="configs"),
        color=alt.Color("system:N", title=None),
    ).properties(width=260, height=200)


def _rung_errors(runs: Sequence[Run]) -> Any:
    """Draw the best validation error so far at each rung over time: figure 21. Rungs end after 1, 3, 9, ... epochs."""
    import altair as alt

    rows = []
    for run in runs:
        for n_epochs in rung_ends(max(run.epochs().values(), default=1)):
            points = [point for point in run.points() if point["epoch"] == n_epochs]
            rows += _lowest(points, {"system": run.system, "rung": f"at epoch {n_epochs}"})
    lines = alt.Chart(alt.InlineData(rows)).mark_line(interpolate="step-after")
    return lines.encode(
        x=alt.X("seconds:Q", title="seconds", scale=alt.Scale(domainMin=0)),
        y=alt.Y("error:Q", title="best validation error", scale=alt.Scale(zero=False)),
        color=alt.Color("system:N", title=None),
        strokeDash=alt.StrokeDash("rung:N", title=None),
    ).properties(width=300, height=200)


def rung_ends(max_epochs: int, eta: int = 3) -> list[int]:
    """Return epochs in total at the ends of ASHA's rungs."""
    ends = [1]
    while ends[-1] * eta <= max_epochs:
        ends.append(ends[-1] * eta)
    return ends
