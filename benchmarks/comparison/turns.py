"""One tree's side of a comparison: a process of that tree's Python that measures a row whenever it is asked to.

    TREE/PYTHON benchmarks/comparison/turns.py TREE/benchmarks N_ROUNDS [--quick]

It starts a server, then reads names of benchmarks from standard input, one a line, and answers each with the next row
of that benchmark as JSON, or with null at its end; the name after that begins the benchmark again. The scripts are
those of the tree, since they import its modules. What a benchmark would repeat is spread over the rounds.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

QUICK_ROWS = 7_000


def main() -> None:
    """Answer until standard input ends."""
    folder, n_rounds, is_quick = sys.argv[1], int(sys.argv[2]), "--quick" in sys.argv
    sys.path[0] = folder  # the tree's own benchmarks, instead of those beside this file
    answers = _only_answers()
    opened = importlib.import_module("workload").opened
    with opened(is_quick=is_quick) as workload:
        print("null", file=answers, flush=True)  # ready
        _answer(_turn_of(workload, n_rounds), answers)


def _only_answers() -> TextIO:
    """Return standard output for answers alone: what benchmarks and their children print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _turn_of(workload: Any, n_rounds: int) -> Any:
    """The workload with a round's share of the repeats; in quick form with a tenth of the images."""

    class Turn(type(workload)):  # type: ignore[misc]
        @property
        def n_rows(self) -> int:
            return QUICK_ROWS if self.is_quick else int(super().n_rows)

        def repeats(self, n: int) -> int:
            return max(1, n // n_rounds)

    return Turn(**vars(workload))


def _answer(workload: Any, answers: TextIO) -> None:
    begun: dict[str, Iterator[Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in begun:
            begun[name] = importlib.import_module(name).measure(workload)
        row = next(begun[name], None)
        if row is None:
            del begun[name]
        print(json.dumps(row if row is None else vars(row)), file=answers, flush=True)


if __name__ == "__main__":
    main()
