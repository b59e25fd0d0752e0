"""Measure what the product promises, on a private server with its default settings and Fashion-MNIST.

    python benchmarks/run.py [--quick] [--json] [--out DIR] [NAME ...]

A full run takes about half an hour and writes DIR/benchmarks.md (docs/ unless told otherwise). --quick tries the code
on 2,000 images; its numbers mean nothing. A quick or partial run writes a file only where --out says so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from measuring import Row

NAMES = (
    "training_speed",
    "whole_run",
    "unit_overhead",
    "checkpoint_space",
    "packing_speed",
    "prediction_speed",
    "coordinator_overhead",
    "kills",
)
DOCS = Path(__file__).resolve().parent.parent / "docs"
Results = Mapping[str, Sequence[Row]]


def main() -> None:
    """Parse, measure, print, write."""
    arguments = _arguments()
    results = measure(arguments.names or NAMES, is_quick=arguments.quick, is_silent=arguments.json)
    if arguments.json:
        print(json.dumps([row.to_json() for rows in results.values() for row in rows], indent=2))
    is_complete = not arguments.quick and not arguments.names
    folder = arguments.out or (DOCS if is_complete else None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "benchmarks.md").write_text(page(results), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which benchmarks, of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="try the code on 2,000 images")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for benchmarks.md")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    return arguments


def measure(names: Sequence[str], *, is_quick: bool, is_silent: bool) -> Results:
    """Run the benchmarks one after another on one server; show each row as it comes."""
    from workload import opened

    results: dict[str, list[Row]] = {}
    with opened(is_quick=is_quick) as workload:
        for name in names:
            results[name] = []
            for row in importlib.import_module(name).measure(workload):
                results[name].append(row)
                print(_line(row), file=sys.stderr if is_silent else sys.stdout, flush=True)
    return results


def _line(row: Row) -> str:
    verdict = {True: "holds", False: "MISSED", None: ""}[row.holds]
    return f"{row.name:48} {row.value:8.3f} {row.unit:8} {row.target:8} {verdict:7} {row.setting}"


# The page


def page(results: Results) -> str:
    """The whole of docs/benchmarks.md."""
    command = shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]])
    parts = [
        "# Benchmarks\n",
        f"Made on {date.today().isoformat()} by `{command}`; do not edit by hand.\n",
        "Each ratio is the median over pairs that were measured by turns, so that both sides met the same neighbours.",
        "The server is a private one as `easeml up` makes it, with its default settings (durable commits and all), on",
        "two slots of one thread each; data sets are packed by a tenant under row-level security.\n",
        "\n".join(f"* {name}: {value}" for name, value in machine().items()) + "\n",
    ]
    for name, rows in results.items():
        parts += [f"## {name.replace('_', ' ').capitalize()}\n", (importlib.import_module(name).__doc__ or "").strip()]
        parts += ["", "| measure | setting | value | target | holds |", "|---|---|---|---|---|"]
        parts += [_cells(row) for row in rows] + [""]
    return "\n".join(parts)


def _cells(row: Row) -> str:
    holds = {True: "yes", False: "**no**", None: "reported"}[row.holds]
    return f"| {row.name} | {row.setting} | {row.value:.3g} {row.unit} | {row.target} | {holds} |"


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    import numpy as np
    import torch

    from easeml_db import __version__
    from easeml_db.local.server import find_binaries

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


if __name__ == "__main__":
    main()
