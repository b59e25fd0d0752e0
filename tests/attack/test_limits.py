"""Limits of a tenant, and what it packs, under transactions that overlap and statements that do two things at once."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.conftest import Session

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


def test_encoders_and_events_count_into_max_bytes(module_database: Session, mallory: Session) -> None:
    root = module_database
    run_id = mallory.value(SELECT)
    before = root.value("SELECT easeml.kept_bytes('mallory')")
    note = "INSERT INTO easeml.events (tenant, run_id, kind, message) VALUES ('mallory', %s, 'note', repeat('x', 1000))"
    root.execute(note, [run_id])
    assert root.value("SELECT easeml.kept_bytes('mallory')") == before + 1000
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
