"""Measure two installed trees by turns, row by row: the one before a change and this one.

Each tree has a process of its own Python with its own private server (turns.py). Both servers are up all the time, and
while one tree measures the other waits. A server needs its extension's files only when it is prepared, so the trees
may share the folder of extension files: the other tree is opened first, and this tree's files are there at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from comparison.measuring import Row
from comparison.page import Measured
from comparison.trees import Tree

HERE = Path(__file__).resolve().parent
Key = tuple[str, int]  # a name, and the place among the rows of that name


class Side:
    """A process that measures a tree's rows on demand."""

    def __init__(self, tree: Tree, process: subprocess.Popen[str]) -> None:
        self._tree = tree
        self._process = process

    def has(self, name: str) -> bool:
        """Say whether the tree has this benchmark."""
        return (self._tree.clone / "benchmarks" / f"{name}.py").exists()

    def next_row(self, name: str) -> Row | None:
        """Measure the benchmark's next row; None at its end."""
        assert self._process.stdin is not None
        print(name, file=self._process.stdin, flush=True)
        found = self.answer()
        return None if found is None else Row(**found)

    def answer(self) -> dict[str, Any] | None:
        """Wait for an answer. Raises RuntimeError when the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the benchmarks of {self._tree.clone} ended with {self._process.wait()}")
        answer: dict[str, Any] | None = json.loads(line)
        return answer


@contextmanager
def _side(tree: Tree, *, n_rounds: int, is_quick: bool) -> Iterator[Side]:
    """A side whose server is up; server and process end with the block."""
    command = [tree.python, HERE / "turns.py", tree.clone / "benchmarks", str(n_rounds), *["--quick"] * is_quick]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tree.clone)
    side = Side(tree, process)
    try:
        side.answer()
        yield side
    finally:
        assert process.stdin is not None
        process.stdin.close()  # the process leaves its loop and removes its server
        process.wait()


def compare(
    names: Sequence[str], before: Tree, *, n_rounds: int, is_quick: bool, show: Callable[[Measured], None]
) -> Iterator[tuple[str, Sequence[Measured]]]:
    """Run the benchmarks on both trees by turns; show and yield a benchmark's rows when all its rounds are done."""
    after = Tree(HERE.parents[1], sys.executable)
    with (
        _side(before, n_rounds=n_rounds, is_quick=is_quick) as old,
        _side(after, n_rounds=n_rounds, is_quick=is_quick) as new,
    ):
        for name in names:
            rows = paired([_round(name, old, new, number) for number in range(n_rounds)])
            for row in rows:
                show(row)
            yield name, rows


def _round(name: str, old: Side, new: Side, number: int) -> tuple[list[Row], list[Row]]:
    """Return a benchmark's rows of the old and the new tree; who measures first changes with each row and round."""
    rows: dict[Side, list[Row]] = {old: [], new: []}
    waiting = [side for side in ((old, new) if number % 2 == 0 else (new, old)) if side.has(name)]
    while waiting:
        for side in tuple(waiting):
            row = side.next_row(name)
            if row is None:
                waiting.remove(side)
            else:
                rows[side].append(row)
        waiting.reverse()
    return rows[old], rows[new]


def paired(rounds: Sequence[tuple[Sequence[Row], Sequence[Row]]]) -> list[Measured]:
    """Pair the new tree's rows with the old one's of the same round, by name and place among rows of that name."""
    by_key = [(_by_key(old), _by_key(new)) for old, new in rounds]
    return [_measured(key, by_key) for key in by_key[-1][1]]


def _by_key(rows: Sequence[Row]) -> dict[tuple[str, int], Row]:
    seen: Counter[str] = Counter()
    keyed = {}
    for row in rows:
        keyed[row.name, seen[row.name]] = row
        seen[row.name] += 1
    return keyed


def _measured(key: Key, rounds: Sequence[tuple[Mapping[Key, Row], Mapping[Key, Row]]]) -> Measured:
    """Put the rounds of one row together: the median, and the values behind the ratios."""
    rows = [new[key] for _, new in rounds if key in new]
    both = [(old[key].value, new[key].value) for old, new in rounds if key in old and key in new]
    value = median(row.value for row in rows)
    whole = replace(rows[-1], value=value, setting=f"{rows[-1].setting}, {len(rows)} rounds")
    return Measured(whole, [before for before, _ in both], [after for _, after in both])
