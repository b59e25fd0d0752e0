"""Seconds of `easeml task feed` for a .npy file of pictures, relative to a binary COPY of the same rows by `psql`.

Both are whole commands, from start to exit, of the same role, into the same empty table of a task of pictures. In
addition, a COPY into a table without key and constraints shows what the table itself costs. The server writes a
checkpoint before each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from comparison.measuring import Row, in_turn, seconds_of
from workload import ANALYST, Workload

from easeml_db.local.binaries import find_binaries
from easeml_loaders import fashion_mnist_source
from easeml_loaders.binary_copy import encode_rows
from easeml_loaders.copy_stream import FILE_HEADER, FILE_TRAILER

N_TURNS = 9
TASK = """
SELECT easeml.create_task('fed', 'Input = [28,28,1]  Output = [10]', schema => 'fed',
    classes => %s, run_after_examples => NULL, run_after_minutes => NULL)
"""


def measure(workload: Workload) -> Iterator[Row]:
    """Yield a row for the command and one for the plain table, both relative to the COPY into the task's table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="easeml-feeding-", dir="/var/tmp")))
        classes = _write(folder, workload.n_rows)
        owner = stack.enter_context(workload.session("postgres"))
        session = stack.enter_context(workload.session())
        owner.execute(f"CREATE SCHEMA fed; GRANT USAGE, CREATE ON SCHEMA fed TO {ANALYST}".encode())
        stack.callback(owner.execute, "DROP SCHEMA fed CASCADE")
        session.execute(TASK.encode(), [classes])
        stack.callback(session.execute, "SELECT easeml.drop_task('fed', cascade => true)")
        session.execute("CREATE TABLE fed.plain (input bytea, output text)")
        ((examples,),) = (
            row.values() for row in session.execute("SELECT examples FROM easeml.tasks WHERE task_name = 'fed'")
        )
        command = [Path(sys.executable).with_name("easeml"), "task", "feed", "fed", folder / "images.npy"]
        command += ["--labels", folder / "labels.npy", "--dsn", workload.server.dsn(ANALYST)]
        sides = {
            "command": command,
            "COPY": _psql(workload, folder, examples),
            "plain": _psql(workload, folder, "fed.plain"),
        }

        def turn(side: str) -> tuple[float, float]:
            owner.execute(f"TRUNCATE {examples}, fed.plain".encode())
            owner.execute("CHECKPOINT")
            return _measured(lambda: subprocess.run(sides[side], check=True, stdout=subprocess.DEVNULL))

        turn("command"), turn("COPY")
        asked = [partial(turn, side) for side in sides]
        turns = [dict(zip(sides, in_turn(number, *asked), strict=True)) for number in range(workload.repeats(N_TURNS))]
    for side, name in (
        ("command", "easeml task feed / COPY"),
        ("plain", "COPY into a bare table / COPY"),
    ):
        setting = (
            f"{workload.n_rows} pictures of 28 by 28, {_median(turns, side, 0):.2f} s against"
            f" {_median(turns, 'COPY', 0):.2f} s, processor seconds of the client {_median(turns, side, 1):.2f} against"
            f" {_median(turns, 'COPY', 1):.2f}, {len(turns)} turns"
        )
        ratio = median(each[side][0] / each["COPY"][0] for each in turns)
        yield Row(name, setting, ratio, "x time", at_most=1.5 if side == "command" else None)


def _median(turns: list[dict[str, tuple[float, float]]], side: str, place: int) -> float:
    return median(each[side][place] for each in turns)


def _measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return seconds of wall time, and of processor time of the processes that it ran."""
    before = os.times()
    seconds = seconds_of(work)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, used


def _psql(workload: Workload, folder: Path, table: str) -> list[str | Path]:
    copy = f"\\copy {table} (input, output) FROM '{folder}/rows' (FORMAT BINARY)"
    return [find_binaries() / "psql", "--quiet", "--no-psqlrc", "--dbname", workload.server.dsn(ANALYST), "-c", copy]


def _write(folder: Path, n_rows: int) -> list[str]:
    """Write pictures and labels as .npy, and as the bytes of a COPY; return the labels that there are."""
    source = fashion_mnist_source()
    chunks = [(pixels.data, labels.data) for pixels, labels, _ in source.chunks()]
    pixels, labels = (np.concatenate(part)[:n_rows] for part in zip(*chunks, strict=True))
    np.save(folder / "images.npy", pixels.reshape(-1, 28, 28))
    np.save(folder / "labels.npy", labels.astype(str))
    with (folder / "rows").open("wb") as file:
        file.write(FILE_HEADER)
        for first, second, _ in source.chunks():
            taken = [type(each)(each.data[:n_rows]) for each in (first, second)]
            n_rows -= len(taken[0].data)
            file.writelines(encode_rows(source.columns[:2], taken))
        file.write(FILE_TRAILER)
    return sorted(set(labels.astype(str).tolist()))
