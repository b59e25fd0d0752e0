"""Limits of a tenant, and what it packs, under transactions that overlap and statements that do two things at once."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SELECT = "SELECT easeml.select_models('work', '{linear}', n_configs => 1, max_epochs => 1)"
CREATE = "SELECT easeml.create_dataset(%s, 'mine', '{x}', 'y', n_partitions => 1)"
OPEN_RUNS = "SELECT count(*) FROM easeml.runs WHERE tenant = 'mallory' AND status IN ('queued', 'running')"


@pytest.fixture(scope="module")
def mallory(module_database: Session) -> Session:
    """A tenant with a dataset and a schema."""
    mallory = module_database.as_role("mallory", "easeml_tenant")
    module_database.execute("CREATE SCHEMA mallory AUTHORIZATION mallory")
    mallory.execute("CREATE TABLE mine AS SELECT sin(i) AS x, i % 2 = 0 AS y FROM generate_series(1, 240) i")
    mallory.execute(CREATE, ["work"])
    return mallory


@pytest.fixture
def hurried(mallory: Session) -> Session:
    """Another session of the tenant, which waits for nobody."""
    hurried = mallory.again()
    hurried.execute("SET lock_timeout = '50ms'")
    return hurried


def test_open_transactions_side_by_side_start_no_more_runs_than_the_default_allows(
    module_database: Session, mallory: Session, hurried: Session
) -> None:
    module_database.execute("SELECT easeml.set_policy('hybrid', default_max_runs => 2)")
    with mallory.transaction():
        mallory.execute(SELECT)
        mallory.execute(SELECT)
        # It has to wait for what the other decides, or it would not count these two.
        with pytest.raises(psycopg.errors.LockNotAvailable):
            hurried.execute(SELECT)
    with pytest.raises(psycopg.Error, match="max_runs: mallory may have 2 open"):
        hurried.execute(SELECT)
    assert module_database.value(OPEN_RUNS) == 2
    mallory.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")


# How much a tenant may have of what, and a row of it.
COUNTED = {
    "tasks": (1000, "(tenant, task_name, program, template, examples, place, specification)",
        "'mallory', 'n' || i, '', '', '', '', '{}'::jsonb"),
    "packings": (20, "(dataset_id, tenant, dataset_name, version, caller, shuffle, arguments, places)",
        "-i, 'mallory', 'n' || i, 1, 'mallory', 'across', '{}'::jsonb, '{}'::jsonb"),
    "node_jobs": (20, "(tenant, caller, kind, dataset_id, arguments)", "'mallory', 'mallory', 'drift', 1, '{}'::jsonb"),
    "labelling_functions": (20, "(task_id, tenant, function)",
        "(SELECT task_id FROM easeml.tasks WHERE task_name = 'labelled'), 'mallory', 'f.n' || i"),
}  # fmt: skip


def add_side_by_side(first: Session, second: Session, add: str, most: int) -> None:
    """Two rows where one may be added; the second is there before the first is counted."""
    with first.transaction():
        first.execute(add, [most, most])
        second.execute(add, [most + 1, most + 1])


@pytest.mark.parametrize("table", COUNTED)
@pytest.mark.parametrize("is_old", [False, True])
def test_open_transactions_side_by_side_add_no_more_than_a_tenant_may_have(
    module_database: Session, mallory: Session, table: str, is_old: bool
) -> None:
    """As requests add rows: in the name of easeml_owner."""
    most, columns, values = COUNTED[table]
    add = f"INSERT INTO easeml.{table} {columns} SELECT {values} FROM generate_series(%s::bigint, %s) i"
    count = f"SELECT count(*) FROM easeml.{table}"
    tasks = COUNTED["tasks"]
    if table == "labelling_functions":
        module_database.execute(
            f"INSERT INTO easeml.tasks {tasks[1]} SELECT " + tasks[2].replace("'n' || i", "'labelled'")
        )
    module_database.execute(add, [1, most - 1])
    with closing(module_database.again()) as first, closing(module_database.again()) as second:
        if is_old:
            first.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for session in (first, second):
            session.execute("SET ROLE easeml_owner; SET lock_timeout = '50ms'")
        error: type[psycopg.Error] = psycopg.errors.SerializationFailure if is_old else psycopg.Error
        with pytest.raises(error, match=None if is_old else f"{most} at most, .* would make {most + 1}"):
            add_side_by_side(first, second, add, most)
    assert module_database.value(count) == most
    module_database.execute(f"DELETE FROM easeml.{table}")
    module_database.execute("DELETE FROM easeml.tasks")


def test_who_counts_what_it_adds_keeps_no_other_tenant_waiting(module_database: Session, mallory: Session) -> None:
    _, columns, values = COUNTED["packings"]
    add = f"INSERT INTO easeml.packings {columns} SELECT {values} FROM generate_series(1, 1) i"
    with closing(module_database.again()) as first, closing(module_database.again()) as second:
        for session in (first, second):
            session.execute("SET ROLE easeml_owner; SET lock_timeout = '50ms'")
        with first.transaction(force_rollback=True):
            first.execute(add)
            first.execute("SET CONSTRAINTS ALL IMMEDIATE")
            second.execute(add.replace("mallory", "victim").replace("-i", "-2"))
            with pytest.raises(psycopg.errors.LockNotAvailable):
                second.execute(add.replace("-i", "-3").replace("'n'", "'m'"))
    module_database.execute("DELETE FROM easeml.packings")


def test_an_older_snapshot_packs_nothing_beyond_max_bytes(module_database: Session, mallory: Session) -> None:
    used = module_database.value("SELECT easeml.kept_bytes('mallory')")
    module_database.execute("SELECT easeml.create_tenant('mallory', max_bytes => %s)", [2 * used])
    with closing(mallory.again()) as late:
        late.isolation_level, late.autocommit = psycopg.IsolationLevel.REPEATABLE_READ, False
        late.execute("SELECT FROM easeml.datasets")
        mallory.execute(CREATE, ["second"])
        with pytest.raises(psycopg.errors.SerializationFailure):
            late.execute(CREATE, ["third"])
    names = "SELECT count(*) FROM easeml.datasets WHERE dataset_name = %s"
    assert [module_database.value(names, name) for name in ("second", "third")] == [1, 0]
    module_database.execute("DELETE FROM easeml.tenants WHERE tenant = 'mallory'")


def test_runs_and_trials_count_into_max_bytes_for_what_they_take(module_database: Session, mallory: Session) -> None:
    """A hundred thousand trials that were cancelled at once took 89 MB, whatever max_bytes said."""
    root, before = module_database, mallory.value("SELECT easeml.used_bytes('mallory')")
    size = (
        "SELECT sum(pg_total_relation_size(c))::bigint"
        " FROM unnest('{easeml.runs,easeml.arms,easeml.trials,easeml.events}'::regclass[]) c"
    )
    sizes = [root.value(size)]
    many = SELECT.replace("n_configs => 1", "n_configs => 2000")
    root.execute("UPDATE easeml.tenant_roles SET paced_until = NULL")
    runs = [mallory.value(many) for _ in range(2)]
    open_bytes = mallory.value("SELECT record_bytes FROM easeml.tenant_status WHERE tenant = 'mallory'")
    for run_id in runs:
        mallory.execute("SELECT easeml.cancel(%s)", [run_id])
    sizes.append(root.value(size))
    (status,) = mallory.rows("SELECT used_bytes, record_bytes FROM easeml.tenant_status WHERE tenant = 'mallory'")
    taken = sizes[1] - sizes[0]
    assert 0.5 * taken < status["used_bytes"] - before < 1.5 * taken
    assert status["record_bytes"] == pytest.approx(open_bytes, rel=0.01), "it is the same whether they are over or not"
    root.execute("SELECT easeml.create_tenant('mallory', max_bytes => %s)", [status["used_bytes"]])
    with pytest.raises(psycopg.Error, match=r"max_bytes: mallory may keep \d+ bytes .* records of runs") as refused:
        mallory.execute(SELECT)
    assert refused.value.sqlstate == "ML015"
    assert "easeml.drop_run" in (refused.value.diag.message_hint or "")
    mallory.execute("SELECT easeml.drop_run(%s)", [runs[0]])
    run_id = mallory.value(SELECT)  # dropping one makes room
    root.execute("DELETE FROM easeml.tenants WHERE tenant = 'mallory'")
    root.execute("SELECT easeml.drop_run(r, force => true) FROM unnest(%s::bigint[]) r", [[run_id, runs[1]]])


def test_encoders_and_events_count_into_max_bytes(module_database: Session, mallory: Session) -> None:
    root = module_database
    run_id = mallory.value(SELECT)
    before = root.value("SELECT easeml.kept_bytes('mallory')")
    note = "INSERT INTO easeml.events (tenant, run_id, kind, message) VALUES ('mallory', %s, 'note', repeat('x', 1000))"
    root.execute(note, [run_id])
    assert root.value("SELECT easeml.kept_bytes('mallory')") == before + 1150
    used = root.value("SELECT used_bytes FROM easeml.tenant_status WHERE tenant = 'mallory'")
    assert used == mallory.value("SELECT used_bytes FROM easeml.tenant_status") >= 1000
    # Categories of ninety-six characters are no row, and stay for as long as the dataset.
    mallory.execute(
        "CREATE TABLE wide AS SELECT md5(k::text) || md5((k + 100)::text) || md5((k + 200)::text) AS x, sin(i) AS y"
        " FROM generate_series(1, 400) i CROSS JOIN LATERAL (SELECT i % 60 AS k) c"
    )
    root.execute("SELECT easeml.create_tenant('mallory', max_bytes => %s)", [before + 1000 + 9000])
    with pytest.raises(psycopg.Error, match="max_bytes: mallory may keep"):
        mallory.execute("SELECT easeml.create_dataset('wide', 'wide', '{x}', 'y', n_partitions => 1)")
    root.execute("DELETE FROM easeml.tenants WHERE tenant = 'mallory'")
    with mallory.transaction(force_rollback=True):
        mallory.execute("SELECT easeml.create_dataset('wide', 'wide', '{x}', 'y', n_partitions => 1)")
        packed = mallory.value("SELECT n_bytes FROM easeml.dataset_info WHERE dataset_name = 'wide'")
        assert packed < 9000  # it was the encoder that was too much
    mallory.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])


BEGIN: dict[str, Any] = {
    "name": "by hand", "source": "mallory.mine", "inputs": ["x"], "target": "y", "n_partitions": 1,
    "validation_fraction": 0.2, "test_fraction": 0.2, "seed": 0, "placement": "shared",
}  # fmt: skip
FINISH: dict[str, Any] = {
    "task": "regression", "input_shape": [1], "n_outputs": 1, "block_rows": 2, "n_skipped_rows": 0,
    "packing_seconds": 0, "encoder": {}, "checksums": [0],
}  # fmt: skip
BLOCK = "INSERT INTO easeml.blocks (dataset_id, split, partition_number, block_number, n_rows, inputs, targets) "


def test_the_statement_that_finishes_a_dataset_adds_nothing_to_it_afterwards(mallory: Session) -> None:
    late = BLOCK + r"SELECT %s, 'train', 7, 0, 2, '\xff', '\x00' FROM (SELECT easeml.request('finish_dataset', %s)) f"
    with mallory.transaction(force_rollback=True):
        begun = mallory.value("SELECT easeml.request('begin_dataset', %s)::bigint", json.dumps(BEGIN))
        for split in ("train", "validation", "test"):
            mallory.execute(BLOCK + r"VALUES (%s, %s, 0, 0, 2, '\x00', '\x00')", [begun, split])
        with pytest.raises(psycopg.errors.InsufficientPrivilege), mallory.transaction():
            mallory.execute(late, [begun, json.dumps({**FINISH, "dataset_id": begun})])
        # The very arguments are right, so it was the block that was refused.
        mallory.execute("SELECT easeml.request('finish_dataset', %s)", [json.dumps({**FINISH, "dataset_id": begun})])
