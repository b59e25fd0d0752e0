"""Tenants as administrators make them, and the limits that hold them, however they write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

TABLE = """
CREATE TABLE {}.mine AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 120) i
"""
BY_HAND = """
{"name": "by hand", "source": "lena.mine", "inputs": ["x"], "target": "y", "n_partitions": 1,
 "validation_fraction": 0.2, "test_fraction": 0.2, "seed": 0, "placement": "shared"}
"""
CREATE = "SELECT easeml.create_dataset(%s, 'mine', '{x}', 'y', n_partitions => 2)"
SELECT = "SELECT easeml.select_models('flowers', '{linear}', n_configs => 1, max_epochs => 1000)"
ONE_TRIAL = "FROM easeml.trials WHERE run_id = coalesce(%(run)s, run_id) ORDER BY trial_id LIMIT 1"
UNIT = f"""
INSERT INTO easeml.training_units
    (trial_id, run_id, tenant, epoch, position, partition_number, slot_id, attempt, seed, lease_number,
    started_at, finished_at, training_seconds, n_rows, checkpoint_id, state_bytes, state_sha256)
SELECT trial_id, run_id, tenant, 1, 0, 0, 1, 1, 0, 1,
    now(), now() + %(seconds)s * interval '1 second', 0, 1, 0, 0, '' {ONE_TRIAL}
"""
EVALUATION = f"""
INSERT INTO easeml.evaluations
    (trial_id, run_id, tenant, epoch, split, partition_number, slot_id, attempt, lease_number,
    started_at, finished_at, statistics)
SELECT trial_id, run_id, tenant, 1, 'validation', 0, 1, 1, 1,
    now(), now() + %(seconds)s * interval '1 second', '{{}}' {ONE_TRIAL}
"""


@pytest.fixture
def anna(database: Session) -> Session:
    """An administrator."""
    return database.as_role("anna", "easeml_admin")


@pytest.fixture
def lena(database: Session) -> Iterator[Session]:
    """A role with a table of its own; not yet a tenant in a database of its own, whatever earlier tests made of it."""
    session = database.as_role("lena")
    database.execute("REVOKE easeml_tenant FROM lena")
    database.execute("CREATE SCHEMA lena AUTHORIZATION lena")
    session.execute(TABLE.format("lena"))
    return session


@pytest.fixture
def tenant(database: Session, lena: Session) -> Session:
    """lena, with a dataset; nothing trains, since there is no coordinator."""
    database.execute("SELECT easeml.create_tenant('lena')")
    lena.execute(CREATE, ["flowers"])
    return lena


def status(session: Session, tenant: str = "lena") -> dict[str, Any]:
    (row,) = session.rows("SELECT * FROM easeml.tenant_status WHERE tenant = %s", tenant)
    return row


def refused(session: Session, code: str, statement: str, *values: Any) -> str:
    """Message and hint with which a statement is refused; the tables are as they were."""
    tables = ("tenants", "tenant_usage", "runs", "trials", "datasets", "blocks", "partitions")
    before = [session.value(f"SELECT count(*) FROM easeml.{table}") for table in tables]
    with pytest.raises(psycopg.Error) as caught, session.transaction():
        session.execute(statement, values or None)  # type: ignore[arg-type]
    assert caught.value.sqlstate == code, caught.value
    assert [session.value(f"SELECT count(*) FROM easeml.{table}") for table in tables] == before
    return f"{caught.value.diag.message_primary} | {caught.value.diag.message_hint}"


def record_hours(database: Session, hours: float, run_id: int | None = None) -> None:
    """As if units of that many slot hours had been recorded, half of them training and half of them evaluations."""
    values = {"run": run_id, "seconds": hours * 1800}
    database.execute(UNIT, values)
    database.execute(EVALUATION, values)
    database.execute(
        "UPDATE easeml.trials SET slot_seconds = slot_seconds + 2 * %(seconds)s"
        f" WHERE trial_id = (SELECT trial_id {ONE_TRIAL})",
        values,
    )


# Making and changing tenants


def test_an_administrator_makes_changes_and_drops_a_tenant(database: Session, anna: Session, lena: Session) -> None:
    is_member = "SELECT pg_has_role('lena', 'easeml_tenant', 'MEMBER')"
    assert not database.value(is_member)
    anna.execute("SELECT easeml.create_tenant('lena', 2.5, now() + interval '1 day', 3, 4, 5000000, 6.5)")
    assert database.value(is_member)
    row = status(lena)
    assert 86000 < row.pop("seconds_to_deadline") <= 86400
    assert row.pop("deadline") is not None
    assert row.pop("created_at") is not None
    assert row == {
        "tenant": "lena", "weight": 2.5, "max_runs": 3, "max_slots": 4, "max_bytes": 5000000, "max_hours": 6.5,
        "n_open_runs": 0, "n_queued_runs": 0, "n_busy_slots": 0, "used_bytes": 0, "used_hours": 0.0,
        "n_waiting_arms": 0, "n_open_arms": 0, "last_served_at": None, "last_decision": None, "record_bytes": 0,
    }  # fmt: skip
    lena.execute(CREATE, ["flowers"])
    anna.execute("SELECT easeml.alter_tenant('lena', weight => 1.5, max_runs => 7, clear => '{deadline,max_slots}')")
    row = status(lena)
    assert (row["weight"], row["max_runs"], row["max_slots"], row["deadline"]) == (1.5, 7, None, None)
    assert (row["max_bytes"], row["max_hours"], row["seconds_to_deadline"]) == (5000000, 6.5, None)
    anna.execute("SELECT easeml.alter_tenant('lena', clear => '{weight,max_runs,max_bytes,max_hours}')")
    row = status(lena)
    assert [row[name] for name in ("weight", "max_runs", "max_bytes", "max_hours")] == [1.0, None, None, None]
    anna.execute("SELECT easeml.drop_tenant('lena')")
    assert not database.value(is_member)
    assert database.values("SELECT dataset_name FROM easeml.datasets WHERE tenant = 'lena'") == ["flowers"]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        lena.execute("SELECT FROM easeml.datasets")


def test_a_role_that_had_easeml_tenant_before_becomes_a_tenant_with_a_row(database: Session, lena: Session) -> None:
    database.execute("GRANT easeml_tenant TO lena")
    lena.execute(CREATE, ["flowers"])
    lena.execute(SELECT)
    row = status(lena)
    assert (row["weight"], row["max_runs"], row["created_at"], row["n_open_runs"]) == (1.0, None, None, 1)
    database.execute("SELECT easeml.create_tenant('lena', weight => 3)")
    assert status(lena)["weight"] == 3


def test_names_that_need_quotes(database: Session) -> None:
    name = 'O\'Neill "the" Tenant'
    session = database.as_role(name)
    database.execute(sql.SQL("REVOKE easeml_tenant FROM {}").format(sql.Identifier(name)))
    database.execute("SELECT easeml.create_tenant(%s, max_runs => 1)", [name])
    assert session.values("SELECT tenant FROM easeml.tenant_status") == [name]
    database.execute("SELECT easeml.alter_tenant(%s, max_runs => 2)", [name])
    database.execute("SELECT easeml.drop_tenant(%s)", [name])
    assert not database.value("SELECT pg_has_role(%s::name, 'easeml_tenant', 'MEMBER')", name)


def test_a_tenant_whose_role_is_gone_can_be_dropped(database: Session) -> None:
    database.execute("CREATE ROLE shortlived")
    database.execute("SELECT easeml.create_tenant('shortlived')")
    database.execute("DROP ROLE shortlived")
    database.execute("SELECT easeml.drop_tenant('shortlived')")
    assert database.rows("TABLE easeml.tenants") == []


def test_a_dropped_tenant_that_stays_a_member_through_a_group_is_pointed_out(database: Session, lena: Session) -> None:
    notices: list[str] = []
    database.execute("CREATE ROLE team IN ROLE easeml_tenant ROLE lena")
    database.execute("SELECT easeml.create_tenant('lena')")
    database.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    database.execute("SELECT easeml.drop_tenant('lena')")
    database.execute("DROP ROLE team")
    assert notices == ["role lena is still a member of easeml_tenant through another role"]


BAD_SETTINGS = [
    ("weight => 0", "weight: expected a positive number, got 0"),
    ("weight => -1", "weight: expected a positive number, got -1"),
    ("weight => 'NaN'", "weight: expected a positive number, got NaN"),
    ("weight => 'Infinity'", "weight: expected a positive number, got Infinity"),
    ("deadline => now() - interval '1 second'", "deadline: expected a time in the future"),
    ("deadline => 'infinity'", "deadline: expected a time in the future, got infinity"),
    ("deadline => '-infinity'", "deadline: expected a time in the future, got -infinity"),
    *[(f"{name} => {value}", f"{name}: expected a positive number, got {value}")
      for name in ("max_runs", "max_slots", "max_bytes", "max_hours") for value in (0, -3)],
    ("max_hours => 'NaN'", "max_hours: expected a positive number, got NaN"),
    ("max_hours => 'Infinity'", "max_hours: expected a positive number, got Infinity"),
]  # fmt: skip


def test_settings_that_no_tenant_can_have(database: Session, lena: Session) -> None:
    for setting, expected in BAD_SETTINGS:
        assert expected in refused(database, "ML001", f"SELECT easeml.create_tenant('lena', {setting})"), setting
    assert "got NULL" in refused(database, "ML001", "SELECT easeml.create_tenant('lena', NULL)")
    assert not database.value("SELECT pg_has_role('lena', 'easeml_tenant', 'MEMBER')")
    database.execute("SELECT easeml.create_tenant('lena', max_runs => 2)")
    before = database.rows("TABLE easeml.tenants")
    for setting, expected in BAD_SETTINGS:
        assert expected in refused(database, "ML001", f"SELECT easeml.alter_tenant('lena', {setting})"), setting
    for clear, expected in (
        ("{color}", "clear: expected names of settings, got 'color'"),
        ("{max_runs,NULL}", "clear: expected names of settings, got NULL"),
        ("{created_at}", "clear: expected names of settings, got 'created_at'"),
    ):
        said = refused(database, "ML001", "SELECT easeml.alter_tenant('lena', clear => %s)", clear)
        assert expected in said
        assert "max_runs, max_slots" in said
    said = refused(database, "ML001", "SELECT easeml.alter_tenant('lena', max_runs => 3, clear => '{max_runs}')")
    assert "set and cleared at once" in said
    assert database.rows("TABLE easeml.tenants") == before


def test_roles_that_cannot_be_tenants(database: Session, lena: Session) -> None:
    too_long = "lena" + "x" * 70
    for role, code, expected in (
        ("nobody here", "ML003", "there is no role 'nobody here'"),
        (None, "ML003", "there is no role NULL"),
        ("", "ML003", "there is no role ''"),
        (too_long, "ML003", "there is no role"),
        (database.value("SELECT current_user::text"), "ML004", "is a superuser"),
        *[(f"easeml_{group}", "ML004", "role of easeml") for group in ("admin", "coordinator", "reader", "tenant")],
        ("pg_read_all_data", "ML004", "role of easeml or PostgreSQL"),
    ):
        assert expected in refused(database, code, "SELECT easeml.create_tenant(%s)", role), role
    for function in ("alter_tenant", "drop_tenant"):
        for role in ("nobody here", None, too_long, "easeml_tenant"):
            assert "there is no tenant" in refused(database, "ML003", f"SELECT easeml.{function}(%s)", role)
        assert "create_tenant('lena')" in refused(database, "ML003", f"SELECT easeml.{function}('lena')")
    database.execute("SELECT easeml.create_tenant('lena')")
    assert "a tenant already" in refused(database, "ML004", "SELECT easeml.create_tenant('lena')")


def test_an_administrator_waits_for_no_open_transaction_of_a_tenant(database: Session, tenant: Session) -> None:
    with tenant.transaction():
        tenant.execute(SELECT)
        said = refused(database, "ML016", "SELECT easeml.alter_tenant('lena', max_runs => 1)")
    assert "a transaction that is still open" in said
    assert "pg_terminate_backend" in said
    database.execute("SELECT easeml.alter_tenant('lena', max_runs => 1)")


def test_only_administrators_decide_about_tenants(database: Session, anna: Session, tenant: Session) -> None:
    service = database.as_role("some_service", "easeml_coordinator")
    reader = database.as_role("some_reader", "easeml_reader")
    calls = ("create_tenant('some_reader')", "alter_tenant('lena', weight => 9)", "drop_tenant('lena')")
    for session in (tenant, service, reader):
        for statement in (
            *(f"SELECT easeml.{call}" for call in calls),
            "INSERT INTO easeml.tenants (tenant) VALUES ('some_reader')",
            "UPDATE easeml.tenants SET weight = 9",
            "DELETE FROM easeml.tenants",
            "INSERT INTO easeml.tenant_usage VALUES ('lena', 0)",
            "UPDATE easeml.tenant_usage SET dropped_seconds = 0",
            "DELETE FROM easeml.tenant_usage",
        ):
            _denied(session, statement)
    assert status(anna)["weight"] == 1
    # A trigger function hung on a table of one's own could be fed any row.
    tenant.execute("CREATE TABLE lena.forged (run_id bigint, tenant name)")
    _denied(tenant, "CREATE TRIGGER t BEFORE DELETE ON lena.forged FOR EACH ROW EXECUTE FUNCTION easeml.keep_hours()")


def _denied(session: Session, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(statement)  # type: ignore[arg-type]


def test_a_tenant_with_open_runs_is_not_dropped(database: Session, tenant: Session) -> None:
    run_id = tenant.value(SELECT)
    said = refused(database, "ML004", "SELECT easeml.drop_tenant('lena')")
    assert f"open runs: {run_id}" in said
    assert "easeml.cancel" in said
    tenant.execute("SELECT easeml.cancel(%s)", [run_id])
    database.execute("SELECT easeml.drop_tenant('lena')")
    assert database.values("SELECT status FROM easeml.runs") == ["cancelled"]


# Limits


def test_max_runs_counts_open_runs_at_start_and_at_resume(database: Session, tenant: Session) -> None:
    database.execute("SELECT easeml.alter_tenant('lena', max_runs => 2)")
    first, _ = tenant.value(SELECT), tenant.value(SELECT)
    said = refused(tenant, "ML015", SELECT)
    assert "max_runs: lena may have 2 open run(s) at a time, and this would make 3" in said
    assert "Wait" in said
    assert "administrator" in said
    tenant.execute("SELECT easeml.cancel(%s)", [first])
    third = tenant.value(SELECT)
    assert "max_runs" in refused(tenant, "ML015", f"SELECT easeml.resume({first})")
    assert database.value("SELECT status FROM easeml.runs WHERE run_id = %s", first) == "cancelled"
    assert status(tenant)["n_open_runs"] == status(tenant)["n_queued_runs"] == 2
    tenant.execute("SELECT easeml.cancel(%s)", [third])
    tenant.execute("SELECT easeml.resume(%s)", [first])
    assert status(tenant)["n_open_runs"] == 2


def test_no_run_starts_past_the_limits_in_the_tables(database: Session, tenant: Session) -> None:
    database.execute("SELECT easeml.alter_tenant('lena', max_runs => 1)")
    run_id = tenant.value(SELECT)
    _denied(tenant, "INSERT INTO easeml.runs (dataset_id, seed) SELECT dataset_id, 0 FROM easeml.datasets")
    tenant.execute("SELECT easeml.cancel(%s)", [run_id])
    _denied(tenant, "UPDATE easeml.runs SET status = 'queued'")
    _denied(tenant, "DELETE FROM easeml.runs")


def test_runs_of_one_tenant_are_no_others_concern(database: Session, tenant: Session) -> None:
    database.execute("SELECT easeml.alter_tenant('lena', max_runs => 1)")
    other = database.as_role("otto", "easeml_tenant")
    database.execute("CREATE SCHEMA otto AUTHORIZATION otto")
    other.execute(TABLE.format("otto"))
    other.execute(CREATE, ["flowers"])
    tenant.execute(SELECT)
    for _ in range(3):
        other.execute(SELECT)
    # Not even by the error would otto learn what lena may have.
    dataset_id = other.value("SELECT dataset_id FROM easeml.datasets")
    _denied(
        other,
        "INSERT INTO easeml.runs (tenant, dataset_id, procedure, architectures, n_configs, max_epochs, metric,"
        f" is_higher_better, seed) VALUES ('lena', {dataset_id}, 'random', '{{linear}}', 1, 1, 'accuracy', true, 0)",
    )
    assert other.values("SELECT tenant FROM easeml.tenant_status") == ["otto"]
    assert other.value("SELECT easeml.used_bytes('lena')") is None
    assert other.value("SELECT easeml.used_hours('lena')") == 0
    assert other.values("SELECT tenant::text FROM easeml.tenants") == []


def sqlstate_of_the_later(
    database: Session, first: Session, second: Session, work: Callable[[Session, str], object]
) -> str | None:
    """Let two sessions work at once, and the second wait for the first; return how the second failed."""
    codes: list[str | None] = []

    def work_second() -> None:
        try:
            with second.transaction():
                work(second, "second")
            codes.append(None)
        except psycopg.Error as error:
            codes.append(error.sqlstate)

    with first.transaction():
        work(first, "first")
        thread = threading.Thread(target=work_second)
        thread.start()
        # The second waits for the first, and does not count before it is decided.
        while not database.value(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s", second.info.backend_pid
        ):
            assert not codes
    thread.join()
    (code,) = codes
    return code


@pytest.mark.parametrize("isolation", [psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ])
def test_two_sessions_race_for_the_last_run(
    database: Session, tenant: Session, isolation: psycopg.IsolationLevel
) -> None:
    database.execute("SELECT easeml.alter_tenant('lena', max_runs => 2)")
    tenant.execute(SELECT)
    first, second = tenant.again(), tenant.again()
    second.isolation_level = isolation
    outcome = sqlstate_of_the_later(database, first, second, lambda session, _: session.execute(SELECT))
    assert outcome == ("ML015" if isolation is psycopg.IsolationLevel.READ_COMMITTED else "40001")
    assert status(tenant)["n_open_runs"] == 2


def test_an_older_snapshot_does_not_help_to_a_further_run(database: Session, tenant: Session) -> None:
    database.execute("SELECT easeml.alter_tenant('lena', max_runs => 1)")
    late = tenant.again()
    late.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    late.autocommit = False
    assert late.values("SELECT run_id FROM easeml.runs") == []
    tenant.execute(SELECT)
    with pytest.raises(psycopg.errors.SerializationFailure):
        late.execute(SELECT)
    late.rollback()
    assert status(tenant)["n_open_runs"] == 1


def test_max_bytes_refuses_data_before_anything_stays(database: Session, tenant: Session) -> None:
    used = status(tenant)["used_bytes"]
    packed, encoder = (
        database.value(f"SELECT sum({size})::int FROM easeml.{table}")
        for size, table in (("n_bytes", "partitions"), ("pg_column_size(encoder)", "datasets"))
    )
    assert used == packed + encoder > packed > 0
    database.execute("SELECT easeml.alter_tenant('lena', max_bytes => %s)", [used + 20])
    for call in ("create_dataset('second', 'mine', '{x}', 'y')", "refresh_dataset('flowers')"):
        said = refused(tenant, "ML015", f"SELECT easeml.{call}")
        assert f"max_bytes: lena may keep {used + 20} bytes" in said
        assert "easeml.drop_dataset" in said
    # Blocks are refused one by one, before they fill the disk, and not only when the dataset is done.
    begin = "SELECT easeml.request('begin_dataset', %s::jsonb)::bigint"
    block = "INSERT INTO easeml.blocks (dataset_id, split, partition_number, block_number, n_rows, inputs, targets)"
    with tenant.transaction(force_rollback=True):
        begun = tenant.value(begin, BY_HAND)
        tenant.execute(f"{block} VALUES ({begun}, 'train', 0, 0, 1, %s, '')", [b"x" * 9])  # type: ignore[arg-type]
        refused(tenant, "ML015", f"{block} VALUES ({begun}, 'train', 0, 1, 1, %s, '')", b"x" * 9)
    database.execute("SELECT easeml.alter_tenant('lena', max_bytes => %s)", [3 * used])
    tenant.execute("SELECT easeml.create_dataset('second', 'mine', '{x}', 'y', n_partitions => 2)")


PARTS = {
    "checkpoints": "INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256)"
    " SELECT trial_id, tenant, 1, 1000, repeat('0', 64) FROM easeml.trials",
    "events": "INSERT INTO easeml.events (tenant, run_id, kind, message)"
    " SELECT tenant, run_id, 'note', repeat('x', 1000) FROM easeml.runs",
    "refreshes": "INSERT INTO easeml.refreshes (tenant, dataset_name, outcome, reason)"
    " VALUES ('lena', 'flowers', 'failed', repeat('x', 1000))",
    "node_answers": "INSERT INTO easeml.node_answers (trial_id, tenant, checkpoint_id, split, partition_number,"
    " block_number, n_rows, outputs, targets) SELECT trial_id, tenant, 0, 'test', 0, 0, 1, repeat('x', 900)::bytea,"
    " repeat('x', 100)::bytea FROM easeml.trials",
    "row_copies": "INSERT INTO easeml.row_copies (dataset_id, tenant, split, partition_number, from_segment_id,"
    " to_segment_id, n_bytes, seconds) SELECT dataset_id, tenant, 'train', 0, 1, 1, 1, 0 FROM easeml.datasets",
    "datasets": "UPDATE easeml.datasets SET encoder = encoder || jsonb_build_object('more', repeat('x', 1000))",
}


def test_what_is_shown_as_kept_is_what_the_limit_counts(database: Session, tenant: Session) -> None:
    tenant.execute(SELECT)
    tenant.execute("SELECT easeml.create_task('odd', 'Input = [2] Output = [2]', 'lena')")
    tenant.execute("SELECT easeml.feed('odd', '{1,2}'::real[], '1')")
    used, kept = "SELECT easeml.used_bytes('lena')", "SELECT easeml.kept_bytes('lena')"
    before = tenant.value(used)
    assert database.value(kept) == before
    for part, statement in PARTS.items():
        database.execute(statement)
        shown = tenant.value(used)
        assert (part, database.value(kept)) == (part, shown)
        assert shown > before, part
        before = shown
    of = r"(?:FROM|JOIN) \(*easeml\.(\w+) "
    named = "SELECT DISTINCT m[1] FROM unnest(%s::text[]) d, regexp_matches(d, %s, 'g') m"
    source = "SELECT pg_get_functiondef('easeml.{}(name)'::regprocedure)"
    copied = database.value(source.format("copied_bytes"))
    shown = [database.value(source.format("used_bytes")), database.value("SELECT pg_get_viewdef('easeml.kept_sizes')")]
    counted = set(database.values(named, [database.value(source.format("kept_bytes")), copied], of))
    assert counted >= PARTS.keys() | {"tasks"}
    # Of packed rows, the partitions say what the blocks hold.
    assert counted - {"blocks"} == set(database.values(named, [*shown, copied], of)) - {"kept_sizes"}


def test_a_limit_counts_all_blocks_once_and_not_for_each_new_one(database: Session, tenant: Session) -> None:
    database.execute("SELECT easeml.alter_tenant('lena', max_bytes => 1000000)")
    begin = "SELECT easeml.request('begin_dataset', %s::jsonb)::bigint"
    block = "INSERT INTO easeml.blocks (dataset_id, split, partition_number, block_number, n_rows, inputs, targets)"
    calls = "SELECT calls FROM pg_stat_xact_user_functions WHERE schemaname = 'easeml' AND funcname = 'kept_bytes'"
    database.execute(f'GRANT SET ON PARAMETER track_functions TO "{tenant.info.user}"')
    try:
        with tenant.transaction(force_rollback=True):
            tenant.execute("SET LOCAL track_functions = 'all'")
            begun = tenant.value(begin, BY_HAND)
            for i in range(50):
                tenant.execute(f"{block} VALUES ({begun}, 'train', 0, {i}, 1, %s, '')", [b"x" * 9])
            assert tenant.value(calls) == 1
            # What a savepoint takes back does not count.
            for _ in range(3):
                with tenant.transaction(force_rollback=True):
                    tenant.execute(f"{block} VALUES ({begun}, 'train', 0, 99, 1, %s, '')", [b"x" * 900_000])
            refused(tenant, "ML015", f"{block} VALUES ({begun}, 'train', 0, 99, 1, %s, '')", b"x" * 999_999)
    finally:
        database.execute(f'REVOKE SET ON PARAMETER track_functions FROM "{tenant.info.user}"')


def test_two_sessions_that_pack_at_the_same_time_share_one_limit(database: Session, tenant: Session) -> None:
    used = status(tenant)["used_bytes"]
    database.execute("SELECT easeml.alter_tenant('lena', max_bytes => %s)", [2 * used])
    first, second = tenant.again(), tenant.again()
    outcome = sqlstate_of_the_later(database, first, second, lambda session, name: session.execute(CREATE, [name]))
    assert outcome == "ML015"
    assert status(tenant)["used_bytes"] == 2 * used


def test_max_bytes_refuses_runs_once_it_is_reached(database: Session, tenant: Session) -> None:
    run_id = tenant.value(SELECT)
    tenant.execute("SELECT easeml.cancel(%s)", [run_id])
    used = status(tenant)["used_bytes"]
    database.execute(
        "INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256) SELECT trial_id, tenant, 1, 1000,"
        " repeat('0', 64) FROM easeml.trials"
    )
    assert status(tenant)["used_bytes"] == used + 1000
    database.execute("SELECT easeml.alter_tenant('lena', max_bytes => %s)", [used + 1000])
    said = refused(tenant, "ML015", SELECT)
    assert f"may keep {used + 1000} bytes of packed data, states and records of runs, and keeps {used + 1000}" in said
    refused(tenant, "ML015", f"SELECT easeml.resume({run_id})")
    tenant.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    tenant.execute(SELECT)


def test_max_hours_refuses_new_and_resumed_runs_and_dropping_gives_nothing_back(
    database: Session, tenant: Session
) -> None:
    run_id, other_id = tenant.value(SELECT), tenant.value(SELECT)
    tenant.execute("SELECT easeml.cancel(%s)", [run_id])
    record_hours(database, 1.5, run_id)
    record_hours(database, 0.25, other_id)
    assert status(tenant)["used_hours"] == pytest.approx(1.75)
    database.execute("SELECT easeml.alter_tenant('lena', max_hours => 1.75)")
    said = refused(tenant, "ML015", SELECT)
    assert "max_hours: lena may use 1.75 slot hour(s), and has used 1.75" in said
    assert "administrator" in said
    refused(tenant, "ML015", f"SELECT easeml.resume({run_id})")
    for dropped in (run_id, other_id):
        tenant.execute("SELECT easeml.drop_run(%s, force => true)", [dropped])
        assert status(database.again(), "lena")["used_hours"] == pytest.approx(1.75)
    assert tenant.rows("SELECT * FROM easeml.tenant_usage") == [{"tenant": "lena", "dropped_seconds": 6300.0}]
    assert "max_hours" in refused(tenant, "ML015", SELECT)
    database.execute("SELECT easeml.alter_tenant('lena', max_hours => 2)")
    tenant.execute(SELECT)


def test_limits_hold_in_functions_that_run_with_the_tenants_rights(database: Session, tenant: Session) -> None:
    database.execute("SELECT easeml.alter_tenant('lena', max_runs => 1)")
    tenant.execute(SELECT)
    tenant.execute(
        "CREATE FUNCTION lena.start() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN RETURN"
        " easeml.select_models('flowers', '{linear}', n_configs => 1); END $$"
    )
    tenant.execute("GRANT USAGE ON SCHEMA lena TO PUBLIC")
    friend = database.as_role("friend")
    with pytest.raises(psycopg.Error) as caught:
        friend.execute("SELECT lena.start()")
    assert caught.value.sqlstate == "ML015"
    database.execute("REVOKE ALL ON SCHEMA lena FROM PUBLIC")


def test_what_an_administrator_resumes_counts_and_what_a_superuser_writes_does_not(
    database: Session, anna: Session, tenant: Session
) -> None:
    run_id = tenant.value(SELECT)
    tenant.execute("SELECT easeml.cancel(%s)", [run_id])
    tenant.execute(SELECT)
    anna.execute("SELECT easeml.alter_tenant('lena', max_runs => 1)")
    refused(anna, "ML015", f"SELECT easeml.resume({run_id})")
    database.execute("SELECT easeml.resume(%s)", [run_id])
    assert status(tenant)["n_open_runs"] == 2


def test_readers_see_all_tenants_and_what_they_use(database: Session, tenant: Session) -> None:
    tenant.execute(SELECT)
    reader = database.as_role("some_reader", "easeml_reader")
    assert status(reader) == {**status(tenant), "seconds_to_deadline": None}
    assert status(reader)["used_bytes"] > 0


def test_an_administrator_may_be_a_tenant_and_use_a_dataset(database: Session, anna: Session, tenant: Session) -> None:
    tenant.execute("SELECT easeml.grant_use('flowers', 'anna')")
    anna.execute("SELECT easeml.create_tenant('anna', max_runs => 1)")
    assert anna.values("SELECT max_runs FROM easeml.tenants WHERE tenant = 'anna'") == [1]
    reserved = [
        "postgres",
        "easeml_admin",
        "easeml_service",
        "easeml_owner",
        "easeml_coordinator",
        "pg_monitor",
        "helper",
    ]
    database.as_role("helper", "easeml_coordinator")
    database.execute("ALTER ROLE easeml_admin RENAME TO chiefs")
    try:
        assert database.value("SELECT easeml.is_reserved('chiefs'::regrole)")
    finally:
        database.execute("ALTER ROLE chiefs RENAME TO easeml_admin")
    for role in reserved:
        assert database.value("SELECT easeml.is_reserved(%s::text::regrole)", role), role
        with pytest.raises(psycopg.Error, match="is a role of easeml"):
            tenant.execute("SELECT easeml.grant_use('flowers', %s)", [role])
