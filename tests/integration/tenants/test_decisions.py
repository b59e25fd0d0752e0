"""What the coordinator writes about arms, at the level of SQL: once, under its lease, and nothing before its time."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
PREPARE = """
CREATE TABLE points AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y, 2.0 * (i % 3) + cos(i) AS z
FROM generate_series(1, 120) i;
SELECT easeml.create_dataset('labels', 'points', '{x}', 'y', n_partitions => 2);
SELECT easeml.create_dataset('numbers', 'points', '{x}', 'z', n_partitions => 2);
"""
RUN = """
SELECT easeml.select_models(%s, '{linear,mlp}', procedure => 'grid', max_epochs => 2, metric => %s,
    search_space => '{"linear": {"learning_rate": 0.1}, "mlp": {"learning_rate": 0.01, "hidden_units": [[8]]}}')
"""


@pytest.mark.parametrize(
    ("metric", "value", "r2", "quality"),
    [
        ("accuracy", 0.8, None, 0.8),
        ("macro_f1", 0.7, None, 0.7),
        ("log_loss", 0.0, None, 1.0),
        ("log_loss", 0.6931471805599453, None, 0.5),
        ("log_loss", 1e6, None, 0.0),
        ("rmse", 12.0, 0.6, 0.6),
        ("mae", 12.0, -3.0, 0.0),
        ("r2", 0.4, 0.4, 0.4),
        ("accuracy", None, None, None),
        ("rmse", 12.0, None, None),
        ("mae", 12.0, float("nan"), 0.0),
    ],
)
def test_every_metric_is_a_quality_from_0_to_1(
    module_database: Session, metric: str, value: float | None, r2: float | None, quality: float | None
) -> None:
    found = module_database.value("SELECT easeml.quality(%s, %s, %s)", metric, value, r2)
    assert found == (None if quality is None else pytest.approx(quality))


def decision(database: Session, arm_id: int, **changes: Any) -> str:
    """What the coordinator says when it opens an arm."""
    lease = database.value("SELECT lease_number FROM easeml.coordinator_lease")
    run = database.value("SELECT run_id FROM easeml.arms WHERE arm_id = %s", arm_id)
    standing = {"run_id": run, "is_candidate": True, "is_chosen": True, "best_quality": 0, "sig": None, "gap": 1.0}
    return json.dumps({
        "arm_id": arm_id, "lease_number": lease, "policy": "hybrid", "phase": "greedy", "opening_number": 1,
        "beta": 3.0, "mean": 0.5, "deviation": 0.25, "bound": 0.9, "cost": 1.0, "expected_seconds": 2.0,
        "best_quality": 0.0, "sig": None, "gap": 0.9, "score": 0.9, "pending": [], "n_runs": 1, "memory": {},
        "standings": [{**standing, "score": 0.9}], **changes,
    })  # fmt: skip


def test_an_arm_is_opened_once_and_under_the_lease_that_holds(database: Session) -> None:
    database.execute(PREPARE)
    run_id = database.value(RUN, "labels", "accuracy")
    first, second = database.values("SELECT arm_id FROM easeml.arms ORDER BY arm_id")
    opened = database.value("SELECT easeml.open_arm(%s)", decision(database, first))
    assert database.values("SELECT decision_id FROM easeml.arm_openings") == [opened]
    assert database.values("SELECT status FROM easeml.arm_beliefs ORDER BY arm_id") == ["open", "waiting"]
    with pytest.raises(psycopg.Error, match=f"arm {first} was opened meanwhile") as again:
        database.execute("SELECT easeml.open_arm(%s)", [decision(database, first)])
    assert again.value.sqlstate == "ML006"
    stale = decision(database, second, lease_number=-1)
    with pytest.raises(psycopg.Error, match="lease -1 is over") as refused:
        database.execute("SELECT easeml.open_arm(%s)", [stale])
    assert refused.value.sqlstate == "ML006"
    database.execute("SELECT easeml.cancel(%s)", [run_id])
    with pytest.raises(psycopg.Error, match="its run is over") as over:
        database.execute("SELECT easeml.open_arm(%s)", [decision(database, second)])
    assert over.value.sqlstate == "ML003"
    assert database.value("SELECT count(*) FROM easeml.arm_openings") == 1
    assert database.values("SELECT status FROM easeml.arm_beliefs ORDER BY arm_id") == ["stopped", "never opened"]


def test_an_arm_is_not_closed_while_a_trial_of_it_is_left(database: Session) -> None:
    database.execute(PREPARE)
    database.value(RUN, "labels", "accuracy")
    arm_id = database.value("SELECT min(arm_id) FROM easeml.arms")
    database.execute("SELECT easeml.open_arm(%s)", [decision(database, arm_id)])
    close = "SELECT easeml.close_arm(%s, (SELECT lease_number FROM easeml.coordinator_lease))"
    database.execute(close, [arm_id])
    assert database.values("SELECT closing FROM easeml.arms WHERE arm_id = %s", arm_id) == [None]
    database.execute("UPDATE easeml.trials SET status = 'stopped' WHERE arm_id = %s", [arm_id])
    database.execute(close, [arm_id])
    (closed,) = database.rows("SELECT quality, cost_seconds FROM easeml.arms WHERE arm_id = %s", arm_id)
    assert closed == {"quality": 0.0, "cost_seconds": 0.0}  # nothing was measured


def test_of_a_best_trial_whose_search_ends_within_an_epoch_on_nodes_one_state_is_left(database: Session) -> None:
    database.execute(PREPARE)
    run_id = database.value(RUN.replace("max_epochs => 2", "max_epochs => 3"), "labels", "accuracy")
    best, other = database.values("SELECT trial_id FROM easeml.trials WHERE run_id = %s ORDER BY trial_number", run_id)
    database.execute(
        "INSERT INTO easeml.checkpoints (trial_id, tenant, epoch, n_bytes, sha256, is_elsewhere)"
        " SELECT trial_id, tenant, epoch, 10, repeat('0', 64), epoch = 3"
        " FROM easeml.trials, generate_series(1, 3) epoch"
    )
    # The first epoch was the best, the second ended, and the third has begun on a node.
    state = "(SELECT checkpoint_id FROM easeml.checkpoints WHERE trial_id = t.trial_id AND epoch = %s)"
    database.execute(
        "UPDATE easeml.trials t SET status = 'running', best_epoch = 1, best_metric_value = 1.0 / trial_number,"
        f" checkpoint_id = {state % 3}, best_checkpoint_id = {state % 1}, n_steps_done = 9"
    )
    lease = database.value("SELECT lease_number FROM easeml.coordinator_lease")
    assert database.value("SELECT easeml.begin_ending(%s, %s)", run_id, lease)
    left = "SELECT epoch FROM easeml.checkpoints WHERE trial_id = %s ORDER BY epoch"
    assert database.values(left, best) == [1]
    assert database.values(left, other) == [1, 2, 3]
    assert database.value(f"SELECT checkpoint_id = {state % 1} FROM easeml.trials t WHERE trial_id = %s", best)


@pytest.fixture(scope="module")
def served(module_coordinated: Session) -> Session:
    """A database with two datasets and a coordinator."""
    module_coordinated.execute(PREPARE)
    return module_coordinated


def test_arms_of_runs_that_predict_numbers_have_a_quality(served: Session) -> None:
    run_id = served.value(RUN, "numbers", "rmse")
    served.wait_until("SELECT status = 'finished' FROM easeml.run_status WHERE run_id = %s", run_id)
    rows = served.rows(
        "SELECT b.quality, (SELECT greatest(0, r2) FROM easeml.learning_curves c JOIN easeml.trials t USING (trial_id)"
        " WHERE t.arm_id = b.arm_id ORDER BY c.rmse LIMIT 1) AS r2 FROM easeml.arm_beliefs b WHERE run_id = %s",
        run_id,
    )
    assert len(rows) == 2
    assert all(row["quality"] == pytest.approx(row["r2"]) for row in rows)
    regret = served.rows(
        "SELECT best_quality, n_closed, n_open, n_waiting FROM easeml.run_regret WHERE run_id = %s", run_id
    )
    assert regret == [{"best_quality": max(row["quality"] for row in rows), "n_closed": 2, "n_open": 0, "n_waiting": 0}]


# What a tenant can do with rows of its own


SLOW = """
SELECT easeml.select_models('labels', '{linear,mlp}', procedure => 'grid', max_epochs => %s,
    search_space => '{"linear": {"learning_rate": 0.1}, "mlp": {"learning_rate": 0.01, "hidden_units": [[8]]}}')
"""


def tenant(database: Session, role: str) -> Session:
    """A tenant with a dataset."""
    session = database.as_role(role, "easeml_tenant")
    database.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    database.execute(f"GRANT SELECT ON points TO {role}")
    session.execute("SELECT easeml.create_dataset('labels', 'points', '{x}', 'y', n_partitions => 2)")
    return session


def test_an_arm_that_is_added_to_an_open_run_is_not_served_and_harms_nobody(served: Session) -> None:
    olga = tenant(served, "olga")
    run_id = olga.value(SLOW, 60)
    served.wait_until("SELECT count(*) > 0 FROM easeml.arm_openings WHERE run_id = %s", run_id)
    served.execute("INSERT INTO easeml.arms (run_id, tenant, architecture) VALUES (%s, 'olga', 'lenet')", [run_id])
    olga.execute("SELECT pg_notify('easeml_runs', %s)", [str(run_id)])
    served.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)
    assert served.value("SELECT easeml.has_live_coordinator()")
    states = served.rows("SELECT architecture, status FROM easeml.arm_beliefs WHERE run_id = %s", run_id)
    assert {row["architecture"]: row["status"] for row in states}["lenet"] == "never opened"


def test_a_tenant_that_holds_the_rows_of_its_run_stops_nobody_else(served: Session) -> None:
    quinn, pete = tenant(served, "quinn"), tenant(served, "pete")
    held = quinn.value(SLOW, 400)
    served.wait_until("SELECT count(*) > 0 FROM easeml.arm_openings WHERE run_id = %s", held)
    with quinn.transaction():
        quinn.execute("SELECT easeml.drop_run(%s, force => true)", [held])
        run_id = pete.value(SLOW, 2)
        started = time.monotonic()
        while time.monotonic() < started + 12:  # longer than a sign of life may be away
            assert served.value("SELECT easeml.has_live_coordinator()")
            time.sleep(0.2)
    served.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)
    assert served.value("SELECT easeml.has_live_coordinator()")


def test_what_a_policy_remembers_is_not_for_tenants(module_database: Session) -> None:
    nosy = module_database.as_role("nosy", "easeml_tenant", "easeml_reader")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        nosy.execute("SELECT memory FROM easeml.policy_memory")
