"""The tables of states do not grow with the units of a run: what is pruned makes room for what comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
N_UNITS = 160
RUN = """SELECT easeml.select_models('work', '{mlp}', n_configs => 1, max_epochs => 80,
    search_space => '{"mlp": {"hidden_units": [[512, 512]]}}', seed => 1)"""
SIZE = "SELECT pg_total_relation_size('easeml.checkpoints') + pg_total_relation_size('easeml.checkpoint_chunks')"


@pytest.fixture
def swept_often(module_coordinated: Session) -> Iterator[Session]:
    """The private server's own interval of autovacuum; tests otherwise have none."""
    root = module_coordinated
    root.execute("ALTER SYSTEM RESET autovacuum_naptime")
    root.execute("SELECT pg_reload_conf()")
    yield root
    root.execute("ALTER SYSTEM SET autovacuum_naptime = '1h'")
    root.execute("SELECT pg_reload_conf()")


def test_a_long_run_takes_the_room_of_a_few_states(swept_often: Session) -> None:
    root = swept_often
    ada = root.as_role("ada", "easeml_tenant")
    root.execute("CREATE SCHEMA lab AUTHORIZATION ada")
    ada.execute("CREATE TABLE lab.work AS SELECT i % 7 AS x, i % 2 AS y FROM generate_series(1, 200) i")
    ada.execute("SELECT easeml.create_dataset('work', 'lab.work', '{x}', 'y', n_partitions => 2)")
    run_id = ada.value(RUN)
    root.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)
    assert root.value("SELECT count(*) FROM easeml.training_units WHERE run_id = %s", run_id) == N_UNITS
    state = root.value("SELECT max(n_bytes) FROM easeml.checkpoints")
    assert root.value(SIZE) < state * N_UNITS / 3
