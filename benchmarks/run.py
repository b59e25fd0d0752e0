"""Measure what the product promises, on a private server with its default settings and Fashion-MNIST.

    python benchmarks/run.py [--quick] [--json] [--out DIR] [--before CLONE] [NAME ...]

A full run takes about two hours and writes docs/benchmarks.md. --out DIR writes DIR/benchmarks.md: each benchmark
replaces its section there as soon as it is done, and what was not measured stays. --quick tries the code on 2,000
images; its numbers mean nothing. A quick or partial run writes a file only where --out says so.

--before measures another clone in the same run, by turns with this one, and shows its values and the ratios too. Set
the clone up first (make -C CLONE setup). The repeats of a benchmark are spread over the rounds, so a full comparison
takes about twice as long as a full run; with --quick it takes 7,000 images and about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from comparison.page import Measured, circumstances, heading, ratio_text, renewed, section
from comparison.paired import compare
from comparison.trees import Tree, tree_at

NAMES = (
    "training_speed",
    "whole_run",
    "picture_task",
    "batched_trials",
    "unit_overhead",
    "checkpoint_space",
    "packing_speed",
    "packing_on_nodes",
    "feeding",
    "prediction_speed",
    "coordinator_overhead",
    "decisions",
    "many_segments",
    "hops",
    "kills",
    "catalogue",
    "bursts",
    "soak",
    "simulated_day",
    "year",
)
DOCS = Path(__file__).resolve().parent.parent / "docs"


def main() -> None:
    """Parse, measure, print, write."""
    arguments = _arguments()
    before = None if arguments.before is None else tree_at(arguments.before, arguments.before_python)
    is_complete = not arguments.quick and not arguments.names
    folder = arguments.out or (DOCS if is_complete else None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    measured: list[Measured] = []
    for name, rows, where in _results(arguments, before):
        measured += rows
        if folder is not None:
            text = section(name, rows, where, None if before is None else before.describe())
            _write(folder / "benchmarks.md", (heading(name), text))
    if arguments.json:
        print(json.dumps([each.to_json() for each in measured], indent=2))


def _write(path: Path, new: tuple[str, str]) -> None:
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(renewed(old, new, NAMES), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which benchmarks, of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="try the code on 2,000 images")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for benchmarks.md")
    parser.add_argument("--before", type=Path, metavar="CLONE", help="a clone to compare with, by turns")
    parser.add_argument(
        "--before-python", metavar="FILE", help="its Python (default: of the environment its make makes)"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each benchmark in a comparison")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds: expected 1 or more, got {arguments.rounds}")
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    return arguments


def _results(arguments: argparse.Namespace, before: Tree | None) -> Iterator[tuple[str, Sequence[Measured], str]]:
    """Measure this tree, or both by turns; show each row as it comes, and yield each benchmark when it is done."""
    names = arguments.names or NAMES
    show = functools.partial(_show, file=sys.stderr if arguments.json else sys.stdout)
    if before is None:
        benchmarks = measure(names, is_quick=arguments.quick, show=show)
    else:
        benchmarks = compare(names, before, n_rounds=arguments.rounds, is_quick=arguments.quick, show=show)
    where = circumstances()
    for name, rows in benchmarks:
        yield name, rows, where
        where = circumstances()


def measure(
    names: Sequence[str], *, is_quick: bool, show: Callable[[Measured], None]
) -> Iterator[tuple[str, Sequence[Measured]]]:
    """Run the benchmarks one after another on one server; yield each with its rows when it is done."""
    from workload import opened

    with opened(is_quick=is_quick) as workload:
        for name in names:
            rows = []
            for row in importlib.import_module(name).measure(workload):
                rows.append(Measured(row))
                show(rows[-1])
            yield name, rows


def _show(measured: Measured, file: TextIO) -> None:
    row = measured.row
    verdict = {True: "holds", False: "MISSED", None: ""}[row.holds]
    compared = f"{ratio_text(measured):32} " if measured.ratios else ""
    print(f"{row.name:48} {row.value:8.3f} {row.unit:8} {row.target:8} {verdict:7} {compared}{row.setting}", file=file)
    file.flush()


if __name__ == "__main__":
    main()
