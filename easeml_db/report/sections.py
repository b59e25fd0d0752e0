"""The sections of the page as lines of HTML; charts are empty places that the page's script fills."""

from __future__ import annotations

from html import escape
from typing import Any

from easeml_db.report.datasets import ChartData
from easeml_db.report.figures import Figures
from easeml_db.report.headline import NOTHING, gantt_note, key_figures
from easeml_db.report.rows import Row
from easeml_db.report.wording import bytes_text, count_text, duration_text, percent_text, time_text

Lines = list[str]
ENDED = ("finished", "failed", "cancelled")
HOW_TO_POINT = (
    "Click a bar, a point or a row of the leaderboard to see one trial alone; drag to move, Ctrl and the wheel to zoom,"
    " double-click to see all again."
)
SWITCH = (
    '<div class="switch"><button type="button" data-shows="units_by_slot" aria-pressed="true">by slot</button>'
    '<button type="button" data-shows="units_by_trial" aria-pressed="false">by trial</button></div>'
)


def text(value: Any) -> str:
    """Return a value as escaped text of a page."""
    return escape("" if value is None else str(value))


def note(sentence: str) -> str:
    """Return a paragraph of small print."""
    return f'<p class="note">{text(sentence)}</p>'


def chart(name: str, *, is_hidden: bool = False) -> str:
    """Return the place of a chart."""
    return f'<div class="chart" data-chart="{name}"{" hidden" if is_hidden else ""}></div>'


def section_head(data: ChartData) -> Lines:
    """Return the head of the page: title, status, problems, key figures."""
    run = data.rows.run
    status = f'<span class="status {text(run["status"])}">{text(run["status"])}</span>'
    lead = f"{count_text(run['n_trials'], 'trial')} of {count_text(run['max_epochs'], 'epoch')}"
    lead += f", procedure {run['procedure']}, ranked by {run['metric']}, seed {run['seed']}"
    lines = [
        f"<h1>Run {text(run['run_id'])} on {text(run['dataset_name'])} {status}</h1>",
        f'<p class="lead">{text(lead)}</p>',
    ]
    if run["failure_reason"]:
        lines.append(f'<p class="warning">{text(run["failure_reason"])}</p>')
    if run["status"] not in ENDED:
        lines.append(f'<p class="warning calm">{text(_so_far(run))}</p>')
    summary = [event["message"] for event in data.rows.events if event["kind"] == "summary"]
    lines += [f"<p>{text(sentence)}</p>" for sentence in summary[-1:]]
    return [*lines, '<dl class="figures">', *_cards(data), "</dl>"]


def _so_far(run: Row) -> str:
    share = "" if run["percent_done"] is None else f" ({run['percent_done']:.0f} %)"
    units = f"{run['n_units_done']:,} of {run['n_units']:,} units{share}"
    words = f"The run has not ended. This is what was recorded until {time_text(run['read_at'])}: {units}."
    if run["eta_at"] is None:
        return words
    risk = "; it may miss its deadline or its limit of cost" if run["is_at_risk"] else ""
    return f"{words} It should end at {time_text(run['eta_at'])}, in 95 % by {time_text(run['eta_p95_at'])}{risk}."


def _cards(data: ChartData) -> Lines:
    return [
        f'<div><dt>{text(each.name)}</dt><dd class="value">{text(each.value)}</dd>'
        f'<dd class="about">{text(each.note)}</dd></div>'
        for each in key_figures(data.rows, data.figures)
    ]


def section_units(data: ChartData) -> Lines:
    """Return the Gantt charts with their switch."""
    if not data.figures.n_units:
        return ["<section><h2>Units</h2>", note(NOTHING), "</section>"]
    charts = [chart("units_by_slot"), chart("units_by_trial", is_hidden=True)]
    return ["<section><h2>Units</h2>", note(f"{gantt_note(data)} {HOW_TO_POINT}"), SWITCH, *charts, "</section>"]


def section_curves(data: ChartData) -> Lines:
    """Return the learning curves."""
    head = "<section><h2>Learning curves</h2>"
    if not data.datasets["curves"]["epoch"]:
        return [head, note("No epoch is measured yet."), "</section>"]
    colours = "Colours as in the leaderboard."
    if not data.has_only_top:
        colours += f" The {data.n_in_colour} best trials have theirs, the others are grey."
    return [head, note(colours), '<div class="pair">', chart("metric"), chart("loss"), "</div></section>"]


def section_slots(data: ChartData) -> Lines:
    """Return the section about slots: how well they were used, the lower bound, and the bytes that travelled."""
    if not data.figures.n_units:
        return []
    notes = [note(f"{_busy(data.figures)} {_bound(data.figures)}"), note(_traffic(data.rows.traffic))]
    charts = ['<div class="pair">', chart("busy_slots"), chart("slot_utilisation"), "</div></section>"]
    return ["<section><h2>Slots</h2>", *notes, *charts]


def _busy(found: Figures) -> str:
    makespan = f"makespan of {duration_text(found.active_seconds)}"
    if found.pause_seconds:
        makespan = f"active {makespan} (pauses of {duration_text(found.pause_seconds)} cut out)"
    return f"Slots were busy for {percent_text(found.utilisation)} of the {makespan}."


def _bound(found: Figures) -> str:
    share = duration_text(found.busy_seconds / found.n_slots)
    return (
        "Lower bound of the makespan, for the units as recorded and slots that can each run any unit: the larger of"
        f" the longest trial's busy time, {duration_text(found.longest_trial_seconds)}"
        f" (trial {found.longest_trial_id}), and all busy time / slots used,"
        f" {duration_text(found.busy_seconds)} / {found.n_slots} = {share}."
    )


def _traffic(traffic: Row) -> str:
    words = (
        f"States changed slots {traffic['n_hops']:,} times, {bytes_text(traffic['bytes_hopped'])} in all;"
        f" {bytes_text(traffic['bytes_stored'])} were stored"
    )
    if traffic["largest_state_bytes"] is not None:
        words += f", the largest state {bytes_text(traffic['largest_state_bytes'])}"
    if traffic["n_live_states"] is not None:
        kept = bytes_text(traffic["live_state_bytes"])
        words += f"; {count_text(traffic['n_live_states'], 'state')} of {kept} in all are kept now"
    return f"{words}.{_between_servers(traffic)}"


def _between_servers(traffic: Row) -> str:
    """Return a sentence on transfers between servers; empty if there were none."""
    words, n_hops = "", traffic.get("n_node_hops") or 0
    if n_hops:
        ahead = percent_text(traffic["n_node_hops_ahead"] / n_hops)
        words += (
            f" From server to server they went {n_hops:,} times, {bytes_text(traffic['node_bytes'])} in"
            f" {duration_text(traffic['node_seconds'])}; {ahead} were there before a unit asked."
        )
    if traffic.get("row_bytes"):
        took = duration_text(traffic["row_seconds"])
        words += f" {bytes_text(traffic['row_bytes'])} of packed rows went to servers that lacked them, in {took}."
    return words
