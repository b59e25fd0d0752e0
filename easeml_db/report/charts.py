"""The charts of a run, in Altair: Gantt, learning curves, busy slots, utilisation, forecasts.

Charts name their data (`units`, `curves`, ...) and hold none, so that several share one copy and Altair's limit of
5,000 rows, which guards data inside a chart, never applies. The renderer adds `datasets`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from easeml_db.report.datasets import FAILURE_LANE, HUES, ChartData
from easeml_db.report.figures import KINDS

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
TEXT, MUTED, GRID, RED = "#1f2933", "#52606d", "#e4e7eb", "#c22a20"
KIND_HEIGHTS = (0.88, 0.56, 0.26)  # of a lane: training, validation, test
KIND_BLUES = ("#2f5d8a", "#7ea6cc", "#c9dbec")
DARK = {
    "#ffffff": "#12181f", TEXT: "#e4e7eb", MUTED: "#9fb0c0", GRID: "#2a3541", "#f5f8fb": "#1c2530", RED: "#f0897e",
    "#332288": "#8d7fe0", "#117733": "#4fb576", "#882255": "#d0609a", "#4D4D4D": "#b3b3b3", "#AA4499": "#cf6fc0",
}  # fmt: skip
"""Colours on a dark page: greys turn round, and dark hues become lighter ones of the same kind."""
MAX_GANTT_HEIGHT = 1000
CHOSEN = "chosen == 0 || datum.trial == chosen"
MAX_DECADES = 7
DECADE_LABEL = "datum.value < 0.001 || datum.value > 9999 ? format(datum.value, '.0e') : format(datum.value, '~g')"
ACTIVE_AXIS = "active seconds since the start (pauses cut out)"

Lanes = Literal["slot", "trial"]
Measure = Literal["metric", "loss"]
Width = int | Literal["container"]


@dataclass(frozen=True)
class Frame:
    """How wide charts are, and whether readers can point, zoom and choose."""

    width: Width = "container"
    is_interactive: bool = True

    def dim(self, full: float, dimmed: float = 0.07) -> Any:
        """Return opacity: full where nothing or this trial is chosen."""
        return alt.condition(CHOSEN, alt.value(full), alt.value(dimmed)) if self.is_interactive else alt.value(full)

    def finish(self, chart: Any) -> Any:
        """Give a chart the width, and the parameter that says which trial is chosen."""
        sized = chart.properties(width=self.width)
        return sized.add_params(alt.param(name="chosen", value=0)) if self.is_interactive else sized


def config() -> dict[str, Any]:
    """Return fonts, greys and sizes of all charts."""
    axis = {
        "labelColor": MUTED, "titleColor": MUTED, "gridColor": GRID, "domainColor": GRID, "tickColor": GRID,
        "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal", "labelLimit": 170,
    }  # fmt: skip
    return {
        "font": FONT,
        "background": "#ffffff",
        "axis": axis,
        "axisY": {"minExtent": 56},
        "view": {"stroke": None},
        "title": {"anchor": "start", "color": TEXT, "fontSize": 14, "fontWeight": 600, "subtitleColor": MUTED,
                  "subtitleFontSize": 11.5, "subtitlePadding": 4, "offset": 10},
        "legend": {"labelColor": MUTED, "titleColor": MUTED},
    }  # fmt: skip


def hue() -> alt.Color:
    """Return the hue of a trial; the leaderboard is the legend."""
    return alt.Color("hue:O").scale(alt.Scale(domain=list(range(len(HUES))), range=list(HUES))).legend(None)


# Gantt


def gantt(data: ChartData, lanes: Lanes, frame: Frame) -> Any:
    """Draw every unit as a bar from its start to its end, a lane for each slot or for each trial."""
    names = list(data.slot_lanes if lanes == "slot" else data.trial_lanes)
    has_failures = bool(data.datasets["failures"]["trial"])
    if lanes == "slot" and has_failures:
        names.append(FAILURE_LANE)
    lane = _lane(f"{lanes}_name", names)
    layers = [_bars(kind, lane, data, frame) for kind in range(len(KINDS))]
    if frame.is_interactive:
        zoom = alt.selection_interval(
            name="zoom", bind="scales", encodings=["x"], zoom="wheel![event.ctrlKey || event.metaKey]"
        )
        layers[0] = layers[0].add_params(zoom)
    if data.figures.n_retried_units:
        layers.append(_retried(lane, frame))
    if has_failures:
        layers.append(_failures(lane if lanes == "trial" else _lane("lane", names), lanes, frame))
    if data.line.pauses:
        layers += _pauses()
    step = _lane_step(len(names), 34 if lanes == "slot" else 22)
    return frame.finish(alt.layer(*layers).properties(height=max(60, round(step * len(names)))))


def _lane(field: str, names: list[str]) -> alt.Y:
    axis = alt.Axis(title=None, grid=False, ticks=False, domain=False, labelOverlap=True, labelPadding=8)
    return alt.Y(f"{field}:N").scale(alt.Scale(domain=names, paddingInner=0, paddingOuter=0)).axis(axis)


def _lane_step(n_lanes: int, step: int) -> float:
    return min(step, MAX_GANTT_HEIGHT / max(1, n_lanes))


def _time_axis(data: ChartData) -> alt.Axis:
    title = ACTIVE_AXIS if data.line.pauses else "seconds since the start"
    return alt.Axis(title=title, tickCount=10)


def _named_units() -> Any:
    chart = alt.Chart(alt.NamedData("units"))
    for key in ("slot", "trial"):
        source = alt.LookupData(data=alt.NamedData(f"{key}s"), key=key, fields=[f"{key}_name"])
        chart = chart.transform_lookup(lookup=key, from_=source)
    return chart


def _bars(kind: int, lane: alt.Y, data: ChartData, frame: Frame) -> Any:
    bars = (
        _named_units()
        .transform_filter(f"datum.kind == {kind}")
        .mark_bar(height=alt.RelativeBandSize(KIND_HEIGHTS[kind]))
    )
    end = data.line.active_seconds
    begin = alt.X("begin:Q").scale(alt.Scale(domain=[0, end], nice=False)).axis(_time_axis(data))
    encoded = bars.encode(x=begin, x2="end:Q", y=lane, color=hue(), opacity=frame.dim(1.0 if kind == 0 else 0.75))
    if not frame.is_interactive:
        return encoded
    named = encoded.transform_calculate(
        what=f"'{KINDS[kind]}, epoch ' + datum.epoch + ', partition ' + datum.partition",
        took="format(datum.begin, '.2f') + ' s, for ' + format(datum.end - datum.begin, '.3f') + ' s'",
    )
    return named.encode(
        tooltip=[
            alt.Tooltip("trial_name:N", title="trial"), alt.Tooltip("what:N", title="unit"),
            alt.Tooltip("slot_name:N", title="slot"), alt.Tooltip("took:N", title="from"),
            alt.Tooltip("attempt:Q", title="attempt"),
        ]
    )  # fmt: skip


def _retried(lane: alt.Y, frame: Frame) -> Any:
    """Draw an outline around units that were recorded by a later attempt."""
    bars = _named_units().transform_filter("datum.attempt > 1")
    outlined = bars.mark_bar(height=alt.RelativeBandSize(0.98), fillOpacity=0, stroke=RED, strokeWidth=1.6)
    return outlined.encode(x="begin:Q", x2="end:Q", y=lane, opacity=frame.dim(1.0))


def _failures(lane: alt.Y, lanes: Lanes, frame: Frame) -> Any:
    """Draw a red cross for each lost attempt and each failed trial; over slots they have a lane of their own."""
    source = alt.LookupData(data=alt.NamedData("trials"), key="trial", fields=["trial_name"])
    points = alt.Chart(alt.NamedData("failures")).transform_lookup(lookup="trial", from_=source)
    if lanes == "slot":
        points = points.transform_calculate(lane=f"'{FAILURE_LANE}'")
    crosses = points.mark_point(shape="cross", angle=45, filled=True, color=RED, size=90, opacity=1)
    tooltip = [alt.Tooltip("trial_name:N", title="trial"), alt.Tooltip("what:N"), alt.Tooltip("message:N")]
    return crosses.encode(x="begin:Q", y=lane, opacity=frame.dim(1.0), tooltip=tooltip)


def _pauses() -> list[Any]:
    base = alt.Chart(alt.NamedData("pauses")).encode(x="at:Q")
    label = base.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=MUTED, fontSize=11, clip=False)
    return [base.mark_rule(strokeDash=[4, 3], color=TEXT), label.encode(y=alt.value(0), text="label:N")]


# Learning curves


def curve(data: ChartData, field: Measure, frame: Frame, height: int = 260) -> Any:
    """Draw one value of each trial after each epoch; the best trials are in colour, the others thin and grey."""
    title = curve_title(data, field)
    values = [value for value in data.datasets["curves"][field] if value is not None]
    n_epochs = max(data.datasets["curves"]["epoch"], default=1)
    epoch = alt.X("epoch:Q").scale(alt.Scale(domain=[1, n_epochs] if n_epochs > 1 else [0.5, 1.5]))
    # Named one by one: of two or three epochs there would be ticks between, with the same label as the next.
    ticks = list(range(1, n_epochs + 1)) if n_epochs <= 12 else alt.Undefined
    epoch = epoch.axis(alt.Axis(title="epoch", format="d", grid=False, tickCount=12, values=ticks))
    source = alt.LookupData(data=alt.NamedData("trials"), key="trial", fields=["trial_name"])
    base = alt.Chart(alt.NamedData("curves")).transform_filter(f"isValid(datum.{field})")
    base = base.transform_lookup(lookup="trial", from_=source).encode(
        x=epoch, y=_value_axis(field, values), detail="trial:N"
    )
    tooltip = [alt.Tooltip("trial_name:N", title="trial"), "epoch:Q", alt.Tooltip(f"{field}:Q", title=title)]
    rest = base.transform_filter("!datum.is_top").mark_line(strokeWidth=1, color="#9aa5b1")
    top = base.transform_filter("datum.is_top")
    lines = top.mark_line(strokeWidth=2).encode(color=hue(), opacity=frame.dim(0.95))
    points = top.mark_point(filled=True, size=28).encode(color=hue(), opacity=frame.dim(1.0), tooltip=tooltip)
    layers = [lines, points] if data.has_only_top else [rest.encode(opacity=frame.dim(0.5)), lines, points]
    return frame.finish(alt.layer(*layers).properties(height=height, title=title))


def curve_title(data: ChartData, field: Measure) -> str:
    """Return the title of a chart of learning curves."""
    return "Training loss by epoch" if field == "loss" else f"Validation {data.rows.run['metric']} by epoch"


def _value_axis(field: str, values: list[float]) -> alt.Y:
    """Make the axis of a metric or loss: from the least to the largest value, with room around a single one."""
    scale, axis = alt.Scale(zero=False), alt.Axis(title=None, tickCount=6)
    if _is_logarithmic(field, values):
        scale = alt.Scale(type="log", nice=False)
        axis = alt.Axis(title=None, values=_decades(values), labelExpr=DECADE_LABEL)
    elif values and min(values) == max(values):
        room = abs(values[0]) / 10 or 1.0
        scale = alt.Scale(domain=[values[0] - room, values[0] + room], nice=False)
    return alt.Y(f"{field}:Q").scale(scale).axis(axis)


def _is_logarithmic(field: str, values: list[float]) -> bool:
    """Return whether values span decades; metrics up to 1, such as accuracies, stay linear."""
    spans_decades = bool(values) and min(values) > 0 and max(values) > 50 * min(values)
    return spans_decades and (field == "loss" or max(values) > 1)


def _decades(values: list[float]) -> list[float]:
    """Return powers of ten between the least and the largest value, at most MAX_DECADES in equal steps."""
    lowest, highest = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    step = math.ceil((highest - lowest + 1) / MAX_DECADES)
    return [10.0**power for power in range(lowest, highest + 1, step)]


# Slots


def busy_slots(data: ChartData, frame: Frame, height: int = 150) -> Any:
    """Draw the number of busy slots over time."""
    base = alt.Chart(alt.NamedData("busy")).encode(
        x=alt.X("at:Q").scale(alt.Scale(domain=[0, data.line.active_seconds], nice=False)).axis(_time_axis(data)),
        y=alt.Y("n_busy:Q").scale(alt.Scale(domain=[0, max(1, data.figures.n_slots)])).axis(
            alt.Axis(title=None, tickMinStep=1, format="d", tickCount=min(6, data.figures.n_slots))
        ),
    )  # fmt: skip
    area = base.mark_area(interpolate="step-after", color=KIND_BLUES[1], opacity=0.55, line={"color": KIND_BLUES[0]})
    return frame.finish(area.properties(height=height, title="Busy slots over time"))


def slot_utilisation(data: ChartData, frame: Frame, height: int = 150) -> Any:
    """Draw the busy share of each slot, by the kind of its units."""
    lane = _lane("slot_name", data.slot_lanes)
    kinds = alt.Scale(domain=list(KINDS), range=list(KIND_BLUES))
    legend = alt.Legend(title=None, orient="top", symbolType="square", offset=0)
    share = alt.X("share:Q").scale(alt.Scale(domain=[0, 1])).axis(alt.Axis(title=None, format=".0%", tickCount=5))
    bars = alt.Chart(alt.NamedData("uses")).mark_bar(height=alt.RelativeBandSize(0.7))
    bars = bars.encode(
        x=share.stack("zero"), y=lane, color=alt.Color("kind:N").scale(kinds).legend(legend),
        order=alt.Order("number:Q"),
        tooltip=[alt.Tooltip("slot_name:N", title="slot"), "kind:N", alt.Tooltip("share:Q", format=".1%"), "busy:N"],
    )  # fmt: skip
    label = alt.Chart(alt.NamedData("use_labels")).mark_text(align="left", dx=5, color=TEXT, fontSize=11)
    labels = label.encode(x=alt.X("share:Q"), y=lane, text="label:N")
    tall = max(height, round(_lane_step(len(data.slot_lanes), 20) * len(data.slot_lanes)))
    return frame.finish(alt.layer(bars, labels).properties(height=tall, title="Utilisation of each slot"))


# Time


def forecast_chart(frame: Frame, height: int = 220) -> Any:
    """Draw the expected end and its interval by when they were forecast, and the end itself."""
    base = alt.Chart(alt.NamedData("forecasts")).encode(
        x=alt.X("made:Q").axis(alt.Axis(title="forecast, s after the start", tickCount=8))
    )
    y = alt.Y("least:Q").scale(alt.Scale(zero=False)).axis(alt.Axis(title=None, tickCount=6))
    band = base.mark_area(color=KIND_BLUES[1], opacity=0.35).encode(y=y, y2="most:Q")
    titles = {"made": "forecast after, s", "expected": "end, s", "least": "earliest, s", "most": "95 % by, s"}
    tooltip = [alt.Tooltip(f"{name}:Q", title=title) for name, title in titles.items()]
    line = base.mark_line(color=KIND_BLUES[0], strokeWidth=2).encode(y="expected:Q")
    points = base.mark_point(filled=True, size=28, color=KIND_BLUES[0]).encode(y="expected:Q", tooltip=tooltip)
    end = alt.Chart(alt.NamedData("forecast_end")).mark_rule(color=TEXT, strokeDash=[4, 3]).encode(y="end:Q")
    title = "Expected end of the run, s after its start (dashed: the end)"
    return frame.finish(alt.layer(band, line, points, end).properties(height=height, title=title))
