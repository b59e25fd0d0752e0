"""Curves as rows, thinned, and as charts: a panel a dataset, the mean above the worst repeat, logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_experiments.tenants.curves import LEVELS, Curves, interval
from easeml_experiments.tenants.matrices import Floats
from easeml_experiments.tenants.replay_cache import ReplayCache

MAX_ROWS, MAX_DRAWN, LEAST_LOSS = 400, 150, 1e-3
LEAST_DRAWN = 1e-4  # of the cost
PERCENTS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
LOSSES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]
DECADES = [10.0**n for n in range(-5, 7)]
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2")
ORACLE_COLOURS = {"oracle_hull": "#666666", "oracle_bound": "#aaaaaa"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """A line of a panel; `shown` is the largest share of cost that is drawn."""

    panel: str
    label: str
    curves: Curves
    shown: float


def curve_rows(drawn: Sequence[Drawn], *, at_most: int = MAX_ROWS) -> list[Row]:
    """Return points of every line, at most so many each: mean and worst over repeats."""
    rows = []
    for line in drawn:
        grid = _grid(line.curves, line.shown, at_most)
        for cost, mean, worst in zip(grid, line.curves.mean(grid), line.curves.worst(grid), strict=True):
            values = {"cost_percent": 100 * float(cost), "mean": float(mean), "worst": float(worst)}
            rows.append({"panel": line.panel, "line": line.label, **values})
    return rows


def cost_rows(drawn: Sequence[Drawn], draws: NDArray[np.int_]) -> list[Row]:
    """Return percents of cost to every loss, mean and worst curve, with intervals; empty: above the budget."""
    rows: list[Row] = []
    for line in drawn:
        columns = {
            f"{which}{end}": values
            for which, worst in (("mean", False), ("worst", True))
            for end, values in _ends(line.curves, draws, worst).items()
        }
        for place, level in enumerate(LEVELS):
            found = {name: _percent(values[place]) for name, values in columns.items()}
            rows.append({"panel": line.panel, "line": line.label, "loss": float(level), **found})
    return rows


def _ends(curves: Curves, draws: NDArray[np.int_], worst: bool) -> Mapping[str, Floats]:
    samples = curves.resampled(LEVELS, draws, worst=worst)
    low, high = np.array([interval(column) for column in samples.T]).T
    return {"": curves.cost_to(LEVELS, worst=worst), "_low": low, "_high": high}


def _percent(share: float) -> float | None:
    return 100 * float(share) if np.isfinite(share) else None


def _grid(curves: Curves, shown: float, at_most: int) -> Floats:
    """Return costs up to what is shown, evenly by their logarithm; all where anything changes when they are few."""
    points = curves.points[(curves.points > LEAST_DRAWN) & (curves.points < shown)]
    start = max(LEAST_DRAWN, float(points[0]) / 2) if len(points) else LEAST_DRAWN
    if curves.is_linear or len(points) > at_most - 2:
        return np.geomspace(start, shown, at_most)
    grid: Floats = np.concatenate([[start], points, [shown]])
    return grid


def loss_chart(drawn: Sequence[Drawn], *, what: str = "accuracy loss", x_title: str = "% of all cost") -> Any:
    """Draw the mean and the worst loss over cost."""
    rows = [
        {"panel": row["panel"], "line": row["line"], "cost": row["cost_percent"], "which": which,
         "loss": max(row[which], LEAST_LOSS)}
        for row in curve_rows(drawn, at_most=MAX_DRAWN) for which in ("mean", "worst")
    ]  # fmt: skip
    labels, panels = (list(dict.fromkeys(row[key] for row in rows)) for key in ("line", "panel"))
    return _steps(rows, labels, panels, what, x_title)


def _steps(rows: Sequence[Row], labels: Sequence[str], panels: Sequence[str], y_title: str, x_title: str) -> Any:
    """Draw a column of two charts for each panel."""
    import altair as alt

    x = alt.X("cost:Q", title=x_title, scale=alt.Scale(type="log", nice=False), axis=alt.Axis(values=PERCENTS))
    colours = [ORACLE_COLOURS.get(label, COLOURS[place % len(COLOURS)]) for place, label in enumerate(labels)]
    dashes = [[4, 3] if label in ORACLE_COLOURS else [1, 0] for label in labels]

    def chart(panel: str, which: str) -> Any:
        mine = [row for row in rows if row["panel"] == panel and row["which"] == which]
        title = f"{which}: {y_title}" if panel == panels[0] else None
        domain = [LEAST_LOSS, 1.0]
        y = alt.Y(
            "loss:Q", title=title, scale=alt.Scale(type="log", domain=domain), axis=alt.Axis(values=LOSSES, format="~g")
        )
        line = alt.Chart(alt.InlineData(mine)).mark_line(interpolate="step-after", clip=True, strokeWidth=1.8)
        return line.encode(
            x=x, y=y,
            color=alt.Color("line:N", title=None, scale=alt.Scale(domain=list(labels), range=colours)),
            strokeDash=alt.StrokeDash("line:N", title=None, scale=alt.Scale(domain=list(labels), range=dashes)),
        ).properties(width=250, height=190, title=panel if which == "mean" else "")  # fmt: skip

    columns = [alt.vconcat(chart(panel, "mean"), chart(panel, "worst")) for panel in panels]
    return alt.concat(*columns, columns=4)


def regret_rows(replays: ReplayCache) -> list[Row]:
    """Return regret curves, thinned."""
    rows = []
    for case, regrets in replays.regrets.items():
        for t in np.unique(np.geomspace(1, len(regrets), MAX_DRAWN).astype(int)):
            rows.append(
                {"panel": case.setting, "policy": case.policy, "round": int(t), "regret": float(regrets[t - 1])}
            )
    return rows


def regret_chart(rows: Sequence[Row]) -> Any:
    """Draw regret over rounds, both logarithmic."""
    import altair as alt

    lines = alt.Chart(alt.InlineData(rows)).mark_line(clip=True)
    x_axis, y_axis = alt.Axis(values=DECADES[5:], format="~s"), alt.Axis(values=DECADES, format="~g")
    y_scale = alt.Scale(type="log", domain=[DECADES[3], DECADES[9]])
    return lines.encode(
        x=alt.X("round:Q", title="rounds T", scale=alt.Scale(type="log", nice=False), axis=x_axis),
        y=alt.Y("regret:Q", title="regret R_T", scale=y_scale, axis=y_axis),
        color=alt.Color("policy:N", title=None),
        facet=alt.Facet("panel:N", title=None, columns=4, sort=list(dict.fromkeys(row["panel"] for row in rows))),
    ).properties(width=200, height=170)
