"""Arguments that many commands take: a run, slots, lists with commas, and JSON (in place or in a file)."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import click
from psycopg.types.json import Jsonb

run_argument = click.argument("run_id", metavar="[RUN]", type=int, required=False)
slots_option = click.option(
    "--slots", "n_slots", type=click.IntRange(1, 1000), help="Units that run side by side (default: one for each core)."
)


def name_list(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Read 'a,"b,c"' as ["a", "b,c"]: it is split as a line of CSV."""
    if value is None:
        return None
    names = [name.strip() for name in next(csv.reader([value], skipinitialspace=True), [])]
    if not names or not all(names):
        raise click.BadParameter(f"expected names with commas between them, got {value!r}", context, parameter)
    return names


def integer_list(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int] | None:
    """Read '28,28' as [28, 28]."""
    names = name_list(context, parameter, value)
    try:
        return None if names is None else [int(name) for name in names]
    except ValueError as error:
        raise click.BadParameter(f"expected whole numbers with commas, got {value!r}", context, parameter) from error


def json_value(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """Read a JSON text, or the JSON in @FILE."""
    if value is None:
        return None
    try:
        return json.loads(Path(value[1:]).read_text(encoding="utf-8") if value.startswith("@") else value)
    except OSError as error:
        raise click.BadParameter(f"cannot read {value[1:]}: {error.strerror}", context, parameter) from error
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", context, parameter) from error


def jsonb(value: Any) -> Jsonb | None:
    """Return a document in the form that the server expects; None if there is none."""
    return None if value is None else Jsonb(value)
