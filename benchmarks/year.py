"""How large the catalogue is month by month in a year of 100,000 runs, with what easeml prune removes by default.

Each month brings a twelfth of the runs, of 200 tenants, with 8 trials and 5 epochs each, their units, evaluations,
metrics, events and decisions, inserted by statements over whole tables. At the end of each month the real prune and a
vacuum follow, as of that day: rows have the dates of the year that ends now, and everything that leaves after 30 days
by default is kept for so many days longer as the year has still to go. States have 64 bytes, to show the catalogue
beside them; by default they stay, as runs, trials and metrics do. YEAR_RUNS says how many runs there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from comparison.measuring import Row
from stored_rows import catalogue_rows
from workload import Workload, private_server

N_RUNS, QUICK_RUNS, N_MONTHS = 100_000, 2_400, 12
MONTH = timedelta(days=30)
SIZES = """SELECT c.relname::text, pg_total_relation_size(c.oid) FROM pg_class c
    WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r' ORDER BY 2 DESC"""
BY_DEFAULT = "SELECT what FROM easeml.retention_rules() WHERE keep = '30 days'"
BATCH = "SELECT n_rows, last FROM easeml.prune_batch(%s, %s, false)"
N_SHOWN, MOST_GROWTH = 5, 0.7


def measure(workload: Workload) -> Iterator[Row]:
    """Fill a private server of its own month by month, and look at its tables."""
    n_runs = QUICK_RUNS if workload.is_quick else int(os.environ.get("YEAR_RUNS", N_RUNS))
    yield from rows_of(n_runs)


def rows_of(n_runs: int) -> Iterator[Row]:
    """Yield the size after each month, and how the last months compare with the first."""
    sizes: list[float] = []
    with private_server() as server, psycopg.connect(server.dsn(), autocommit=True) as connection:
        _tenants(connection)
        empty = _total(connection)
        for month in range(1, N_MONTHS + 1):
            n_new = n_runs // N_MONTHS
            _fill(connection, month, n_new)
            n_pruned = _prune(connection, month)
            connection.execute("VACUUM ANALYZE")
            sizes.append((_total(connection) - empty) / 1e6)
            told = f"{month * n_new:,} runs so far, {n_pruned:,} rows left; {_largest(connection)}"
            yield Row(f"after month {month}", told, sizes[-1], "MB")
        connection.execute("REINDEX SCHEMA easeml")
        anew = (_total(connection) - empty) / 1e6
    later, n_later = (sizes[-1] - sizes[5]) / 6, n_runs // N_MONTHS
    told = f"{later:.1f} MB against {sizes[0]:.1f} MB"
    yield Row("growth in a later month / the first month", told, later / sizes[0], "x", at_most=MOST_GROWTH)
    yield Row("a run once its month is over", f"{n_runs:,} runs", 1e6 * later / n_later, "bytes")
    yield Row(f"after month {N_MONTHS}, with indexes built anew", f"{n_runs:,} runs", anew, "MB")


def _tenants(connection: psycopg.Connection) -> None:
    """Make the tenants and their datasets as the other benchmark of the catalogue does."""
    size = catalogue_rows.Size(n_runs=0)
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")
        for statement in catalogue_rows.statements(is_first=False)[:5]:
            connection.execute(statement.encode(), vars(size))
    connection.execute("SELECT setval('easeml.datasets_dataset_id_seq', (SELECT max(dataset_id) FROM easeml.datasets))")


def _fill(connection: psycopg.Connection, month: int, n_new: int) -> None:
    begins = datetime.now(UTC) - (N_MONTHS - month + 1) * MONTH
    values = {
        "first": (month - 1) * n_new + 1,
        "last": month * n_new,
        "begins": begins,
        "seconds": MONTH.total_seconds() - 3600,
    }
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    with connection.transaction():
        # Each row would be looked up in the tables that it names.
        connection.execute("SET LOCAL session_replication_role = replica")
        for statement in text.split(";\n\n"):
            connection.execute(statement.encode(), values)
    connection.execute("ANALYZE")


def _prune(connection: psycopg.Connection, month: int) -> int:
    """Remove what easeml prune would have removed by default at the end of a month; return how many rows that were."""
    n_rows = 0
    for (what,) in connection.execute(BY_DEFAULT).fetchall():
        connection.execute("SELECT easeml.set_retention(%s, %s)", [what, (N_MONTHS - month + 1) * MONTH])
        last: int | None = 0
        while last is not None:
            n, last = connection.execute(BATCH, [what, last]).fetchall()[0]
            n_rows += n
    return n_rows


def _total(connection: psycopg.Connection) -> float:
    return float(sum(n_bytes for _, n_bytes in connection.execute(SIZES).fetchall()))


def _largest(connection: psycopg.Connection) -> str:
    sizes = [(name, n_bytes / 1e6) for name, n_bytes in connection.execute(SIZES).fetchall()]
    others = sum(size for _, size in sizes[N_SHOWN:])
    return ", ".join(f"{name} {size:.1f}" for name, size in sizes[:N_SHOWN]) + f", others {others:.1f} MB"


if __name__ == "__main__":
    for row in rows_of(int(os.environ.get("YEAR_RUNS", N_RUNS))):
        print(row.name, row.setting, f"{row.value:.4g} {row.unit}", row.holds, flush=True)
