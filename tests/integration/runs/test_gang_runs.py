"""Runs whose trials gangs train, under a coordinator: on all slots, each unit once, whatever happens to a rank."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

from easeml_loaders import bundled_source, load_table

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_PARTITIONS = 4

PARALLEL = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => 3, seed => 5,
    allocation => 'data_parallel',
    search_space => '{"hidden_units": [[256, 256]], "learning_rate": [0.01, 0.003], "batch_size": [32]}')
"""
NORMALISED = """
SELECT easeml.select_models('digits', '{resnet18}', procedure => 'grid', max_epochs => 1, seed => 5,
    allocation => 'data_parallel',
    search_space => '{"width": [0.1], "learning_rate": [0.01, 0.003], "batch_size": [64]}')
"""
GANGS = """
SELECT trial_id, epoch, started_at, array_agg(slot_id ORDER BY slot_id) AS slots,
    array_agg(position ORDER BY position) AS positions
FROM easeml.training_units WHERE n_slots = 2 GROUP BY trial_id, epoch, started_at
"""


READY = "SELECT count(*) = 2 FROM easeml.slots WHERE start_seconds ? 'session'"  # written once the session is ready


@pytest.fixture(scope="module")
def digits(module_coordinated: Session) -> Session:
    """A database with a dataset and a coordinator, each of whose two slots has trained a network before."""
    load_table(module_coordinated.dsn, bundled_source("digits"), "digits")
    module_coordinated.execute(
        "SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label', n_partitions => %s)", [N_PARTITIONS]
    )
    module_coordinated.wait_until(READY)
    module_coordinated.execute("SELECT easeml.select_models('digits', '{mlp}', n_configs => 4, max_epochs => 2)")
    module_coordinated.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    module_coordinated.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")
    return module_coordinated


@pytest.fixture
def database(digits: Session, swept: Session) -> Session:
    """`digits`, with two slots that are ready and the only run that a test asks for: one slot is no gang."""
    swept.wait_until(READY)
    return swept


def wait_for_end(database: Session) -> None:
    database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs")
    assert database.value("SELECT status FROM easeml.runs") == "finished", database.rows("TABLE easeml.events")


def check_recorded_once(database: Session, n_epochs: int) -> None:
    """Every unit is there once, though the tables would hold a second one back anyway."""
    n_trials = database.value("SELECT count(*) FROM easeml.trials WHERE status = 'finished'")
    assert n_trials == 2
    assert database.value("SELECT count(*) FROM easeml.training_units") == n_trials * n_epochs * N_PARTITIONS
    assert database.value("SELECT count(*) FROM easeml.evaluations") == n_trials * (n_epochs + 1) * N_PARTITIONS
    assert database.value("SELECT count(*) FROM easeml.epoch_metrics") == n_trials * (n_epochs + 1)


def slot_numbers(database: Session) -> list[int]:
    return database.values("SELECT slot_id FROM easeml.slots WHERE status = 'active' ORDER BY slot_id")


def test_a_data_parallel_run_trains_one_trial_after_another_on_all_slots(database: Session) -> None:
    database.execute(PARALLEL)
    wait_for_end(database)
    check_recorded_once(database, 3)
    gangs = database.rows(GANGS)
    assert [gang["slots"] for gang in gangs] == [slot_numbers(database)] * len(gangs)
    assert {tuple(gang["positions"]) for gang in gangs} <= {(0, 1), (1, 2), (2, 3)}
    assert sum(len(gang["slots"]) for gang in gangs) >= 3 * N_PARTITIONS  # while one slot is busy, the other goes alone
    first, second = database.rows(
        "SELECT min(started_at) AS start, max(finished_at) AS stop"
        " FROM easeml.training_timeline GROUP BY trial_id ORDER BY 1"
    )
    assert first["stop"] <= second["start"]
    assert min(database.values("SELECT test_metric FROM easeml.leaderboard")) > 0.8
    database.assert_slot_time_is_counted(database.value("SELECT run_id FROM easeml.runs"))


def test_ranks_train_a_network_that_normalises_batches(database: Session) -> None:
    database.execute(NORMALISED)
    wait_for_end(database)
    check_recorded_once(database, 1)
    assert database.rows(GANGS)


LONG_UNITS = PARALLEL.replace("max_epochs => 3", "max_epochs => 1").replace("[32]", "[2]")
N_RETRIES = "SELECT count(*) FROM easeml.run_events WHERE kind = 'retry'"


def disturb(database: Session, slot_id: int, action: str) -> None:
    """Disturb a slot until a gang is tried again: the first attempt may find it between two gangs."""
    n_retries = database.value(N_RETRIES)
    is_over = "(SELECT status NOT IN ('queued', 'running') FROM easeml.runs)"
    while database.value(N_RETRIES) == n_retries:
        assert not database.value(f"SELECT {is_over}"), "the run ended undisturbed"
        busy = "count(*) = 2 FROM easeml.slots WHERE unit_started_at IS NOT NULL AND kind = 'train'"
        database.wait_until(f"SELECT {is_over} OR {busy}")
        done_at = database.value(
            f"SELECT clock_timestamp() FROM (SELECT {action}(backend_pid) FROM easeml.slots WHERE slot_id = %s) s",
            slot_id,
        )
        # A gang that was hit is said to be tried again before the next one starts.
        next_one = "(SELECT count(*) = 2 FROM easeml.slots WHERE unit_started_at > %s)"
        database.wait_until(f"SELECT {is_over} OR {next_one} OR ({N_RETRIES}) > %s", done_at, n_retries)


def test_a_disturbed_gang_is_tried_again_and_the_run_ends(database: Session) -> None:
    first, second = slot_numbers(database)
    database.execute(LONG_UNITS)
    disturb(database, first, "pg_terminate_backend")
    disturb(database, second, "pg_cancel_backend")
    wait_for_end(database)
    check_recorded_once(database, 1)
    assert database.value("SELECT max(attempt) FROM easeml.training_units") > 1
    told = set(database.values("SELECT message FROM easeml.run_events WHERE kind = 'retry'"))
    assert told
    assert not [each for each in told if "CONTEXT" in each or "spiexceptions" in each]


def test_a_slot_removed_from_a_gang_whose_other_rank_is_stopped_leaves_that_one_in_service(
    database: Session, stopped: Callable[[Session, int], AbstractContextManager[None]]
) -> None:
    stays, leaves = slot_numbers(database)
    database.execute(LONG_UNITS)
    database.wait_until("SELECT count(*) = 2 FROM easeml.slots WHERE unit_started_at IS NOT NULL AND kind = 'train'")
    with stopped(database, stays):  # it takes no notice of the cancel for longer than the coordinator waits
        database.execute("SELECT easeml.remove_slot(%s)", [leaves])
        database.wait_until("SELECT count(*) > 0 FROM easeml.run_events WHERE kind = 'retry'")
    wait_for_end(database)
    check_recorded_once(database, 1)
    database.execute("SELECT easeml.add_slots(1)")
