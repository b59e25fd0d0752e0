"""Milliseconds of views and commands on the catalogue of a year.

It has 200 tenants, 20,000 runs, 310,000 trials and 3.4 million units and evaluations, inserted by statements over whole
tables. An administrator, a reader and a tenant send each query; the row has the slowest of the three. *Page* is
what a person asks for every day: a run, a page of twenty, an own status. *Whole* is a run of 10,000 trials, or a sum
over all tenants. The last rows show the time that easeml prune takes,
and what is left of a run whose old rows were removed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import psycopg
from comparison.measuring import Row
from psycopg.conninfo import make_conninfo
from stored_rows.catalogue_rows import FULL, QUICK, Size, fill
from workload import Workload, private_server

from easeml_db.postgres.queries import queries

PAGE_MS, WHOLE_MS, PRUNE_SECONDS = 50.0, 500.0, 10.0
ROLES = {"boss": "easeml_admin", "reader": "easeml_reader", "tenant_1": "easeml_tenant"}
PRUNED = (
    "training_units", "evaluations", "arm_opening_candidates", "arm_openings", "allocations", "trial_groups", "events",
    "posteriors", "priors",
)  # fmt: skip
AGES = "SELECT count(*), count(*) FILTER (WHERE finished_at < now() - interval '30 days') FROM easeml.runs"
BYTES = (
    "SELECT sum(pg_total_relation_size(c.oid))::float8 FROM pg_class c"
    " WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r'"
)
# {run}: a run of the tenant that asks; {large}: the largest run, which only readers and administrators see.
PAGES = {
    "runs, the newest 20": "SELECT * FROM easeml.run_status ORDER BY run_id DESC LIMIT 20",
    "the newest run": "{newest_run}",
    "a run": "SELECT * FROM easeml.run_status WHERE run_id = {run}",
    "leaderboard of a run": "SELECT * FROM easeml.leaderboard WHERE run_id = {run} ORDER BY rank",
    "learning curves of a run": "SELECT * FROM easeml.learning_curves WHERE run_id = {run}",
    "metrics of a run": "SELECT * FROM easeml.trial_metrics WHERE run_id = {run}",
    "timeline of a run": "SELECT * FROM easeml.training_timeline WHERE run_id = {run} ORDER BY started_at",
    "timeline, the first 20": "SELECT * FROM easeml.training_timeline ORDER BY started_at LIMIT 20",
    "timeline, the last 20": "SELECT * FROM easeml.training_timeline ORDER BY started_at DESC LIMIT 20",
    "events of a run": "SELECT * FROM easeml.run_events WHERE run_id = {run} ORDER BY event_id",
    "events, the last 20": "SELECT * FROM easeml.run_events ORDER BY event_id DESC LIMIT 20",
    "traffic of a run": "SELECT * FROM easeml.run_traffic WHERE run_id = {run}",
    "arms of a run": "SELECT * FROM easeml.arm_beliefs WHERE run_id = {run}",
    "regret of a run": "SELECT * FROM easeml.run_regret WHERE run_id = {run}",
    "regret of the open runs": "SELECT * FROM easeml.run_regret WHERE status IN ('queued', 'running')",
    "decisions about a run": "SELECT * FROM easeml.policy_decisions WHERE run_id = {run}",
    "decisions, the last 20": "SELECT * FROM easeml.policy_decisions ORDER BY decision_id DESC LIMIT 20",
    "allocations of a run": "SELECT * FROM easeml.trial_allocations WHERE run_id = {run}",
    "trial groups of a run": "SELECT * FROM easeml.trial_group_status WHERE run_id = {run}",
    "own status": "SELECT * FROM easeml.tenant_status WHERE tenant = 'tenant_1'",
    "datasets": "SELECT * FROM easeml.dataset_info",
    "partitions of a dataset": "SELECT * FROM easeml.partition_status WHERE dataset_id = 1",
    "what answers for a dataset": "SELECT * FROM easeml.serving WHERE tenant = 'tenant_1'",
    "what answered for a dataset": (
        "SELECT * FROM easeml.serving_history WHERE tenant = 'tenant_1' ORDER BY serving_id DESC LIMIT 20"
    ),
    "slots": "SELECT * FROM easeml.slot_status",
    "segments": "SELECT * FROM easeml.segment_status",
    "coordinators": "SELECT * FROM easeml.coordinator_status",
    "answering now": "SELECT * FROM easeml.answering WHERE tenant = 'tenant_1'",
    "health": "SELECT * FROM easeml.health",
    "what is kept for how long": "SELECT * FROM easeml.retention",
    "what trains again": "SELECT * FROM easeml.refresh_status",
    "what came of it": "SELECT * FROM easeml.refresh_history ORDER BY refresh_id DESC LIMIT 20",
    "tasks": "SELECT * FROM easeml.task_status",
    "summary of a run": "SELECT * FROM easeml.run_summary({run})",
}
WHOLE = {
    "progress of a run of 10,000 trials": "SELECT * FROM easeml.run_status WHERE run_id = {large}",
    "what easeml.wait asks for it": "SELECT n_units_done, n_units FROM easeml.run_status WHERE run_id = {large}",
    "its leaderboard": "SELECT * FROM easeml.leaderboard WHERE run_id = {large} ORDER BY rank",
    "its learning curves": "SELECT * FROM easeml.learning_curves WHERE run_id = {large}",
    "its timeline": "SELECT * FROM easeml.training_timeline WHERE run_id = {large} ORDER BY started_at",
    "its traffic": "SELECT * FROM easeml.run_traffic WHERE run_id = {large}",
    "its summary": "SELECT * FROM easeml.run_summary({large})",
    "status of all tenants": "SELECT * FROM easeml.tenant_status",
    "what answers for all datasets": "SELECT * FROM easeml.serving",
}


def measure(workload: Workload) -> Iterator[Row]:
    """Fill a private server of its own, and time every query there."""
    size = QUICK if workload.is_quick else FULL
    with private_server() as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            prepare(connection, size)
        yield from timings(server.dsn(), size)
        yield from pruning(server.dsn())


def prepare(connection: psycopg.Connection, size: Size) -> None:
    """Make the roles that ask, and the rows."""
    for role, group in ROLES.items():
        connection.execute(f"CREATE ROLE {role} LOGIN IN ROLE {group}")
    fill(connection, size)
    connection.execute("VACUUM ANALYZE")


def timings(dsn: str, size: Size) -> Iterator[Row]:
    """Time every query as each role that may ask it."""
    newest = queries("command_line")["newest_run"]
    with psycopg.connect(dsn) as connection:
        owned = "SELECT max(run_id) FROM easeml.runs WHERE tenant = 'tenant_1' AND status = 'finished'"
        (run,) = connection.execute(owned).fetchone() or (0,)
    names = {"run": run, "large": size.n_runs // 2 - 1, "newest_run": newest}
    for kind, bound, asked in (("page", PAGE_MS, PAGES), ("whole", WHOLE_MS, WHOLE)):
        for name, query in asked.items():
            roles = [role for role in ROLES if _may_ask(role, query)]
            taken = {role: _milliseconds(dsn, role, query.format(**names)) for role in roles}
            slowest = max(taken, key=lambda role: taken[role])
            yield Row(name, f"{kind}, {ROLES[slowest].removeprefix('easeml_')}", taken[slowest], "ms", at_most=bound)


def _may_ask(role: str, query: str) -> bool:
    """Say whether a query is for this role: the largest run is another tenant's, and readers call no such function."""
    return not (role == "tenant_1" and "{large}" in query) and not (role == "reader" and "run_summary" in query)


def _milliseconds(dsn: str, role: str, query: str) -> float:
    """Return the median over three calls in one session; a first call has warmed it up. All rows are received as text:
    what a client makes of them is its own."""
    found = []
    with psycopg.connect(make_conninfo(dsn, user=role), autocommit=True) as connection:
        for _ in range(4):
            started = time.perf_counter()
            answer = connection.pgconn.exec_(re.sub(r"^--.*$", "", query, flags=re.MULTILINE).encode())
            found.append(1000 * (time.perf_counter() - started))
            if answer.status != psycopg.pq.ExecStatus.TUPLES_OK:
                raise RuntimeError(answer.error_message.decode())
    return median(found[1:])


def pruning(dsn: str) -> Iterator[Row]:
    """Time easeml prune as an administrator: the dry run with all kinds, then the removal of what leaves by default."""
    with psycopg.connect(make_conninfo(dsn, user="boss"), autocommit=True) as boss:
        boss.execute("SELECT easeml.set_retention(what, '30 days') FROM easeml.retention")
        counted = _pruned(boss, is_dry=True)
        setting = f"all kinds, {counted.n_rows:,} rows, {counted.n_batches} batches"
        yield Row("dry run of easeml prune", setting, counted.seconds, "s", at_most=PRUNE_SECONDS)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute("DELETE FROM easeml.retention_settings")
        n_runs, n_old = owner.execute(AGES).fetchall()[0]
        young = owner.execute(BYTES).fetchall()[0][0] / n_runs
        removed = _pruned(owner, is_dry=False)
        setting = f"by default, {removed.n_rows:,} rows, {removed.n_batches} batches"
        yield Row("easeml prune", setting, removed.seconds, "s")
        yield Row("its longest transaction", setting, 1000 * removed.longest_seconds, "ms", at_most=WHOLE_MS)
        for table in PRUNED:
            owner.execute(f"VACUUM FULL easeml.{table}".encode())
        old = (owner.execute(BYTES).fetchall()[0][0] - (n_runs - n_old) * young) / n_old
    yield Row("bytes of a run in its first month", f"{n_runs:,} runs", young, "bytes")
    yield Row("what is left of them", f"{n_old:,} runs older than 30 days", old / young, "x", at_most=0.5)


@dataclass(frozen=True)
class Pruned:
    """What a whole call of easeml prune came to."""

    n_rows: int
    n_batches: int
    seconds: float
    longest_seconds: float


def _pruned(session: psycopg.Connection, *, is_dry: bool) -> Pruned:
    n_rows, taken = 0, []
    for (what,) in session.execute("SELECT what FROM easeml.retention WHERE keep IS NOT NULL").fetchall():
        last: int | None = 0
        while last is not None:
            started = time.perf_counter()
            batch = session.execute("SELECT n_rows, last FROM easeml.prune_batch(%s, %s, %s)", [what, last, is_dry])
            n, last = batch.fetchall()[0]
            taken.append(time.perf_counter() - started)
            n_rows += n
    return Pruned(n_rows, len(taken), sum(taken), max(taken))
