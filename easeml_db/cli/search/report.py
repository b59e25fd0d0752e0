"""easeml run report: a run as an HTML page and a PNG."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psycopg

from easeml_db import __version__
from easeml_db.cli.search.report_evaluation import read_held_out
from easeml_db.cli.terminal.arguments import run_argument
from easeml_db.cli.terminal.connection import database, dsn_option
from easeml_db.cli.terminal.output import json_option, print_json, say
from easeml_db.cli.terminal.statements import Connection, run_or_newest
from easeml_db.errors import EasemlError, InvalidArgument
from easeml_db.postgres.queries import queries
from easeml_db.report.rows import RunRows

if TYPE_CHECKING:
    from easeml_db.report.datasets import ChartData

FORMATS = ("html", "png")


@click.command()
@run_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("."),
    help="Folder, or file that ends in .html or .png (default: run-N.html and run-N.png in the current folder).",
)
@click.option(
    "--format",
    "chosen_format",
    type=click.Choice([*FORMATS, "both"]),
    help="What to write (default: what the ending of --out says, else both).",
)
@click.option(
    "--top",
    "n_top",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="How many trials the leaderboard lists.",
)
@click.option(
    "--evaluate/--no-evaluate",
    "is_evaluated",
    default=True,
    help="Whether the best trial predicts held-out rows, for the section on evaluation (default: it does).",
)
@dsn_option
@json_option
def report(
    run_id: int | None,
    out: Path,
    chosen_format: str | None,
    n_top: int,
    is_evaluated: bool,
    dsn: str | None,
    as_json: bool,
) -> None:
    """Write RUN (default: the newest) as one HTML page that needs no network, and as a PNG.

    Shows units by slot and by trial, learning curves, the leaderboard, how good the best trial is on held-out rows and
    what its answers depend on, utilisation, the makespan beside its lower bound, states hopped and stored, and what
    happened. A run that is still going on is shown up to now.
    """
    check_place(out)
    with database(dsn) as connection:
        rows = read_rows(connection, run_or_newest(connection, run_id), is_evaluated=is_evaluated)
    paths = report_paths(out, rows.run["run_id"], chosen_format)
    data = write_report(rows, paths, n_top)
    if as_json:
        written = {kind: str(paths[kind]) if kind in paths else None for kind in FORMATS}
        facts = {"run_id": rows.run["run_id"], "status": rows.run["status"], **written}
        print_json({**facts, "figures": asdict(data.figures), "traffic": rows.traffic})
    else:
        for path in paths.values():
            say(path)


COMMANDS = (report,)


def read_rows(connection: Connection, run_id: int, *, is_evaluated: bool) -> RunRows:
    """Return the data of a report, read at one instant; evaluated: with answers for held-out rows."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with connection.transaction():
        tables = {
            name: connection.execute(statement.encode(), {"run_id": run_id}).fetchall()
            for name, statement in queries("report").items()
        }
        (run,), (traffic,) = tables.pop("run"), tables.pop("run_traffic")
        held_out, unmeasured = read_held_out(connection, run) if is_evaluated else ({}, None)
    return RunRows(run=run, traffic=traffic, held_out=held_out, unmeasured=unmeasured, **tables)


def check_place(out: Path) -> None:
    """Refuse a file of another kind, which would otherwise become a folder of that name. Raises InvalidArgument."""
    if out.suffix[1:].isalpha() and out.suffix not in (".html", ".png") and not out.is_dir():
        raise InvalidArgument(
            f"--out {out}: expected a folder, or a file that ends in .html or .png",
            hint="For a PDF print the page from a browser; a folder with a dot in its name must be there already.",
        )


def report_paths(out: Path, run_id: int, chosen_format: str | None) -> dict[str, Path]:
    """Return the path of each format: beside a named file with its stem, or run-N in a folder."""
    is_file = out.suffix in (".html", ".png") and not out.is_dir()
    stem = out.with_suffix("") if is_file else out / f"run-{run_id}"
    chosen = chosen_format or (out.suffix[1:] if is_file else "both")
    return {kind: Path(f"{stem}.{kind}") for kind in FORMATS if chosen in (kind, "both")}


def write_report(rows: RunRows, paths: dict[str, Path], n_top: int) -> ChartData:
    """Write each format to its path. Raises EasemlError where the extra is not installed, or a path not writable."""
    try:
        from easeml_db.report.datasets import chart_data
        from easeml_db.report.page import page
        from easeml_db.report.picture import picture
    except ModuleNotFoundError as error:
        raise EasemlError(
            f"easeml run report needs the package {error.name}, which is not installed",
            hint="pip install 'easeml-db[report]'",
        ) from error
    data = chart_data(rows, n_top=n_top)
    if "html" in paths:
        _save(paths["html"], page(data, made_by=f"easeml-db {__version__}").encode())
    if "png" in paths:
        _save(paths["png"], picture(data))
    return data


def _save(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise EasemlError(f"cannot write {path}: {error.strerror}", hint="Choose another place with --out.") from error
