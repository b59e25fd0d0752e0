"""Printing: tables and progress for people, one JSON document for programs, errors on standard error."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import click

from easeml_db.errors import EasemlError
from easeml_db.words.visible_text import visible, visible_lines

INTERRUPTED = 130  # the exit code that shells give a command ended by Ctrl-C
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")


def say(text: object = "", *, err: bool = False) -> None:
    """Print lines. All output except tables goes through here, so that no text in it can control the terminal."""
    click.echo(visible_lines(str(text)), err=err)


def print_error(error: EasemlError) -> None:
    """Print an error in one line, with its detail and hint below, where no line of theirs looks like one of ours."""
    say(f"easeml: {visible(error.message)}", err=True)
    for label, text in (("detail", error.detail), ("hint", error.hint)):
        if text:
            say(f"  {label}: " + "\n    ".join(text.splitlines()), err=True)


def print_json(value: Any) -> None:
    """Print one JSON document; times in ISO 8601, spans as text, numbers that are not finite as null."""
    say(json.dumps(_finite(value), default=_plain, indent=2, allow_nan=False))


def print_rows(
    rows: Sequence[dict[str, Any]],
    *,
    as_json: bool,
    empty: str,
    columns: Mapping[str, str] | None = None,
    is_folded: bool = True,
) -> None:
    """Print rows as a table, or as a JSON array with all columns.

    columns: what the table shows, by name, with headings for people. If the terminal is narrow, the last column folds
    or is cut off.
    """
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        say(empty)
        return
    from easeml_db.cli.terminal.plain_table import (  # a fifth of a command's start; most print no table
        PlainTable,
        print_table,
    )

    shown = columns or {name: name for name in rows[0]}
    table = PlainTable(box=None, pad_edge=False, header_style="bold", expand=not is_folded)
    for name, heading in shown.items():
        justify: Literal["right", "left"] = "right" if all(_is_number(row[name]) for row in rows) else "left"
        if name == list(shown)[-1]:
            overflow: Literal["fold", "ellipsis"] = "fold" if is_folded else "ellipsis"
            ratio = None if is_folded else 1
            table.add_column(heading, justify=justify, no_wrap=not is_folded, overflow=overflow, ratio=ratio)
        else:
            table.add_column(heading, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(text_of(row[name]) for name in shown))
    print_table(table)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool))


def text_of(value: Any) -> str:
    """Return a value as text for people."""
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
        return "[" + ",".join(map(text_of, value)) + "]"
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return float(value)
    raise TypeError(f"no JSON form of {type(value).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
