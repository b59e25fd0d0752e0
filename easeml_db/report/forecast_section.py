"""The section on time and cost: forecasts and plans beside what happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from easeml_db.report.charts import KIND_BLUES, TEXT, Frame
from easeml_db.report.forecasts import forecast_sentences
from easeml_db.report.rows import Row, RunRows
from easeml_db.report.sections import Lines, chart, note, text
from easeml_db.report.wording import cost_text, count_text, duration_text

HEIGHT = 220
STAGE_COLUMNS = (
    "stage", "planned", "95 % within", "took", "cost planned", "cost", "slots planned", "slots", "why they differ",
)  # fmt: skip
PLAN_COLUMNS = ("plan", "made after", "why", "slots by stage", "end", "95 % by", "cost", "95 % within")


def section_forecasts(rows: RunRows) -> Lines:
    """Return the section of forecasts and plans; empty if there are none."""
    if not rows.forecasts and not rows.plans:
        return []
    charts = [chart("forecasts")] if len(rows.forecasts) > 1 else []
    told = [note(sentence) for sentence in forecast_sentences(rows)]
    return ["<section><h2>Time and cost</h2>", *told, *_plans(rows), *_stages(rows), *charts, "</section>"]


def _plans(rows: RunRows) -> Lines:
    if not rows.plans:
        return []
    first = rows.plans[0]
    limit = "" if first["max_cost"] is None else f", at most {cost_text(first['max_cost'])}"
    return [
        note(f"{count_text(len(rows.plans), 'plan')} at the prices of list {first['price_list']}{limit}; times count"
             " from when the run was asked for."),
        *_table(PLAN_COLUMNS, map(_plan_cells, rows.plans)),
    ]  # fmt: skip


def _stages(rows: RunRows) -> Lines:
    """Return the table of stages as they were planned when they began, and as they were."""
    if not rows.stages:
        return []
    return [note("Each stage as it was planned when it began, beside what came of it."),
            *_table(STAGE_COLUMNS, map(_stage_cells, rows.stages))]  # fmt: skip


def _table(columns: Sequence[str], lines: Iterable[Sequence[object]]) -> Lines:
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = (f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in cells)}</tr>" for cells in lines)
    return [f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>', *body, "</tbody></table></div>"]


def _plan_cells(plan: Row) -> Sequence[object]:
    return (
        plan["revision"], duration_text(max(0.0, plan["made_seconds"])), plan["reason"],
        ", ".join(map(str, plan["n_slots"])), duration_text(plan["end_seconds"]),
        duration_text(plan["latest_seconds"]), cost_text(plan["cost_expected"]), cost_text(plan["cost_p95"]),
    )  # fmt: skip


def _stage_cells(stage: Row) -> Sequence[object]:
    times = (stage["seconds_planned"], stage["seconds_p95_planned"], stage["seconds"])
    costs = (stage["cost_planned"], stage["cost"])
    return (
        stage["label"], *("" if each is None else duration_text(each) for each in times),
        *("" if each is None else cost_text(each) for each in costs),
        *("" if stage[each] is None else stage[each] for each in ("n_slots_planned", "n_slots")), stage["reason"],
    )  # fmt: skip


def forecast_chart(frame: Frame) -> Any:
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
    return frame.finish(alt.layer(band, line, points, end).properties(height=HEIGHT, title=title))
