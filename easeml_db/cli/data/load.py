"""`easeml load`: outside data into ordinary tables, ready for easeml.create_dataset."""

from __future__ import annotations

import csv
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

import easeml_loaders
from easeml_db.cli.terminal.output import say
from easeml_loaders import IfExists, LoadedTable, Source, fashion_mnist, load_table, source

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
AS_OPTION = click.option(
    "--as",
    "bytes_as",
    type=click.Choice(["bytea", "array"]),
    default="bytea",
    show_default=True,
    help="Keep 8-bit images as one bytea (one byte per pixel), or as smallint arrays with their shape.",
)


@dataclass(frozen=True)
class Destination:
    """The options that every loading command has."""

    dsn: str | None
    table: str
    if_exists: IfExists
    as_json: bool

    @functools.cached_property
    def conninfo(self) -> str:
        """The database given, or the embedded one; it has answered. Raises InvalidArgument, ServerUnavailable."""
        from easeml_db.cli.terminal.connection import dsn_or_embedded
        from easeml_db.postgres.connection import connect_now

        conninfo = self.dsn if self.dsn is not None else dsn_or_embedded()
        connect_now(conninfo).close()
        return conninfo


@click.group()
def load() -> None:
    """Load files, arrays and images into tables, by binary COPY in one transaction."""


def destination_options(default_table: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --dsn, --table, --append, --replace and --json, handed to the command as one `Destination`."""
    options = (
        click.option("--dsn", envvar="EASEML_DSN", help="Connection string; default: the embedded server."),
        click.option(
            "--table",
            required=default_table is None,
            default=default_table,
            show_default=default_table is not None,
            help="[schema.]table, quoted as in SQL: '\"My Table\"'.",
        ),
        click.option("--append", is_flag=True, help="Add the rows to the table if it exists."),
        click.option("--replace", is_flag=True, help="Drop the table first if it exists."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(dsn: str | None, table: str, append: bool, replace: bool, as_json: bool, **rest: Any) -> None:
            destination = Destination(dsn or None, table, _policy_for_existing(append, replace), as_json)
            command(destination=destination, **rest)

        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _policy_for_existing(append: bool, replace: bool) -> IfExists:
    if append and replace:
        raise click.UsageError("--append and --replace exclude each other")
    return "append" if append else "replace" if replace else "refuse"


@load.command("csv")
@click.argument("file", type=FILE)
@click.option("--delimiter", default=",", show_default=True, help="One character, or 'tab'.")
@click.option("--null", "nulls", multiple=True, help="A word that means NULL, as an empty field does; repeatable.")
@click.option(
    "--types",
    default="",
    help="Types where they should not be inferred: 'column=type,...'. Types: boolean, smallint, integer, bigint, real, "
    "double precision, numeric, date, timestamp, timestamptz, text.",
    metavar="COLUMN=TYPE,...",
)
@destination_options()
def load_csv(file: Path, delimiter: str, nulls: Sequence[str], types: str, destination: Destination) -> None:
    """Load a CSV FILE with a header row (.gz too); types are inferred over the whole file."""
    declared = parse_types(types)
    separator = "\t" if delimiter in ("tab", "\\t") else delimiter

    def read(progress: source.Progress) -> Source:
        appends = destination.if_exists == "append"
        there = easeml_loaders.column_types(destination.conninfo, destination.table) if appends else {}
        return easeml_loaders.csv_source(
            file, delimiter=separator, nulls=nulls, types=declared, table_types=there, progress=progress
        )

    write(destination, read)


def parse_types(text: str) -> dict[str, str]:
    """Read 'a=text,"b,c"=real' as a dictionary; the entries are split as a line of CSV."""
    types: dict[str, str] = {}
    for entry in next(csv.reader([text]), []):
        name, equals, kind = entry.rpartition("=")
        if not (name and equals and kind.strip()):
            raise click.BadParameter(f"expected column=type, got {entry!r}", param_hint="--types")
        types[name] = kind.strip()
    return types


@load.command("numpy")
@click.argument("file", type=FILE)
@click.option("--inputs", multiple=True, metavar="ARRAY[=COLUMN]", help="An array to load; repeatable.")
@click.option("--target", metavar="ARRAY[=COLUMN]", help="The array of targets.")
@AS_OPTION
@destination_options()
def load_numpy(
    file: Path, inputs: Sequence[str], target: str | None, bytes_as: source.BytesAs, destination: Destination
) -> None:
    """Load the arrays of FILE (.npz or .npy), one row per example."""
    read = functools.partial(easeml_loaders.numpy_source, inputs=inputs, target=target, bytes_as=bytes_as)
    write(destination, lambda _: read(file))


@load.command("idx")
@click.argument("images", type=FILE)
@click.argument("labels", type=FILE)
@AS_OPTION
@destination_options()
def load_idx(images: Path, labels: Path, bytes_as: source.BytesAs, destination: Destination) -> None:
    """Load IMAGES and LABELS in IDX format (MNIST and its kin; .gz too)."""
    write(destination, lambda _: easeml_loaders.idx_source(images, labels, bytes_as=bytes_as))


@load.command("fashion-mnist")
@click.option("--folder", type=FOLDER, default=fashion_mnist.PACKAGE_FOLDER, show_default=True)
@AS_OPTION
@destination_options("fashion_mnist")
def load_fashion_mnist(folder: Path, bytes_as: source.BytesAs, destination: Destination) -> None:
    """Load Fashion-MNIST (70,000 images) from Debian's package dataset-fashion-mnist."""
    write(destination, lambda _: easeml_loaders.fashion_mnist_source(folder, bytes_as=bytes_as))


def _add_bundled(name: str) -> None:
    @load.command(name.replace("_", "-"), help=f"Load the dataset {name} that scikit-learn carries.")
    @destination_options(name)
    def load_bundled(destination: Destination) -> None:
        write(destination, lambda _: easeml_loaders.bundled_source(name))


for _name in easeml_loaders.BUNDLED_NAMES:
    _add_bundled(_name)


def write(destination: Destination, read: Callable[[source.Progress], Source]) -> None:
    """Make the source, write it, report: the part that all commands share."""
    started_seconds = time.perf_counter()
    conninfo = destination.conninfo
    with progress_bar(destination.table) as progress:
        rows = read(progress)
        loaded = load_table(conninfo, rows, destination.table, if_exists=destination.if_exists, progress=progress)
    for note in rows.notes:
        say(f"notice: {note}", err=True)
    report(loaded, time.perf_counter() - started_seconds, destination.as_json)


@contextmanager
def progress_bar(table: str) -> Iterator[source.Progress]:
    """Show a bar on standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)

        def show(n_rows: int, n_rows_total: int | None) -> None:
            description = "reading" if n_rows_total is None else f"loading {table}"
            bar.update(task, completed=n_rows, total=n_rows_total, description=description)

        yield show


def report(loaded: LoadedTable, seconds: float, as_json: bool) -> None:
    """Print what was written."""
    if not as_json:
        rate = loaded.n_rows / max(seconds, 1e-9)
        say(f"{loaded.table}: {loaded.n_rows} rows in {seconds:.2f} s ({rate:,.0f} rows/s)")
        return
    document = {
        "table": loaded.table,
        "n_rows": loaded.n_rows,
        "n_columns": len(loaded.columns),
        "columns": [{"name": name, "type": kind} for name, kind in loaded.columns],
        "seconds": round(seconds, 3),
        "n_bytes": loaded.n_bytes,
    }
    say(json.dumps(document))


COMMANDS = (load,)
