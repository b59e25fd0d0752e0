"""What is known of how long trials take is read once for a trial, and not once for each of its units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

UNITS = """
INSERT INTO easeml.training_units (trial_id, run_id, tenant, epoch, position, partition_number, slot_id, attempt, seed,
    lease_number, started_at, finished_at, training_seconds, n_rows, checkpoint_id, state_bytes, state_sha256)
SELECT trial_id, run_id, t.tenant, 100 + i, 0, 0, 1, 1, 0, 1, r.started_at + i * interval '10 ms',
    r.started_at + (i + 0.6) * interval '10 ms', 0, 1, 0, 0, ''
FROM easeml.trials t JOIN easeml.runs r USING (run_id), generate_series(%s::int, %s) i
"""
KNOWN = "SELECT easeml.known_times(d, 'random') -> 'turn_seconds' FROM easeml.datasets d"
# As the planner does it where it expects a few units of many trials.
NESTED = """
SELECT set_config('enable_' || name, 'off', true)
FROM unnest('{hashjoin,mergejoin,seqscan,bitmapscan}'::text[]) name
"""
FETCHED = """
SELECT sum(pg_stat_get_xact_tuples_fetched(indexrelid)) FROM pg_index WHERE indrelid = 'easeml.trials'::regclass
"""


@pytest.fixture
def trained(database: Session) -> Session:
    """A run of one trial that began a minute ago; no coordinator is there."""
    database.execute("CREATE TABLE points AS SELECT sin(i) AS a, sin(i) > 0.3 AS y FROM generate_series(1, 300) i")
    database.execute("SELECT easeml.create_dataset('points', 'points', '{a}', 'y', n_partitions => 2)")
    database.execute("SELECT easeml.select_models('points', '{mlp}', n_configs => 1, max_epochs => 5000)")
    database.execute("UPDATE easeml.runs SET status = 'running', started_at = now() - interval '1 minute'")
    database.execute("UPDATE easeml.trials SET status = 'running', n_steps_done = 1")
    return database


def test_more_units_of_a_trial_are_no_more_looks_at_its_row(trained: Session) -> None:
    def n_looks() -> int:
        with trained.transaction():
            trained.execute(NESTED)
            before = trained.value(FETCHED)
            assert trained.value(KNOWN)["mlp"] == pytest.approx(0.004)
            return int(trained.value(FETCHED) - before)

    trained.execute(UNITS, [1, 20])
    few = n_looks()
    assert few > 0
    trained.execute(UNITS, [21, 400])
    assert n_looks() == few
