"""Charts: cost of the plan and of the best static one, figure by figure; table 2 with what the paper paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
COLOURS = ("#c3ccd5", "#2f5d8a")
PLANS = ("static", "planned")
WIDTHS = (5, 2)  # the plan lies on top of the static cluster where both cost the same


def charts(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return a chart for each figure that was made, and one for table 2."""
    return {name: draw(tables[name]) for name, draw in CHARTS.items() if tables.get(name)}


def _long(rows: Sequence[Row]) -> list[Row]:
    return [row | {"plan": plan, "cost": row[plan]} for row in rows for plan in PLANS if row[plan] is not None]


def _colour() -> Any:
    import altair as alt

    return alt.Color("plan:N", scale=alt.Scale(domain=list(PLANS), range=list(COLOURS)), title=None)


def _cost() -> Any:
    import altair as alt

    return alt.Y("cost:Q", title="cost, $").scale(type="log", nice=False, padding=12).axis(tickCount=5, format="~g")


def _drawn(rows: Sequence[Row], x: Any, **facets: Any) -> Any:
    import altair as alt

    width = alt.StrokeWidth("plan:N", scale=alt.Scale(domain=list(PLANS), range=list(WIDTHS)), title=None)
    lines = alt.Chart(alt.InlineData(_long(rows))).mark_line(point=alt.OverlayMarkDef(size=30))
    return lines.encode(x=x, y=_cost(), color=_colour(), strokeWidth=width, **facets)


def _lines(rows: Sequence[Row], x: str, column: str, title: str) -> Any:
    import altair as alt

    across = alt.X(f"{x}:Q", title=title).axis(tickCount=5)
    return _drawn(rows, across, column=alt.Column(f"{column}:N", title=None)).properties(width=240, height=170)


def _figure_12(rows: Sequence[Row]) -> Any:
    import altair as alt

    across = alt.X("minutes:Q", title="deadline, min", scale=alt.Scale(zero=False)).axis(tickCount=5)
    columns = alt.Column("start_seconds:O", title="start latency, s")
    drawn = _drawn(rows, across, column=columns, row=alt.Row("curve:N", title=None))
    return drawn.properties(width=220, height=150)


def _table_2(rows: Sequence[Row]) -> Any:
    import altair as alt

    names = ("plan", "cost", "scaling", "paper")
    drawn = [{name: row[name] for name in names} | {"deadline": f"{row['minutes']} min"} for row in rows]
    plans, colours = ["static", "naive_elastic", "planned"], [COLOURS[0], "#7ea6cc", COLOURS[1]]
    base = alt.Chart(alt.InlineData(drawn)).encode(
        x=alt.X("plan:N", title=None, sort=plans).axis(labelAngle=0, labelExpr="replace(datum.label, '_', ' ')")
    )
    bars = base.mark_bar().encode(
        y=alt.Y("cost:Q", title="cost, $"),
        color=alt.Color("plan:N", scale=alt.Scale(domain=plans, range=colours), legend=None),
    )
    ticks = base.mark_tick(color="#1f2933", thickness=2).encode(y="paper:Q")
    columns, lines = alt.Column("deadline:N", title=None), alt.Row("scaling:N", title=None)
    layers = alt.layer(bars, ticks).properties(width=190, height=160)
    return layers.facet(column=columns, row=lines, title="lines: what the paper reports")


def _figure_9(rows: Sequence[Row]) -> Any:
    named = [row | {"panel": f"by {row['billed_per']}, {row['kind']}"} for row in rows]
    return _lines(named, "sigma", "panel", "standard deviation of an iteration, s")


CHARTS: Mapping[str, Callable[[Sequence[Row]], Any]] = {
    "figure 9": _figure_9,
    "figure 10": lambda rows: _lines(rows, "price_per_gb", "data", "price of a GB"),
    "figure 11": lambda rows: _lines(rows, "n_trials", "billed_per", "trials"),
    "figure 12": _figure_12,
    "table 2": _table_2,
}
