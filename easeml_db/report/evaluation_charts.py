"""The charts of held-out rows: confusion matrix, ROC curves, calibration, residuals, importances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt

from easeml_db.report.charts import KIND_BLUES, MUTED, TEXT, Frame
from easeml_db.report.datasets import HUES, ChartData
from easeml_db.report.evaluation import CHART_ORDER, SQUARES

SQUARE_HEIGHT, BAR_STEP = 300, 22
MOST_CLASSES_WITH_NUMBERS = 12
PALE = "#f5f8fb"
TITLES = {
    "confusion": "Confusion matrix: share of each actual class",
    "roc": "ROC curve",
    "calibration": "Calibration: what was said, and what was seen",
    "residuals": "Answers and targets",
    "inputs": "Importance of inputs: how much worse the metric gets",
    "hyperparameters": "Importance of hyperparameters: share of the variance",
}


Draw = Callable[[ChartData, Frame], Any]


def held_out_charts(data: ChartData, frame: Frame) -> dict[str, tuple[Any, str]]:
    """Return, by name, a chart for each available kind of held-out data, with the names of its data."""
    return {
        name: (DRAWN[name](data, frame), f"{name} {name}_diagonal" if name in SQUARES else name)
        for name in CHART_ORDER
        if name in data.datasets
    }


def _finished(chart: Any, name: str, height: int, frame: Frame) -> Any:
    return frame.finish(chart.properties(height=height, title=TITLES[name]))


def _confusion(data: ChartData, frame: Frame) -> Any:
    columns = data.datasets["confusion"]
    labels = list(dict.fromkeys(columns["actual"]))
    base = alt.Chart(alt.NamedData("confusion")).encode(
        x=alt.X("predicted:N").sort(labels).axis(alt.Axis(title="predicted", labelAngle=0, domain=False, ticks=False)),
        y=alt.Y("actual:N").sort(labels).axis(alt.Axis(title="actual", domain=False, ticks=False)),
        tooltip=["actual:N", "predicted:N", alt.Tooltip("n:Q", title="rows"), alt.Tooltip("share:Q", format=".1%")],
    )
    shade = alt.Color("share:Q").scale(alt.Scale(range=[PALE, KIND_BLUES[0]], domain=[0, 1])).legend(None)
    layers = [base.mark_rect(stroke="#ffffff").encode(color=shade)]
    if len(labels) <= MOST_CLASSES_WITH_NUMBERS:
        ink = alt.condition("datum.share > 0.5", alt.value("white"), alt.value(TEXT))
        layers.append(base.mark_text(fontSize=11).encode(text=alt.Text("n:Q").format(","), color=ink))
    return _finished(alt.layer(*layers), "confusion", max(SQUARE_HEIGHT, 16 * len(labels)), frame)


def _square(name: str, data: ChartData, x_title: str, y_title: str) -> tuple[alt.X, alt.Y, Any]:
    """Return both axes with the same ends, and a dashed line on which both have the same value."""
    scale = alt.Scale(domain=data.datasets[f"{name}_diagonal"]["at"], nice=False)
    x = alt.X().scale(scale).axis(alt.Axis(title=x_title, tickCount=6))
    y = alt.Y().scale(scale).axis(alt.Axis(title=y_title, tickCount=6))
    line = alt.Chart(alt.NamedData(f"{name}_diagonal")).mark_line(strokeDash=[4, 4], color=MUTED, strokeWidth=1)
    return x, y, line.encode(x=alt.X("at:Q").scale(scale), y=alt.Y("at:Q").scale(scale))


def _curves(name: str, x_field: tuple[str, str], y_field: tuple[str, str]) -> Draw:
    """Return a chart of curves of classes in the unit square."""

    def draw(data: ChartData, frame: Frame) -> Any:
        columns = data.datasets[name]
        names = list(dict.fromkeys(columns["name"]))
        x, y, diagonal = _square(name, data, x_field[1], y_field[1])
        x.shorthand, y.shorthand = f"{x_field[0]}:Q", f"{y_field[0]}:Q"
        legend = alt.Legend(title=None, orient="top") if len(names) > 1 else None
        hue = alt.Color("name:N").scale(alt.Scale(domain=names, range=list(HUES[: len(names)]))).legend(legend)
        base = alt.Chart(alt.NamedData(name)).encode(x=x, y=y, color=hue)
        layers = [diagonal, base.mark_line(strokeWidth=2).encode(order="place:Q")]
        if name == "calibration":
            tooltip = [alt.Tooltip(f"{c}:{'N' if c == 'name' else 'Q'}") for c in columns if c != "place"]
            layers.append(base.mark_point(filled=True, size=40).encode(tooltip=tooltip))
        return _finished(alt.layer(*layers), name, SQUARE_HEIGHT, frame)

    return draw


def _residuals(data: ChartData, frame: Frame) -> Any:
    x, y, diagonal = _square("residuals", data, "target", "answer")
    x.shorthand, y.shorthand = "actual:Q", "predicted:Q"
    points = alt.Chart(alt.NamedData("residuals")).mark_circle(size=22, opacity=0.5, color=KIND_BLUES[0])
    shown = points.encode(x=x, y=y, tooltip=["actual:Q", "predicted:Q"])
    return _finished(alt.layer(diagonal, shown), "residuals", SQUARE_HEIGHT, frame)


def _bars(name: str) -> Draw:
    """Return a chart with a bar for each name, longest first."""

    def draw(data: ChartData, frame: Frame) -> Any:
        columns = data.datasets[name]
        lane = alt.Y("name:N").sort(columns["name"])
        lane = lane.axis(alt.Axis(title=None, grid=False, ticks=False, domain=False, labelLimit=220))
        base = alt.Chart(alt.NamedData(name)).encode(y=lane)
        length = alt.X("importance:Q").axis(alt.Axis(title=None, tickCount=6))
        layers = [base.mark_bar(color=KIND_BLUES[1], height=alt.RelativeBandSize(0.66)).encode(
            x=length, tooltip=["name:N", "importance:Q"])]  # fmt: skip
        if "low" in columns:
            layers.append(base.mark_rule(color=TEXT, strokeWidth=1.2).encode(x="low:Q", x2="high:Q"))
        return _finished(alt.layer(*layers), name, max(60, BAR_STEP * len(columns["name"])), frame)

    return draw


DRAWN: Mapping[str, Draw] = {
    "confusion": _confusion,
    "roc": _curves("roc", ("wrong", "false positive rate"), ("right", "true positive rate")),
    "calibration": _curves("calibration", ("said", "mean probability"), ("seen", "share of positive rows")),
    "residuals": _residuals,
    "inputs": _bars("inputs"),
    "hyperparameters": _bars("hyperparameters"),
}
