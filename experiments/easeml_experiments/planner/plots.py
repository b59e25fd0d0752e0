"""Charts: cost of the plan and of the best static one, figure by figure, and slots over time for table 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
COLOURS = ("#9aa5b1", "#4c78a8")
PLANS = ("static", "planned")


def charts(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return a chart for each figure, and one for table 2."""
    return {
        "figure 9": _lines(
            [row | {"panel": f"by {row['billed_per']}, {row['kind']}"} for row in tables["figure 9"]],
            "sigma",
            "panel",
            "standard deviation of an iteration, s",
        ),
        "figure 10": _lines(tables["figure 10"], "price_per_gb", "data", "price of a GB"),
        "figure 11": _lines(tables["figure 11"], "n_trials", "billed_per", "trials"),
        "figure 12": _figure_12(tables["figure 12"]),
        "table 2": _table_2(tables["table 2"]),
    }


def _long(rows: Sequence[Row]) -> list[Row]:
    return [row | {"plan": plan, "cost": row[plan]} for row in rows for plan in PLANS if row[plan] is not None]


def _colour() -> Any:
    import altair as alt

    return alt.Color("plan:N", scale=alt.Scale(domain=list(PLANS), range=list(COLOURS)), title=None)


def _lines(rows: Sequence[Row], x: str, column: str, title: str) -> Any:
    import altair as alt

    lines = alt.Chart(alt.InlineData(_long(rows))).mark_line(point=True)
    y = alt.Y("cost:Q", title="cost, $", scale=alt.Scale(type="log"))
    return lines.encode(
        x=alt.X(f"{x}:Q", title=title), y=y, color=_colour(), column=alt.Column(f"{column}:N", title=None)
    ).properties(width=240, height=170)


def _figure_12(rows: Sequence[Row]) -> Any:
    import altair as alt

    lines = alt.Chart(alt.InlineData(_long(rows))).mark_line(point=True)
    return lines.encode(
        x=alt.X("minutes:Q", title="deadline, min", scale=alt.Scale(zero=False)),
        y=alt.Y("cost:Q", title="cost, $", scale=alt.Scale(type="log")),
        color=_colour(), column=alt.Column("start_seconds:O", title="start, s"), row=alt.Row("curve:N", title=None),
    ).properties(width=200, height=150)  # fmt: skip


def _table_2(rows: Sequence[Row]) -> Any:
    import altair as alt

    names = ("plan", "cost", "scaling")
    drawn = [{name: row[name] for name in names} | {"deadline": f"{row['minutes']} min"} for row in rows]
    return alt.Chart(alt.InlineData(drawn)).mark_bar().encode(
        x=alt.X("plan:N", title=None), y=alt.Y("cost:Q", title="cost, $"), color=alt.Color("plan:N", legend=None),
        column=alt.Column("deadline:N", title=None), row=alt.Row("scaling:N", title=None),
    ).properties(width=130, height=140)  # fmt: skip
