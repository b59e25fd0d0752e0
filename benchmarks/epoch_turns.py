"""Units of two installed trees, epoch by epoch by turns: what differs by a few per cent, which `run.py --before` cannot
tell from a machine whose speed changes within minutes.

    python benchmarks/epoch_turns.py CLONE [--python PYTHON] [--vacuum]

Both servers are up. A turn is an epoch of a perceptron (784-128-10, Adam, a state of 1.2 MB) on 2,000 images: four
training units and four evaluations, once in one session, once in two that take turns. What is compared is the whole
CALL as the client sees it, less its training_seconds: medians after the epochs that warm the sessions up. With
--vacuum, pruned states are vacuumed between units as the coordinator does, on both sides.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from comparison.trees import Tree, tree_at

HERE = Path(__file__).resolve().parent
N_ROWS = 2_000
N_EPOCHS = 60
N_WARM_EPOCHS = 12
RECLAIM_BYTES = 2 << 20  # as much is worth a vacuum to the coordinator
VACUUM = b"VACUUM (TRUNCATE false) easeml.checkpoints, easeml.checkpoint_chunks"
SESSIONS = {"state in the session": 1, "after a hop": 2}
Key = tuple[str, str]  # which sessions, which kind of unit


def main() -> None:
    """Compare, or be one of the sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path, help="clone of the other tree")
    parser.add_argument("--python", help="Python of its environment; its Makefile's if not given")
    parser.add_argument("--vacuum", action="store_true", help="vacuum pruned states between units")
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        _take_turns(asked.clone, has_vacuum=asked.vacuum)
    else:
        _compare(tree_at(asked.clone, asked.python), has_vacuum=asked.vacuum)


def _compare(before: Tree, *, has_vacuum: bool) -> None:
    """Print the medians of both trees, in milliseconds, and their ratio."""
    after = Tree(HERE.parent, sys.executable)
    times: dict[Tree, defaultdict[Key, list[float]]] = {tree: defaultdict(list) for tree in (before, after)}
    with ExitStack() as stack:
        sides = {tree: stack.enter_context(_side(tree, has_vacuum=has_vacuum)) for tree in (before, after)}
        for epoch in range(N_EPOCHS):
            for tree in (before, after) if epoch % 2 else (after, before):
                print(file=sides[tree].stdin, flush=True)
                for sessions, kind, seconds in _answer(sides[tree]):
                    if epoch >= N_WARM_EPOCHS:
                        times[tree][sessions, kind].append(seconds * 1e3)
    for key in ((sessions, kind) for sessions in SESSIONS for kind in ("train", "validate")):
        old, new = (median(times[tree][key]) for tree in (before, after))
        print(f"{key[1]:10s}{key[0]:24s}{old:8.2f}{new:8.2f} ms{new / old:8.3f}  {len(times[after][key])} units each")


@contextmanager
def _side(tree: Tree, *, has_vacuum: bool) -> Iterator[subprocess.Popen[str]]:
    """A process of the tree's Python whose server is up; both end with the block."""
    command = [tree.python, __file__, tree.clone, "--side", *["--vacuum"] * has_vacuum]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tree.clone
    ) as process:
        _answer(process)
        yield process


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended with {process.wait()}")
    return json.loads(line)


def _take_turns(clone: Path, *, has_vacuum: bool) -> None:
    """Train an epoch for each line of standard input, and answer with its units and their seconds."""
    sys.path[0] = str(clone / "benchmarks")  # the tree's own workload
    workload_of = importlib.import_module("workload")
    with ExitStack() as stack:
        workload = stack.enter_context(workload_of.opened(is_quick=False))
        dataset = workload.dataset(n_rows=N_ROWS)
        owner, tenant = (stack.enter_context(workload.session(user)) for user in ("postgres", workload_of.ANALYST))
        runs = {}
        for name, n_sessions in SESSIONS.items():
            run_id = workload_of.start_run(tenant, dataset, "mlp", 256, rates=[1e-3], max_epochs=N_EPOCHS)
            slots = [stack.enter_context(workload.slot(number)) for number in range(1, n_sessions + 1)]
            orders = workload_of.Life(tenant, run_id).orders()
            runs[name] = slots, groupby(orders, key=lambda order: order.unit.epoch)
        owner.execute("CHECKPOINT")
        print("null", flush=True)
        pruned_bytes = 0
        for _ in sys.stdin:
            units = []
            for name, (slots, epochs) in runs.items():
                for order in next(epochs)[1]:
                    seconds, result = slots[order.unit.step % len(slots)].call(order)
                    units.append((name, order.unit.kind, seconds - result.get("training_seconds", 0)))
                    pruned_bytes += result.get("pruned_bytes", 0)
                    if has_vacuum and pruned_bytes >= RECLAIM_BYTES:
                        owner.execute(VACUUM)
                        pruned_bytes = 0
            print(json.dumps(units), flush=True)


if __name__ == "__main__":
    main()
