"""Seconds that others wait when a hundred tenants start a thousand runs at once, and at a restart with all open.

Units do nothing but count, so the coordinator alone is measured. Pilots are real, and the first pilot of a slot's
session imports scikit-learn. One tenant's run is under way when a hundred others start ten each, one right after
another: a single tenant cannot, since its starts are paced. Then the coordinator is killed and started again. The
benchmark looks at signs of life and units twenty times a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from comparison.measuring import Row
from coordinator_overhead import NO_OP
from psycopg.conninfo import make_conninfo
from workload import Workload, private_server

from easeml_db.local.processes import server_environment
from easeml_db.postgres.stores.lease_store import BEAT_SECONDS

LOOK_SECONDS = 0.05
N_EACH = 10  # runs of a tenant that asks for them at once; its starts are paced from the twentieth on
ROWS = "CREATE TABLE {0}.points AS SELECT i AS id, i % 7 AS x, chr(97 + i % 2) AS y FROM generate_series(1, 200) i"
DATA = "SELECT easeml.create_dataset('points', '{0}.points', '{{x}}', 'y', n_partitions => 2)"
LONG_RUN = (
    "SELECT easeml.select_models('points', '{linear}', procedure => 'random', n_configs => 4, max_epochs => 100000)"
)
BURST = """
SELECT count(easeml.select_models('points', '{linear,sgd}', procedure => 'random', n_configs => 4, max_epochs => 1000))
FROM generate_series(1, %s)
"""
STATE = """
SELECT extract(epoch FROM clock_timestamp() - c.heartbeat_at)::float8 AS heartbeat_age,
    easeml.has_live_coordinator() AS is_alive,
    (SELECT sum(s.n_units_done) FROM easeml.slots s)
        + (SELECT count(*) FROM easeml.trials t WHERE t.pilot_train_seconds IS NOT NULL) AS n_units,
    (SELECT sum(t.n_steps_done) FROM easeml.trials t WHERE t.tenant = 'steady') AS n_steady,
    (SELECT count(*) FROM easeml.priors p WHERE p.tenant LIKE 'bursting%') AS n_read
FROM easeml.coordinators c JOIN easeml.coordinator_lease l USING (lease_number)
"""


@dataclass
class Watched:
    """What a look every 50 ms saw, in seconds: the longest time without a unit of anybody, and of the tenant who was
    there before; the oldest sign of life, when all runs were read; `n_dead`: looks that saw no live coordinator."""

    gap: float = 0.0
    other_gap: float = 0.0
    heartbeat: float = 0.0
    all_read: float | None = None
    n_dead: int = 0


def measure(workload: Workload) -> Iterator[Row]:
    """Use a private server of its own."""
    n_runs = 50 if workload.is_quick else 1000
    with private_server() as server:
        yield from _measure(server.dsn(), n_runs)


def _measure(dsn: str, n_runs: int) -> Iterator[Row]:
    with psycopg.connect(dsn, autocommit=True, row_factory=psycopg.rows.dict_row) as owner:
        bursting = [f"bursting_{number}" for number in range(n_runs // N_EACH)]
        for tenant in ("steady", *bursting):
            _prepare(owner, dsn, tenant)
        for name in ("train_unit", "evaluate_unit"):
            owner.execute(NO_OP.format(name=name).encode())
        with _coordinator(dsn) as process:
            _as_tenant(dsn, "steady", LONG_RUN)
            _until(owner, lambda state: state["n_units"])
            asked = time.monotonic()
            for tenant in bursting:
                _as_tenant(dsn, tenant, BURST, [N_EACH])
            seconds = time.monotonic() - asked
            setting = f"{n_runs} runs of two arms, of {len(bursting)} tenants, asked for in {seconds:.1f} s"
            seen = _watch(owner, n_runs)
            process.send_signal(signal.SIGKILL)
            process.wait()
        yield Row("longest time without a unit", setting, seen.gap, "s", at_most=1)
        yield Row("longest time without a unit of the other tenant", setting, seen.other_gap, "s", at_most=1)
        yield Row("oldest sign of life", setting, seen.heartbeat, "s", at_most=2 * BEAT_SECONDS)
        yield Row("looks that saw no coordinator", setting, seen.n_dead, "", at_most=0)
        yield Row("all runs read", setting, seen.all_read or float("inf"), "s")
        yield Row("first unit after a restart", f"{n_runs} open runs", _restart(owner, dsn), "s", at_most=3)


def _restart(owner: psycopg.Connection[Any], dsn: str) -> float:
    """Return the seconds from the start of the process to the first unit that is recorded."""
    before = owner.execute(STATE).fetchall()[0]["n_units"]
    started = time.monotonic()
    with _coordinator(dsn, is_awaited=False):
        _until(owner, lambda state: state["n_units"] > before)
        return time.monotonic() - started


def _prepare(owner: psycopg.Connection[Any], dsn: str, tenant: str) -> None:
    owner.execute(f"CREATE ROLE {tenant} LOGIN".encode())
    owner.execute("SELECT easeml.create_tenant(%s, max_runs => 100000)", [tenant])
    owner.execute(f"CREATE SCHEMA {tenant} AUTHORIZATION {tenant}".encode())
    _as_tenant(dsn, tenant, ROWS.format(tenant))
    _as_tenant(dsn, tenant, DATA.format(tenant))


def _as_tenant(dsn: str, tenant: str, statement: str, values: list[Any] | None = None) -> None:
    with psycopg.connect(make_conninfo(dsn, user=tenant), autocommit=True) as session:
        session.execute(statement.encode(), values)


def _until(owner: psycopg.Connection[Any], is_so: Any) -> None:
    while not is_so(owner.execute(STATE).fetchall()[0]):
        time.sleep(LOOK_SECONDS)


def _watch(owner: psycopg.Connection[Any], n_runs: int) -> Watched:
    """Look until all runs are read, and five seconds more."""
    seen, began = Watched(), time.monotonic()
    last, last_at = None, began
    steady, steady_at = None, began
    while seen.all_read is None or time.monotonic() < began + seen.all_read + 5:
        (state,) = owner.execute(STATE).fetchall()
        now = time.monotonic()
        if state["n_units"] != last:
            last, last_at = state["n_units"], now
        if state["n_steady"] != steady:
            steady, steady_at = state["n_steady"], now
        seen.gap, seen.other_gap = max(seen.gap, now - last_at), max(seen.other_gap, now - steady_at)
        seen.heartbeat = max(seen.heartbeat, state["heartbeat_age"])
        seen.n_dead += not state["is_alive"]
        if seen.all_read is None and state["n_read"] >= n_runs:
            seen.all_read = now - began
        time.sleep(LOOK_SECONDS)
    return seen


@contextmanager
def _coordinator(dsn: str, *, is_awaited: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "easeml_db", "coordinator", "--dsn", make_conninfo(dsn, user="easeml_service")]
    with open(os.devnull, "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", env=server_environment())
        try:
            if is_awaited:
                with psycopg.connect(dsn, autocommit=True) as session:
                    while not session.execute("SELECT easeml.has_live_coordinator()").fetchall()[0][0]:
                        time.sleep(LOOK_SECONDS)
            yield process
        finally:
            process.kill()
            process.wait()
