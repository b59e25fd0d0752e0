"""Printing: tables and progress for people, one JSON document for programs, errors on standard error."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from easeml_db.errors import EasemlError

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")


def print_error(error: EasemlError) -> None:
    """Print an error in one line, with its detail and hint below."""
    click.echo(f"easeml: {error.message}", err=True)
    for label, text in (("detail", error.detail), ("hint", error.hint)):
        if text:
            click.echo(f"  {label}: {text}", err=True)


def print_json(value: Any) -> None:
    """Print one JSON document; times in ISO 8601."""
    click.echo(json.dumps(value, default=_plain, indent=2))


def print_rows(
    rows: Sequence[dict[str, Any]], *, as_json: bool, empty: str, columns: Sequence[str] | None = None
) -> None:
    """Print rows as a table, or as a JSON array with all columns."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        click.echo(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = list(columns or rows[0])
    for name in shown:
        is_number = all(
            isinstance(row[name], int | float | decimal.Decimal | None) and not isinstance(row[name], bool)
            for row in rows
        )
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text_of(row[name]) for name in shown))
    Console(soft_wrap=False).print(table)


def text_of(value: Any) -> str:
    """A value for people's eyes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, datetime.datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict):
        return ", ".join(f"{key}={text_of(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    raise TypeError(f"no JSON form of {type(value).__name__}")
