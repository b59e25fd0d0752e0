"""Rows of a service that has been used for a year, made by statements over whole tables: no run, no unit is trained.

They are as consistent as real ones (foreign keys are checked by whoever wants to), with values that are made up.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import tuple_row


@dataclass(frozen=True)
class Size:
    """How much there is. Each trial has `n_epochs` training units and as many evaluations, and one test.

    Run n_runs / 2 - 1 has `largest_run` trials; one run in `open_every` is still open.
    """

    n_tenants: int = 200
    n_runs: int = 20_000
    n_trials_each: int = 15
    n_epochs: int = 5
    n_candidates: int = 10
    largest_run: int = 10_000
    open_every: int = 100


LATER = re.compile(r"^.*-- since 0\.2\.0\n", re.MULTILINE)
FORMER = re.compile(r"^.*-- until 0\.1\.0\n", re.MULTILINE)
FULL = Size()
QUICK = Size(n_tenants=20, n_runs=400, n_trials_each=10, n_epochs=3, largest_run=500)
TINY = Size(n_tenants=4, n_runs=12, n_trials_each=3, n_epochs=2, n_candidates=3, largest_run=20, open_every=6)


def statements(*, is_first: bool) -> list[str]:
    """Return what fills the tables; those of the first version have other columns."""
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    return (LATER if is_first else FORMER).sub("", text).split(";\n\n")


def fill(connection: psycopg.Connection[Any], size: Size) -> None:
    """Fill an empty database that has the extension, as superuser; roles tenant_1 and on are those tenants, if any."""
    with connection.transaction():
        # Each row would be looked up in the tables that it names, and the status of each run compared with its last.
        connection.execute("SET LOCAL session_replication_role = replica")
        with connection.cursor(row_factory=tuple_row) as cursor:
            version = cursor.execute("SELECT extversion FROM pg_extension WHERE extname = 'easeml'").fetchall()[0][0]
        for statement in statements(is_first=version == "0.1.0"):
            connection.execute(statement.encode(), asdict(size))
    connection.execute("ANALYZE")
