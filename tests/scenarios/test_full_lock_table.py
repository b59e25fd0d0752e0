"""A tenant trains on the server of `easeml up`, with defaults, while a role without rights and a colleague do their
worst to the lock table; the administrator sees afterwards who it was.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from easeml_db.cli import commands
from easeml_db.local.waiting import wait_for_coordinator
from tests.fixtures.servers import temporary_server
from tests.fixtures.sessions import Session

FLATS = """
CREATE TABLE anna.flats AS SELECT i AS id, (i % 37) + 0.5 AS area, i % 5 AS rooms,
    CASE WHEN i % 37 < 18 THEN 'small' ELSE 'large' END AS kind FROM generate_series(1, 600) i
"""
MANY_TABLES = (
    b"DO $$ BEGIN FOR i IN 1..100000 LOOP EXECUTE format('CREATE TEMP TABLE t%s (x integer)', i); END LOOP; END $$"
)
TAKEN = "SELECT count(*) > 20000 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.usename = 'carl'"
REFUSED = (
    "SELECT pg_advisory_lock(i) FROM generate_series(1, 1000000) i",
    "SELECT pg_try_advisory_xact_lock_shared(1, 2)",
    "CREATE TEMP TABLE t (x integer)",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, '')",
)


@pytest.fixture(scope="module")
def up() -> Iterator[Session]:
    """A server as `easeml up` leaves it."""
    with temporary_server() as server:
        server.prepare(n_slots=2)
        server.start_coordinator()
        wait_for_coordinator(server)
        with Session.open(server.dsn()) as root:
            yield root


def test_a_run_ends_well_while_others_fill_the_lock_table(up: Session) -> None:
    for tenant in ("anna", "carl"):
        up.as_role(tenant, "easeml_tenant")
        up.execute(f"CREATE SCHEMA {tenant} AUTHORIZATION {tenant}")  # type: ignore[arg-type]
    up.execute("CREATE ROLE mallory LOGIN")
    anna, carl = up.as_role("anna"), up.as_role("carl")
    anna.execute(FLATS)  # type: ignore[arg-type]
    anna.execute("SELECT easeml.create_dataset('flats', 'anna.flats', target => 'kind')")

    # Somebody whom nobody has let in does not get in; whom a tenant lets predict can do that, and take no locks.
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        up.as_role("mallory")
    anna.execute("SELECT easeml.grant_use('flats', 'mallory')")
    mallory = up.as_role("mallory")
    for statement in REFUSED:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            mallory.execute(statement)  # type: ignore[arg-type]

    run_id = anna.value("SELECT easeml.select_models('flats', max_seconds => 20)")
    anna.wait_until("SELECT count(*) > 0 FROM easeml.leaderboard WHERE test_metric IS NOT NULL")
    # A colleague may have temporary tables. Their locks stay until the end of the transaction.
    ended: list[str] = []
    worst = threading.Thread(target=_fill, args=(carl, ended))
    worst.start()
    up.wait_until(TAKEN)
    assert mallory.value("SELECT easeml.predict('anna.flats', '{\"area\": 30, \"rooms\": 2}'::jsonb)") in (
        "small", "large",
    )  # fmt: skip
    psycopg.connect(make_conninfo(up.dsn, user="anna")).close()
    worst.join()
    assert "terminating connection due to administrator command" in ended[0]

    up.wait_until("SELECT status = 'finished' FROM easeml.run_status WHERE run_id = %s", run_id)
    assert anna.value("SELECT count(*) FROM easeml.trials WHERE status = 'failed'") == 0
    assert anna.values("SELECT message FROM easeml.run_events WHERE kind = 'retry'") == []
    (holder,) = up.rows("SELECT * FROM easeml.lock_holders")
    assert (holder["role_name"], holder["n_ended"]) == ("carl", 1)
    checks = json.loads(CliRunner().invoke(commands, ["doctor", "--json", "--dsn", up.dsn]).stdout)["checks"]
    about_locks = [check["message"] for check in checks if check["check"] == "locks"]
    assert about_locks[0] == "512 for each session"
    assert "1 session(s) of role carl were ended" in about_locks[1]

    anna.execute("SELECT easeml.revoke_use('flats', 'mallory')")
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(make_conninfo(up.dsn, user="mallory"))
    mallory.close()
    up.execute("DROP ROLE mallory")


def _fill(session: Session, ended: list[str]) -> None:
    try:
        session.execute(MANY_TABLES)
    except psycopg.Error as error:
        ended.append(str(error))
