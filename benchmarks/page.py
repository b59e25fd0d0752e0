"""The page docs/benchmarks.md: a table for each benchmark, with a second tree's values where two were compared."""

from __future__ import annotations

import importlib
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

from measuring import Row

MOST_WORSE = 0.03
HEADINGS = ("measure", "setting", "value", "target", "holds")
Results = Mapping[str, Sequence["Measured"]]


@dataclass(frozen=True)
class Measured:
    """A row of this tree; `before` has the other tree's value in each round, `after` this tree's in the same rounds.

    Without a comparison both are empty.
    """

    row: Row
    before: Sequence[float] = ()
    after: Sequence[float] = ()

    @property
    def ratios(self) -> list[float]:
        """This tree's value relative to the other's, round by round."""
        return [after / before for before, after in zip(self.before, self.after, strict=True) if before]

    @property
    def is_worse(self) -> bool:
        """Whether the median ratio is worse by more than the project allows."""
        if not self.ratios:
            return False
        ratio = median(self.ratios)
        return ratio < 1 - MOST_WORSE if self.row.is_higher_better else ratio > 1 + MOST_WORSE

    def to_json(self) -> dict[str, Any]:
        """Return the row as the JSON output has it, with the values of a comparison."""
        compared = {"before": list(self.before), "after": list(self.after), "is_worse": self.is_worse}
        return self.row.to_json() | (compared if self.before else {})


def page(results: Results, before: str | None = None) -> str:
    """Return the whole page; `before` names the other tree where two were compared."""
    command = shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]])
    parts = [
        "# Benchmarks\n",
        f"Made on {date.today().isoformat()} by `{command}`; do not edit by hand.\n",
        "Each ratio is the median over pairs that were measured by turns, so that both sides met the same neighbours.",
        "The server is a private one as `easeml up` makes it, with its default settings (durable commits and all), on",
        "two slots of one thread each; datasets are packed by a tenant under row-level security.\n",
    ]
    if before is not None:
        parts += [_comparison(before)]
    parts += ["\n".join(f"* {name}: {value}" for name, value in machine().items()) + "\n"]
    for name, rows in results.items():
        parts += [f"## {name.replace('_', ' ').capitalize()}\n", (importlib.import_module(name).__doc__ or "").strip()]
        parts += ["", *_table(rows, is_compared=before is not None), ""]
    return "\n".join(parts)


def _comparison(before: str) -> str:
    return (
        f"Column *before* has the values of {before}, measured in the same run: each tree had its own server,\n"
        "and row by row the trees took turns. Column *after / before* is the median over the rounds of this tree's\n"
        "value relative to the other's, with the least and the greatest; bold where it is worse by more than"
        f" {MOST_WORSE:.0%}.\n"
    )


def _table(rows: Sequence[Measured], *, is_compared: bool) -> list[str]:
    headings = [*HEADINGS[:2], *(["before"] if is_compared else []), *HEADINGS[2:]]
    headings += ["after / before"] if is_compared else []
    lines = [headings, ["---"] * len(headings), *(_cells(measured, is_compared) for measured in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _cells(measured: Measured, is_compared: bool) -> list[str]:
    row = measured.row
    holds = {True: "yes", False: "**no**", None: "reported"}[row.holds]
    cells = [f"{row.value:.3g} {row.unit}", row.target, holds]
    if is_compared:
        before = f"{median(measured.before):.3g} {row.unit}" if measured.before else "not measured"
        cells = [before, *cells, ratio_text(measured)]
    return [row.name, row.setting, *cells]


def ratio_text(measured: Measured) -> str:
    """Return the median ratio with its range, bold where it is worse."""
    ratios = measured.ratios
    if not ratios:
        return ""
    text = f"{median(ratios):.3f}"
    return f"{f'**{text}**' if measured.is_worse else text} ({min(ratios):.3f} to {max(ratios):.3f})"


def machine() -> dict[str, str]:
    """Return what the numbers were measured on."""
    import numpy as np
    import torch

    from easeml_db import __version__
    from easeml_db.local.binaries import find_binaries

    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    server = os.popen(f"{find_binaries() / 'postgres'} --version").read().strip()
    return {
        "processor": f"{len(os.sched_getaffinity(0))} cores, {models[0] if models else platform.machine()}",
        "system": platform.platform(),
        "server": server,
        "Python": f"{platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}",
        "easeml": __version__,
    }
