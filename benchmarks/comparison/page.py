"""The page docs/benchmarks.md: a section for each benchmark, of the last time that it was measured."""

from __future__ import annotations

import importlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from comparison.measuring import Row
from comparison.trees import Tree

from easeml_db.local.binaries import find_binaries

MOST_WORSE = 0.03
HEADINGS = ("measure", "setting", "value", "target", "holds")
INTRODUCTION = """# Benchmarks

Each section shows the last measurement of a benchmark in `benchmarks/`; `python benchmarks/run.py NAME --out docs`
renews it. A ratio is the median over pairs. The sides of a pair take turns, so that both meet the same other load, and
the one that went second goes first next time; until 28 November the same side always went first, except in hops.
The server is a private one as `easeml up` makes it, with its default settings (durable commits and all), on
two slots of one thread each; a tenant packs the datasets under row-level security. Plain PyTorch and
LightGBM, in processes of the benchmark, have one thread and the allocator settings of a slot, which keep freed memory.
"""


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


def renewed(old: str, section: tuple[str, str], names: Sequence[str]) -> str:
    """Return the page with one section, a heading and a text, in the place of what `old` has under that heading.

    Sections of `names`, the benchmarks there are, come in their order; those that were written by hand follow.
    """
    sections = {**dict(_sections(old)), section[0]: section[1]}
    ours = [heading(name) for name in names]
    order = [each for each in ours if each in sections] + [each for each in sections if each not in ours]
    return INTRODUCTION + "".join(f"\n## {each}\n\n{sections[each]}\n" for each in order)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    for part in f"\n{text}".split("\n## ")[1:]:
        first, _, body = part.partition("\n")
        yield first.strip(), body.strip()


def heading(name: str) -> str:
    """Return the heading of a benchmark's section."""
    return name.replace("_", " ").capitalize()


def section(name: str, rows: Sequence[Measured], circumstances: str, before: str | None = None) -> str:
    """Return what a benchmark measures, when and where it was measured, and its rows.

    `before` names the other tree where two were compared.
    """
    parts = [(importlib.import_module(name).__doc__ or "").strip(), "", f"{circumstances}.", ""]
    if before is not None:
        parts += [_comparison(before)]
    return "\n".join([*parts, *_table(rows, is_compared=before is not None)])


def circumstances() -> str:
    """Return day, commit, command and machine of a benchmark that begins now, and how busy the machine has been."""
    command = shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]])
    commit = Tree(Path(__file__).resolve().parents[2], sys.executable).describe()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    server = subprocess.run([find_binaries() / "postgres", "--version"], capture_output=True, text=True, check=True)
    return (
        f"Measured on {date.today().isoformat()} at {commit} by `{command}`:"
        f" {len(os.sched_getaffinity(0))} cores of {models[0] if models else platform.machine()}, load average"
        f" {os.getloadavg()[0]:.1f} at the start, PostgreSQL {server.stdout.split()[2]},"
        f" Python {platform.python_version()}, torch {version('torch')}"
    )


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
