"""A run as one picture: title, Gantt chart, learning curves, best trials, utilisation; and one chart as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import altair as alt
import vl_convert

from easeml_db.report.charts import DARK, MUTED, TEXT, Frame, busy_slots, config, curve, gantt, hue, slot_utilisation
from easeml_db.report.datasets import ChartData, as_rows
from easeml_db.report.headline import NOTHING, gantt_note, headline, key_figures
from easeml_db.report.libraries import vega_lite_version

# Plots in three rows of equal length, 1210 with the room for axes and the gaps between them.
GANTT_WIDTH, CURVE_WIDTH, BUSY_WIDTH, UTILISATION_WIDTH, BEST_WIDTH = 1150, 400, 580, 470, 210
SCALE = 2  # pixels for each unit of length: sharp on paper and on dense screens


def picture(data: ChartData) -> bytes:
    """Draw a run as PNG."""
    spec = _with_rows(_chart(data), data, data.datasets)
    png: bytes = vl_convert.vegalite_to_png(spec, scale=SCALE, vl_version=vega_lite_version())
    return png


def svg(chart: Any, data: ChartData, names: Iterable[str]) -> str:
    """Draw one chart of a run as SVG. names: of its data."""
    spec = {**_with_rows(chart, data, names), "config": {**config(), "aria": False}}
    drawn: str = vl_convert.vegalite_to_svg(spec, vl_version=vega_lite_version())
    return drawn


def darkened(drawn: str) -> str:
    """Return a drawing in the colours of a dark page."""
    return re.sub("|".join(DARK), lambda colour: DARK[colour[0]], drawn)


def _with_rows(chart: Any, data: ChartData, names: Iterable[str]) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict(validate=False)
    rows = {name: as_rows(data.datasets[name]) for name in names}
    return {**spec, "datasets": {**spec.get("datasets", {}), **rows}}


def _chart(data: ChartData) -> Any:
    parts = _charts(data) if data.figures.n_units else [_nothing()]
    whole = alt.vconcat(*parts, spacing=28).resolve_scale(color="independent", x="independent", y="independent")
    figures = "   ·   ".join(f"{figure.name} {figure.value}" for figure in key_figures(data.rows, data.figures))
    title = alt.TitleParams(headline(data.rows), subtitle=[figures], fontSize=20, subtitleFontSize=13, offset=18)
    return whole.properties(title=title, padding=28, config=config())


def _charts(data: ChartData) -> list[Any]:
    title = alt.TitleParams("Units by slot", subtitle=gantt_note(data))
    parts = [gantt(data, "slot", Frame(GANTT_WIDTH, False)).properties(title=title)]
    if data.datasets["curves"]["epoch"]:
        frame = Frame(CURVE_WIDTH, False)
        parts.append(_beside(curve(data, "metric", frame, 240), curve(data, "loss", frame, 240), _best(data)))
    busy = busy_slots(data, Frame(BUSY_WIDTH, False))
    parts.append(_beside(busy, slot_utilisation(data, Frame(UTILISATION_WIDTH, False))))
    return parts


def _beside(*charts: Any) -> Any:
    return alt.hconcat(*charts, spacing=40).resolve_scale(color="independent", x="independent", y="independent")


def _best(data: ChartData) -> Any:
    """Return the best trials with their colours: the legend."""
    n_best = len(data.datasets["best"]["place"])
    row = alt.Y("place:O").axis(None)
    base = alt.Chart(alt.NamedData("best"), width=BEST_WIDTH, height=24 * n_best)
    dots = base.mark_point(shape="square", filled=True, size=110, opacity=1).encode(x=alt.value(7), y=row, color=hue())
    names = base.mark_text(align="left", color=TEXT, limit=130, fontSize=12).encode(
        x=alt.value(22), y=row, text="name:N"
    )
    values = base.mark_text(align="right", color=MUTED, fontSize=12).encode(
        x=alt.value(BEST_WIDTH), y=row, text="value:N"
    )
    return alt.layer(dots, names, values).properties(title=f"Best trials, {data.rows.run['metric']}")


def _nothing() -> Any:
    empty = alt.Chart(alt.InlineData(values=[{}]), width=GANTT_WIDTH, height=40)
    return empty.mark_text(text=NOTHING, fontSize=14, color=MUTED, align="left").encode(x=alt.value(0))
