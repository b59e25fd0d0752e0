"""Charts: makespan without over makespan with, utilisation, and StaticFluid over the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from easeml_db.experiments.fluid.figures import TITLES

Row = dict[str, Any]
Y_TITLE = "makespan without / with"
WITHOUT, WITH = "#9aa5b1", "#4c78a8"
SIZES = ("#a6c8e4", "#4c78a8", "#1f3b5c")


def ratios(points: Sequence[Row]) -> Any:
    """Figures 7 and 11 to 13: bars of the mean, a line from the least to the greatest seed."""
    import altair as alt

    panels = [_panel([point for point in points if point["figure"] == figure], figure) for figure in TITLES]
    return alt.vconcat(panels[0], alt.concat(*panels[1:], columns=3)).resolve_scale(color="shared")


def _panel(points: Sequence[Row], figure: str) -> Any:
    import altair as alt

    settings = list(dict.fromkeys(point["setting"] for point in points))
    rows = [{**point, "GPUs": str(point["n_devices"])} for point in points]
    sizes = ["4", "8", "16"]
    base = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X("setting:N", sort=settings, title=None, axis=alt.Axis(labelAngle=0 if figure == "7" else -30)),
        xOffset=alt.XOffset("GPUs:N", sort=sizes),
    )
    bars = base.mark_bar().encode(
        y=alt.Y("ratio:Q", title=Y_TITLE),
        color=alt.Color("GPUs:N", scale=alt.Scale(domain=sizes, range=list(SIZES)), title="GPUs"),
    )
    spread = base.mark_rule(color="black").encode(y="ratio_least:Q", y2="ratio_most:Q")
    even = alt.Chart(alt.InlineData([{"one": 1}])).mark_rule(strokeDash=[4, 3]).encode(y="one:Q")
    width = 640 if figure == "7" else 190
    return alt.layer(bars, spread, even).properties(width=width, height=170, title=f"{figure}: {TITLES[figure]}")


def utilisation(points: Sequence[Row]) -> Any:
    """Utilisation of each procedure without and with, a panel for each number of devices."""
    import altair as alt

    mine = [point for point in points if point["figure"] == "7"]
    rows = [
        {"setting": point["setting"], "GPUs": point["n_devices"], "which": which, "utilisation": value}
        for point in mine
        for which in ("without", "with")
        if (value := point[f"utilisation_{which}"]) is not None
    ]
    return alt.Chart(alt.InlineData(rows)).mark_bar().encode(
        x=alt.X("setting:N", sort=list(dict.fromkeys(row["setting"] for row in rows)), title=None),
        xOffset=alt.XOffset("which:N", sort=["without", "with"]),
        y=alt.Y("utilisation:Q", scale=alt.Scale(domain=[0, 1]), title="utilisation"),
        color=alt.Color("which:N", scale=alt.Scale(domain=["without", "with"], range=[WITHOUT, WITH]), title=None),
        column=alt.Column("GPUs:N", sort=[4, 8, 16], title="GPUs"),
    ).properties(width=210, height=180)  # fmt: skip


def bound(rows: Sequence[Row]) -> Any:
    """Share of cases whose ratio of StaticFluid to the optimum is at most x."""
    import altair as alt

    drawn = []
    for kind, remainder in (("no overheads", 0), ("random overheads", 1)):
        values = sorted(row["ratio"] for row in rows if row["case"] % 2 == remainder)
        for share in np.linspace(0, 1, 201):
            place = min(int(share * len(values)), len(values) - 1)
            drawn.append({"kind": kind, "ratio": values[place], "share": 100 * float(share)})
    return alt.Chart(alt.InlineData(drawn)).mark_line(interpolate="step-after").encode(
        x=alt.X("ratio:Q", title="makespan of StaticFluid / optimum", scale=alt.Scale(zero=False)),
        y=alt.Y("share:Q", title="% of cases at or below"),
        color=alt.Color("kind:N", title=None),
    ).properties(width=380, height=220)  # fmt: skip
