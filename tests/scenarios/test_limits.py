"""A tenant at all its limits, told with defaults, and a tenant beside it who does not notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from easeml_db.local.server import Embedded
from tests.fixtures.sessions import PATIENCE_SECONDS, Session

N_ROWS, N_CLASSES = 40_000, 10_000
SMALL = "CREATE TABLE rows AS SELECT sin(i) AS x, i % 2 = 0 AS y FROM generate_series(1, 4000) i"
WIDE = f"CREATE TABLE wide AS SELECT sin(i) AS x, 'class ' || i % {N_CLASSES} AS y FROM generate_series(1, {N_ROWS}) i"
ENDLESS = "SELECT easeml.select_models('work', '{linear}', n_configs => 1, max_epochs => 1000000)"
STEPS = "SELECT coalesce(sum(n_steps_done), 0) FROM easeml.trials WHERE run_id = %s"
AT_WORK = """
SELECT s.backend_pid FROM easeml.slots s JOIN easeml.trials t USING (trial_id)
WHERE t.run_id = %s AND s.unit_started_at IS NOT NULL AND s.backend_pid IN (SELECT pid FROM pg_stat_activity)
"""


def prepared(server: Embedded) -> None:
    """Two slots of two gigabytes, and two tenants of the same rank, of whom one has a limit."""
    server.prepare(n_slots=2)
    with closing(Session.open(server.dsn())) as root:
        root.execute("ALTER SYSTEM RESET synchronous_commit")  # as users have it: what was asked for outlives a crash
        root.execute("SELECT pg_reload_conf()")
        root.execute("UPDATE easeml.slots SET memory_limit_bytes = 2000000000")
        for name in ("mallory", "victim"):
            tenant = root.as_role(name, "easeml_tenant")
            root.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
            tenant.execute(SMALL)
            tenant.execute("SELECT easeml.create_dataset('work', 'rows', '{x}', 'y', n_partitions => 2)")


def goes_on(session: Session, run_id: int) -> None:
    """Wait until the run has done further steps."""
    session.wait_until("SELECT sum(n_steps_done) > %s FROM easeml.trials WHERE run_id = %s",
                       session.value(STEPS, run_id), run_id)  # fmt: skip


def refuse_what_no_slot_holds(mallory: Session) -> None:
    """Boosting on that many classes would write through a failed allocation."""
    mallory.execute(WIDE)
    mallory.execute("SELECT easeml.create_dataset('wide', 'wide', '{x}', 'y')")
    notices: list[str] = []
    mallory.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    with mallory.transaction(force_rollback=True):
        mallory.execute("SELECT easeml.select_models('wide')")
    assert any("lightgbm with num_leaves 31" in said and "2.0 GB at most" in said for said in notices), notices
    with pytest.raises(psycopg.Error, match=r"lightgbm .* takes at least \d+\.\d GB, and a slot may take 2.0 GB at"):
        mallory.execute("SELECT easeml.select_models('wide', '{lightgbm}')")
    mallory.execute("SELECT easeml.drop_dataset('wide')")


def refusal_of(session: Session, statement: str) -> psycopg.Error | None:
    try:
        session.execute(statement)  # type: ignore[arg-type]
    except psycopg.Error as error:
        return error
    return None


def fill_up(root: Session, mallory: Session) -> None:
    """Trials count although they were cancelled, and dropping them makes room."""
    root.execute("SELECT easeml.create_tenant('mallory', max_bytes => %s)",
                 [mallory.value("SELECT easeml.used_bytes('mallory')") + 1_500_000])  # fmt: skip
    many = "SELECT easeml.select_models('work', '{linear}', n_configs => 1500, max_epochs => 1)"
    started = 0
    while (error := refusal_of(mallory, many)) is None:
        mallory.execute("SELECT easeml.cancel(run_id) FROM easeml.runs WHERE is_open")
        started += 1
    assert started < 5
    assert "max_bytes: mallory may keep" in str(error)
    assert "easeml.drop_run" in (error.diag.message_hint or "")
    status = "SELECT used_bytes, max_bytes, record_bytes FROM easeml.tenant_status WHERE tenant = 'mallory'"
    (shown,) = mallory.rows(status)
    assert shown["used_bytes"] >= shown["max_bytes"]
    assert shown["record_bytes"] > 1_000_000
    mallory.execute("SELECT easeml.drop_run(run_id) FROM easeml.runs")


def crash_once(server: Embedded, mallory: Session) -> str:
    """A unit of mallory's run ends its server process as LightGBM did; return why its trial failed."""
    run_id = mallory.value("SELECT easeml.select_models('work', '{mlp}', n_configs => 3, max_epochs => 1000)")
    killed, deadline = set[int](), time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with suppress(psycopg.OperationalError, ProcessLookupError), closing(Session.open(server.dsn())) as root:
            statuses = root.values("SELECT status FROM easeml.trials WHERE run_id = %s", run_id)
            if set(statuses) == {"failed"}:
                assert len(killed) == 1, "the same call restarted the server again"
                return str(root.value("SELECT failure_reason FROM easeml.trials WHERE run_id = %s LIMIT 1", run_id))
            for pid in root.values(AT_WORK, run_id):
                if pid not in killed:
                    os.kill(pid, signal.SIGSEGV)
                    killed.add(pid)
                    time.sleep(1.0)  # the others of that moment end with the server
                    break
        time.sleep(0.05)
    pytest.fail("its trials never failed")


def test_a_tenant_at_its_limits_is_told_so_and_the_other_does_not_notice(
    own_server: Embedded, coordinator: Callable[..., AbstractContextManager[Any]]
) -> None:
    prepared(own_server)
    with closing(Session.open(own_server.dsn())) as root, coordinator(root):
        mallory, victim = root.as_role("mallory"), root.as_role("victim")
        run_id = victim.value(ENDLESS)
        goes_on(victim, run_id)
        refuse_what_no_slot_holds(mallory)
        goes_on(victim, run_id)
        fill_up(root, mallory)
        goes_on(victim, run_id)
        assert "the server restarted while this unit ran" in crash_once(own_server, mallory)
        with closing(Session.open(make_conninfo(own_server.dsn(), user="victim"))) as again:
            goes_on(again, run_id)
            assert again.value("SELECT count(*) FROM easeml.trials WHERE status = 'failed'") == 0
