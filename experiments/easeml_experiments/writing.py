"""Files of a result: tables and measures as CSV, plots as PNG and HTML, a Markdown page over all of them."""

from __future__ import annotations

import csv
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from easeml_db.errors import InvalidArgument
from easeml_experiments.contract import Experiment, Measure, Options, Result

VERDICTS = {True: "yes", False: "**no**", None: ""}
COLUMNS = ("measure", "setting", "paper", "here", "target", "holds")


def write(folder: Path, experiment: Experiment, result: Result, options: Options, command: str) -> list[Path]:
    """Write everything under a folder, which is made; return the files. Raises InvalidArgument."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return list(_write(folder, experiment, result, options, command))
    except OSError as error:
        raise InvalidArgument(f"--out {folder}: {error.strerror or error}") from error


def _write(folder: Path, experiment: Experiment, result: Result, options: Options, command: str) -> Iterator[Path]:
    yield write_csv(folder / "measures.csv", [asdict(measure) for measure in result.measures])
    for name, rows in result.tables.items():
        yield write_csv(folder / f"{name}.csv", rows)
    for name, chart in result.plots.items():
        yield from write_chart(chart, folder / name, scale=1 if options.is_quick else 2)
    path = folder / f"{experiment.name}.md"
    path.write_text(page(experiment, result, options, command), encoding="utf-8")
    yield path


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows under the union of their columns; lists and objects as JSON, what is missing as nothing."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return path


def write_chart(chart: Any, path: Path, *, scale: float) -> Iterator[Path]:
    """Write an Altair chart as a picture, and as a page that needs no network; yield both files."""
    import vl_convert

    from easeml_db.report.libraries import vega_lite_version

    spec = chart.to_dict()
    picture, document = path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.html")
    picture.write_bytes(vl_convert.vegalite_to_png(spec, vl_version=vega_lite_version(), scale=scale))
    yield picture
    document.write_text(_chart_page(spec, path.name), encoding="utf-8")
    yield document


def _chart_page(spec: Mapping[str, Any], name: str) -> str:
    from easeml_db.report.libraries import drawing_libraries, safe_script

    drawing = f'vegaEmbed("#chart", {safe_script(json.dumps(spec))}, {{mode: "vega-lite"}}).catch(console.error);'
    head = f'<meta charset="utf-8"><title>{escape(name)}</title>'
    body = f'<div id="chart"></div><script>{drawing_libraries()}</script><script>{drawing}</script>'
    return f'<!DOCTYPE html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def page(experiment: Experiment, result: Result, options: Options, command: str) -> str:
    """Return the Markdown page: how it was made, the measures, why they differ, the plots, the names of the tables."""
    lines = [f"# {experiment.name}", "", f"{experiment.summary} ({experiment.source}).", ""]
    lines += [f"Made on {date.today().isoformat()} by `{command}`, seed {options.seed}, on {machine()}."]
    if options.is_quick:
        lines += ["", "The quick form tries the code; its numbers mean nothing."]
    lines += ["", *measure_table(result.measures), "", "## Why the values differ", "", result.why.strip(), ""]
    for name in result.plots:
        lines += [f"![{name}]({name}.png)", ""]
    if result.tables:
        lines += ["Tables: " + ", ".join(f"[{name}.csv]({name}.csv)" for name in result.tables) + ".", ""]
    return "\n".join(lines)


def measure_table(measures: Sequence[Measure]) -> list[str]:
    """Return the measures as lines of Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for one in measures:
        numbers = (number_text(one.paper), number_text(one.value))
        cells = (one.name, one.setting, *numbers, one.target or "", VERDICTS[one.holds])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def number_text(value: float | str | None) -> str:
    """Return a number with three significant digits or more, a text as it is."""
    if value is None or isinstance(value, str):
        return value or ""
    if not math.isfinite(value) or value == int(value):
        return f"{value:,.0f}" if math.isfinite(value) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine() -> str:
    """Return what the numbers were measured on, in a few words."""
    from easeml_db import __version__

    n_cores = len(os.sched_getaffinity(0))
    return f"{n_cores} cores ({_processor()}), {platform.system()}, easeml {__version__}"


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | tuple) else value
