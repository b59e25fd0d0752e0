"""What grows while tenants train, predict and watch, run after run: memory, files and sessions of the service.

Four tenants start small runs of every kind one after the other, predict with them and read the views. Runs keep the
states of their trials, which came to 1.4 GB a minute. So each tenant drops all runs but its newest ones and those that
failed, which are counted; dropped runs must make room for new ones. After a first third, in which caches fill,
each number is the median of the last third over that of the second. It takes ten minutes, or as long as the environment
variable SOAK_MINUTES says, on a private server of its own with two slots.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from comparison.measuring import Row
from psycopg.rows import dict_row
from workload import Session, Workload, private_server

from easeml_db.local.server import Embedded
from easeml_db.local.waiting import running_coordinator

MINUTES = 10.0
N_TENANTS = 4
LOOKS = 60  # over the whole time
N_KEPT_RUNS = 5  # of each tenant
GROWTH = 1.05
ROWS = """
CREATE TABLE {tenant}.flats AS
SELECT i AS id, i % 37 AS area, i % 5 AS rooms, CASE WHEN i % 37 < 18 THEN 'small' ELSE 'large' END AS kind
FROM generate_series(1, 400) i
"""
RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("random", {"n_configs": 3, "max_epochs": 2}), ("asha", {"n_configs": 4, "max_epochs": 4}),
    ("tpe", {"n_configs": 12, "max_epochs": 1}), ("pbt", {"max_epochs": 4}),
    ("race", {"n_configs": 6, "max_epochs": 3}),
)  # fmt: skip
VIEWS = ("run_status", "leaderboard", "learning_curves", "tenant_status", "policy_decisions", "health")


@dataclass(frozen=True)
class Look:
    """The service at one moment."""

    coordinator_bytes: int
    coordinator_files: int
    largest_slot_bytes: int
    slot_files: int
    n_sessions: int
    database_bytes: int


def measure(workload: Workload) -> Iterator[Row]:
    """Use a private server of its own."""
    minutes = 1.0 if workload.is_quick else float(os.environ.get("SOAK_MINUTES", MINUTES))
    with private_server() as server, psycopg.connect(server.dsn(), autocommit=True, row_factory=dict_row) as owner:
        tenants = [_tenant(owner, server, f"tenant_{k}") for k in range(N_TENANTS)]
        with running_coordinator(server):
            looks = list(_looks(owner, tenants, minutes))
        counted = owner.execute(
            "SELECT max(run_id) AS n_runs, count(*) FILTER (WHERE status = 'failed') AS n_failed FROM easeml.runs"
        ).fetchall()[0]
    setting = f"{minutes:g} minutes, {counted['n_runs']} runs"
    for name, value in {
        "memory of the coordinator": lambda look: look.coordinator_bytes,
        "open files of the coordinator": lambda look: look.coordinator_files,
        "memory of the largest slot": lambda look: look.largest_slot_bytes,
        "open files of the slots": lambda look: look.slot_files,
        "sessions of the server": lambda look: look.n_sessions,
        "size of the database": lambda look: look.database_bytes,
    }.items():
        bound = (
            None if name == "open files of the slots" else GROWTH
        )  # PostgreSQL keeps those of tables open, up to a limit
        yield _growth(name, setting, looks, value, bound)
    yield Row("runs that failed", setting, counted["n_failed"], "", at_most=0)


def _tenant(owner: Session, server: Embedded, name: str) -> Session:
    owner.execute(f"CREATE ROLE {name} LOGIN IN ROLE easeml_tenant")
    owner.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
    session = psycopg.connect(server.dsn(name), autocommit=True, row_factory=dict_row)
    session.execute(ROWS.format(tenant=name).encode())
    session.execute(
        "SELECT easeml.create_dataset('flats', %s, '{area,rooms}', 'kind', n_partitions => 2)", [f"{name}.flats"]
    )
    return session


def _looks(owner: Session, tenants: list[Session], minutes: float) -> Iterator[Look]:
    """Keep a run of each tenant open, and look at the service from time to time."""
    kinds, ends = cycle(RUNS), time.monotonic() + 60 * minutes
    next_look = time.monotonic() + 60 * minutes / LOOKS
    while time.monotonic() < ends:
        for tenant in tenants:
            _use(tenant, *next(kinds))
        if time.monotonic() >= next_look:
            next_look += 60 * minutes / LOOKS
            yield _look(owner)
        time.sleep(0.2)


def _use(tenant: Session, procedure: str, options: dict[str, Any]) -> None:
    """Start the next run once the last one has ended; predict, and read what a person would."""
    run = tenant.execute("SELECT run_id, status FROM easeml.run_status ORDER BY run_id DESC LIMIT 1").fetchone()
    if run is not None and run["status"] in ("queued", "running", "interrupted"):
        return
    if run is not None and run["status"] == "finished":
        tenant.execute("""SELECT easeml.predict('flats', '{"area": 30, "rooms": 2}')""")
    tenant.execute(
        "SELECT easeml.drop_run(run_id, force => true)"
        " FROM (SELECT run_id, status FROM easeml.run_status ORDER BY run_id DESC OFFSET %s) AS older"
        " WHERE status <> 'failed'",
        [N_KEPT_RUNS],
    )
    for view in VIEWS:
        tenant.execute(f"SELECT * FROM easeml.{view} LIMIT 20".encode()).fetchall()
    named = ", ".join(f"{name} => {value}" for name, value in options.items())
    tenant.execute(
        f"SELECT easeml.select_models('flats', '{{linear,mlp}}', procedure => '{procedure}', {named})".encode()
    )


def _look(owner: Session) -> Look:
    row = owner.execute(
        "SELECT (SELECT c.process_id FROM easeml.coordinators c ORDER BY lease_number DESC LIMIT 1) AS coordinator,"
        " ARRAY(SELECT s.backend_pid FROM easeml.slots s JOIN pg_stat_activity a ON a.pid = s.backend_pid) AS slots,"
        " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS n_sessions,"
        " pg_database_size(current_database()) AS database_bytes"
    ).fetchall()[0]
    slots = [pid for pid in row["slots"] if pid is not None]
    return Look(
        _private_bytes(row["coordinator"]), _n_files(row["coordinator"]),
        max((_private_bytes(pid) for pid in slots), default=0), sum(_n_files(pid) for pid in slots), row["n_sessions"],
        row["database_bytes"],
    )  # fmt: skip


def _private_bytes(pid: int) -> int:
    """Return the memory of a process without what it shares with others, such as the server's buffers. Pages of its
    libraries do not count: they are its own only as long as no other process has loaded them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


def _n_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _growth(name: str, setting: str, looks: list[Look], value: Callable[[Look], int], bound: float | None) -> Row:
    third = max(1, len(looks) // 3)
    before, after = (median(value(look) for look in part) for part in (looks[third : 2 * third], looks[2 * third :]))
    is_bytes = name.startswith(("memory", "size"))
    shown = f"{before / 2**20:.1f} to {after / 2**20:.1f} MB" if is_bytes else f"{before:g} to {after:g}"
    return Row(name, f"{shown}; {setting}", after / max(before, 1), "x", at_most=bound)
