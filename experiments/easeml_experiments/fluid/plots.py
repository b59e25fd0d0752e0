"""Charts: makespan without over makespan with, utilisation, and StaticFluid over the optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from easeml_experiments.fluid.figures import TITLES

Row = dict[str, Any]
Y_TITLE = "makespan without / with"
WITHOUT, WITH = "#9aa5b1", "#4c78a8"


def ratios(points: Sequence[Row]) -> Any:
    """Draw figures 7 and 11 to 13: bars of the mean, a line from the least to the greatest seed."""
    import altair as alt

    mine = {figure: [point for point in points if point["figure"] == figure] for figure in TITLES}
    sized, plain = ("7", "13b"), ("11a", "11b", "12", "13a")
    upper = alt.hconcat(*(_by_size(mine[figure]).properties(title=_title(figure)) for figure in sized))
    return alt.vconcat(
        upper, alt.hconcat(*(_by_setting(mine[figure]).properties(title=_title(figure)) for figure in plain))
    )


def _title(figure: str) -> str:
    return f"{figure}: {TITLES[figure]}"


def _by_size(points: Sequence[Row]) -> Any:
    """Draw a column for each setting, a bar for each number of devices."""
    import altair as alt

    layers = _layers(points, alt.X("n_devices:O", title="GPUs", axis=alt.Axis(labelAngle=0)))
    header = alt.Header(labelOrient="bottom")
    column = alt.Column("setting:N", sort=_settings(points), title=None, header=header)
    return layers.properties(width=72, height=150).facet(column=column, spacing=14)


def _by_setting(points: Sequence[Row]) -> Any:
    """Draw a bar for each setting."""
    import altair as alt

    axis = alt.Axis(labelAngle=-40)
    layers = _layers(points, alt.X("setting:N", sort=_settings(points), title=None, axis=axis))
    return layers.properties(width=max(44 * len(points), 180), height=150)


def _settings(points: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(point["setting"] for point in points))


def _layers(points: Sequence[Row], x: Any) -> Any:
    import altair as alt

    bars = alt.Chart().mark_bar(color=WITH).encode(x=x, y=alt.Y("ratio:Q", title=Y_TITLE))
    spread = alt.Chart().mark_rule(color="black").encode(x=x, y="ratio_least:Q", y2="ratio_most:Q")
    even = alt.Chart().mark_rule(strokeDash=[4, 3]).encode(y=alt.datum(1.0))
    return alt.layer(bars, spread, even, data=alt.InlineData(points))


def utilisation(points: Sequence[Row]) -> Any:
    """Draw the utilisation of each procedure without and with, a panel for each number of devices."""
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
    """Draw the share of cases whose ratio of StaticFluid to the optimum is at most x."""
    import altair as alt

    drawn = []
    for kind, remainder in (("no overheads", 0), ("random overheads", 1)):
        values = sorted(row["ratio"] for row in rows if row["case"] % 2 == remainder)
        for share in np.linspace(0, 1, 201):
            place = min(int(share * len(values)), len(values) - 1)
            drawn.append({"kind": kind, "ratio": values[place], "share": 100 * float(share)})
    return alt.Chart(alt.InlineData(drawn)).mark_line(interpolate="step-after").encode(
        x=alt.X("ratio:Q", title="makespan of StaticFluid / optimum", scale=alt.Scale(zero=False)),
        y=alt.Y("share:Q", title="% of cases at or below", scale=alt.Scale(domain=[0, 100])),
        color=alt.Color("kind:N", title=None),
    ).properties(width=380, height=220)  # fmt: skip
