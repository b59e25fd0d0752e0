"""Runs with water-filling on a real server: devices that slots share are measured, shared out, and written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

from easeml_db.cli import commands

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

DOTS = """
CREATE TABLE dots AS
SELECT i AS id, sin(i * 12.9898) AS x, cos(i * 78.233) AS y, (ARRAY['odd', 'even'])[1 + i % 2] AS kind
FROM generate_series(1, 3000) i
"""
SELECT_MODELS = """
SELECT easeml.select_models('dots', '{mlp}', procedure => 'grid', max_epochs => %s, allocation => 'water_filling',
    search_space => '{"learning_rate": [0.1, 0.01, 0.001], "batch_size": 16, "hidden_units": [[16]]}')
"""


def share_devices(database: Session) -> None:
    """Two shares of the CPU with two slots each, and a table."""
    database.execute("SELECT easeml.set_slots(2, device => 'cpu:0')")
    database.execute("SELECT easeml.add_slots(2, device => 'cpu:1')")
    database.execute(DOTS)


def create_dataset(database: Session) -> None:
    database.execute("SELECT easeml.create_dataset('dots', 'dots', '{x,y}', 'kind', n_partitions => 2)")


@pytest.fixture(scope="module")
def served(module_database: Session, another_coordinator: Callable[[], None]) -> Session:
    """Shared devices under one coordinator, whose sessions stay warm from test to test."""
    share_devices(module_database)
    another_coordinator()
    return module_database


WARM = "SELECT count(*) = 4 FROM easeml.slots WHERE start_seconds ? 'session'"  # written once its session is ready


@pytest.fixture
def shared(served: Session) -> Iterator[Session]:
    """`served`, all slots ready, with a dataset of which nothing is known yet."""
    create_dataset(served)
    served.wait_until(WARM)
    yield served
    served.execute("SELECT easeml.drop_dataset('dots', cascade => true)")


def easeml(*arguments: str) -> str:
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def finish(database: Session, run_id: int) -> None:
    database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs WHERE run_id = %s", run_id)
    events = database.rows("SELECT kind, message FROM easeml.run_events")
    assert database.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished", events
    assert set(database.values("SELECT status FROM easeml.trials WHERE run_id = %s", run_id)) == {"finished"}, events


def know(database: Session, alpha: float, c: int, d: int = 1) -> None:
    """A profile, as if it had been measured."""
    database.execute(
        "INSERT INTO easeml.device_profiles (tenant, dataset_id, architecture, device_kind, alpha, beta, c, d,"
        " eps_seconds, n_packed, n_devices, is_bounded, measurements)"
        " SELECT tenant, dataset_id, 'mlp', 'cpu', %s, 1, %s, %s, 0, 2, 8, true, '{}' FROM easeml.datasets",
        [alpha, c, d],
    )


def test_devices_are_measured_first_and_the_profile_is_kept(shared: Session) -> None:
    run_id = shared.value(SELECT_MODELS, 2)
    finish(shared, run_id)
    (profile,) = shared.rows("SELECT * FROM easeml.device_profiles")
    assert (profile["architecture"], profile["device_kind"], profile["run_id"]) == ("mlp", "cpu", run_id)
    assert profile["n_packed"] == 2
    slowdowns = profile["measurements"]["slowdowns"]
    assert slowdowns[0] == [1.0]
    assert len(slowdowns[1]) == 2 or profile["is_bounded"]
    assert 1 <= profile["alpha"] < 2
    assert profile["c"] in (1, 2)
    before = profile["measured_at"]
    finish(shared, shared.value(SELECT_MODELS, 1))
    assert shared.value("SELECT measured_at FROM easeml.device_profiles") == before


def test_three_trials_on_two_devices_survive_a_kill(shared: Session, another_coordinator: Callable[[], None]) -> None:
    database = shared
    know(database, 1.2, 2)
    run_id = database.value(SELECT_MODELS, 6)
    database.wait_until("SELECT sum(n_steps_done) >= 12 FROM easeml.trials WHERE run_id = %s", run_id)
    another_coordinator()
    finish(database, run_id)
    assert database.value("SELECT count(*) FROM easeml.training_units WHERE run_id = %s", run_id) == 3 * 6 * 2
    allocations = database.rows("SELECT * FROM easeml.trial_allocations WHERE run_id = %s ORDER BY decided_at", run_id)
    assert {each["trial_number"] for each in allocations} == {1, 2, 3}
    assert {each["reason"] for each in allocations} >= {"static"}
    assert min(each["elapsed_seconds"] for each in allocations) >= 0, "no placement precedes its run"
    database.execute("UPDATE easeml.allocations SET decided_at = decided_at - interval '1 hour'")  # another clock
    assert set(database.values("SELECT elapsed_seconds FROM easeml.trial_allocations")) == {0.0}
    first = {each["trial_number"]: each["width"] for each in allocations[:3]}
    assert sorted(first) == [1, 2, 3]
    assert set(first.values()) <= {0.5, 1.0}
    assert 0.5 in first.values()
    groups = database.rows("SELECT * FROM easeml.trial_group_status WHERE run_id = %s ORDER BY group_id", run_id)
    assert [group["label"] for group in groups] == ["mlp to epoch 6"] * 2
    assert groups[0]["makespan_seconds"] is None
    assert groups[1]["makespan_seconds"] > 0
    assert {device for each in allocations for device in each["devices"]} == {"1/cpu:0", "1/cpu:1"}
    shown = json.loads(easeml("run", "allocations", "--dsn", database.dsn, "--json"))
    assert len(shown["allocations"]) == len(allocations)
    assert "mlp to epoch 6" in easeml("run", "allocations", "--dsn", database.dsn)
    assert "mlp" in easeml("profiles", "--dsn", database.dsn)


def test_where_packing_does_not_pay_no_two_units_share_a_device(shared: Session) -> None:
    know(shared, 1.0, 1)
    run_id = shared.value(SELECT_MODELS, 2)
    finish(shared, run_id)
    overlaps = shared.value(
        "SELECT count(*) FROM easeml.training_timeline a JOIN easeml.training_timeline b USING (run_id)"
        " JOIN easeml.slots s ON s.slot_id = a.slot_id JOIN easeml.slots t ON t.slot_id = b.slot_id"
        " WHERE run_id = %s AND s.device = t.device AND a.trial_id <> b.trial_id"
        " AND a.started_at < b.finished_at AND b.started_at < a.finished_at",
        run_id,
    )
    assert overlaps == 0
    assert set(shared.values("SELECT width FROM easeml.allocations WHERE run_id = %s", run_id)) == {1.0}


def test_a_trial_alone_trains_on_both_devices(shared: Session) -> None:
    know(shared, 1.2, 2, d=2)
    run_id = shared.value(
        "SELECT easeml.select_models('dots', '{mlp}', n_configs => 1, max_epochs => 2, allocation => 'water_filling')"
    )
    finish(shared, run_id)
    assert shared.values("SELECT width FROM easeml.trial_allocations WHERE run_id = %s", run_id) == [2.0]
    devices = shared.values(
        "SELECT count(DISTINCT s.device) FROM easeml.training_units u JOIN easeml.slots s USING (slot_id)"
        " WHERE run_id = %s GROUP BY u.epoch",
        run_id,
    )
    assert devices == [2, 2]


def test_rungs_of_a_procedure_are_groups(shared: Session) -> None:
    know(shared, 1.2, 2)
    run_id = shared.value(
        "SELECT easeml.select_models('dots', '{mlp}', procedure => 'successive_halving', n_configs => 4,"
        " max_epochs => 4, allocation => 'water_filling', procedure_options => '{\"eta\": 2}')"
    )
    shared.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)
    labels = shared.values("SELECT label FROM easeml.trial_groups WHERE run_id = %s ORDER BY group_id", run_id)
    assert labels[0] == "mlp to epoch 1"
    assert set(labels) == {"mlp to epoch 1", "mlp to epoch 2", "mlp to epoch 4"}
    assert shared.value("SELECT count(*) FROM easeml.trial_groups WHERE ended_at IS NULL") == 0


def test_profiles_and_allocations_are_their_owners(database: Session) -> None:
    database.execute(DOTS)
    create_dataset(database)
    know(database, 1.2, 2)
    connect_as = database.as_role
    assert connect_as("stranger", "easeml_tenant").rows("SELECT * FROM easeml.device_profiles") == []
    assert len(connect_as("analyst", "easeml_reader").rows("SELECT c FROM easeml.device_profiles")) == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect_as("stranger", "easeml_tenant").execute("SELECT easeml.keep_allocations('{}')")
