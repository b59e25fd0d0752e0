"""A run as one HTML page that needs no network: charts as JSON, Vega's JavaScript once, tables, facts.

Whatever a user has named is escaped. The page's own policy allows the two scripts that it was written with, by their
hashes, and no connection to anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from easeml_db.report.charts import DARK, Frame, busy_slots, config, curve, forecast_chart, gantt, slot_utilisation
from easeml_db.report.datasets import ChartData
from easeml_db.report.evaluation import CHART_ORDER, score_lines
from easeml_db.report.evaluation_charts import held_out_charts
from easeml_db.report.forecasts import forecast_sentences
from easeml_db.report.headline import NOTHING, gantt_note, headline, key_figures
from easeml_db.report.libraries import drawing_libraries
from easeml_db.report.wording import FILTERS, failed

FOLDER = Path(__file__).parent


def page(data: ChartData, *, made_by: str) -> str:
    """Return a run as HTML. made_by: the program that wrote it, for the last line."""
    libraries = drawing_libraries()
    drawing, style = ((FOLDER / "static" / name).read_text(encoding="utf-8") for name in ("page.js", "style.css"))
    return _template().render(
        data=data,
        title=headline(data.rows),
        nothing=NOTHING,
        gantt_note=gantt_note(data),
        cards=key_figures(data.rows, data.figures),
        scores=score_lines(data.rows),
        held_out=[name for name in CHART_ORDER if name in data.datasets],
        forecast_sentences=forecast_sentences(data.rows),
        made_by=made_by,
        style=style,
        policy=_policy([libraries, drawing]),
        document=_json(_charts(data)),
        libraries=libraries,
        drawing=drawing,
    )


@cache
def _template() -> Template:
    templates = Environment(
        loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=lambda value: "" if value is None else value,
    )  # fmt: skip
    templates.filters.update(FILTERS)
    templates.tests["failed"] = failed
    return templates.get_template("report.html")


def _policy(scripts: Sequence[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    # Vega compiles its expressions, and puts a style of its own into the page.
    rules = f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
    return f"{rules}; base-uri 'none'; form-action 'none'"


def _json(value: Any) -> str:
    """Return JSON that is safe within a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _charts(data: ChartData) -> dict[str, Any]:
    """Return each chart's specification with the names of its data; the data once for all of them."""
    frame, drawn = Frame(), {}
    if data.figures.n_units:
        drawn["units_by_slot"] = (gantt(data, "slot", frame), "units slots trials failures pauses")
        drawn["units_by_trial"] = (gantt(data, "trial", frame), "units slots trials failures pauses")
        drawn["busy_slots"] = (busy_slots(data, frame), "busy")
        drawn["slot_utilisation"] = (slot_utilisation(data, frame), "uses use_labels")
    if data.datasets["curves"]["epoch"]:
        drawn["metric"] = (curve(data, "metric", frame), "curves trials")
        drawn["loss"] = (curve(data, "loss", frame), "curves trials")
    if "forecasts" in data.datasets:
        drawn["forecasts"] = (forecast_chart(frame), "forecasts forecast_end")
    drawn |= held_out_charts(data, frame)
    specs = {name: _spec(chart, data_names) for name, (chart, data_names) in drawn.items()}
    return {"charts": specs, "datasets": data.datasets, "dark": DARK}


def _spec(chart: Any, data_names: str) -> dict[str, Any]:
    layout = {
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": {"left": 4, "right": 14, "bottom": 4, "top": 20 if "pauses" in data_names else 4},
    }
    return {**chart.to_dict(validate=False), **layout, "config": config(), "data_names": data_names.split()}
