"""Rows of random jobs, kept in a file as lines of JSON, so that a run of hours which was stopped goes on there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from easeml_db.errors import InvalidArgument
from easeml_experiments.planner.random_cases import Case

Row = dict[str, Any]


def rows_of(
    path: str | None, seed: int, cases: Iterator[Case], make: Callable[[Case], Row], n_cases: int
) -> Iterator[Row]:
    """Yield the rows that a file has, then those of the other cases, each kept as soon as it is there.

    Without a path nothing is kept. A last line that was cut short is made anew. Raises InvalidArgument where the file
    has rows of another seed.
    """
    kept = [] if path is None else _read(Path(path), seed)
    yield from kept[:n_cases]
    for case in islice(cases, len(kept), n_cases):
        row = {"seed": seed, **make(case)}
        if path is not None:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        yield row


def _read(path: Path, seed: int) -> list[Row]:
    """Return the rows of a file, and cut off what is no whole line."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    try:
        rows = [json.loads(line) for line in whole.splitlines()]
        is_ours = all((row["seed"], row["case"]) == (seed, number) for number, row in enumerate(rows))
    except (ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise InvalidArgument(
            f"--rows: expected a file of random jobs of seed {seed}, got {path}, which holds something else",
            hint="Name a file that is not there yet, or give the seed with which it was begun.",
        )
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return rows
