"""Slots that hang, locks that last, disks that fill up: runs wait or go on elsewhere, and end in the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from easeml_loaders import bundled_source, load_table
from tests.disks import fill, small_disk_for

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

    Coordinator = Callable[..., AbstractContextManager[Any]]

RUN = """
SELECT easeml.select_models('digits', '{mlp}', procedure => 'grid', max_epochs => %s, seed => 5,
    scheduler => 'longest_remaining',
    search_space => '{"hidden_units": [[256, 256]], "learning_rate": [0.003, 0.001], "batch_size": %s}')
"""
STATES = """
SELECT trial_number, epoch, position, partition_number, state_sha256
FROM easeml.training_units JOIN easeml.trials USING (trial_id) ORDER BY trial_number, epoch, position
"""


def start_run(database: Session, max_epochs: int, batch_size: int = 4) -> None:
    load_table(database.dsn, bundled_source("digits"), "digits")
    database.execute("SELECT easeml.create_dataset('digits', 'digits', '{pixels}', 'label')")
    database.execute(RUN % (max_epochs, batch_size))


def wait_for_end(database: Session) -> None:
    database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.runs")
    assert database.value("SELECT status FROM easeml.runs") == "finished", database.rows("TABLE easeml.events")
    assert database.values("SELECT DISTINCT status FROM easeml.trials") == ["finished"]


def check_replays(database: Session) -> None:
    """Every trial's states follow from its own log."""
    for trial_id in database.values("SELECT trial_id FROM easeml.trials"):
        (replayed,) = database.rows("CALL easeml.replay(%s)", trial_id)
        assert replayed["result"]["is_identical"], replayed


# A process that takes no notice


def test_a_slot_that_cannot_be_cancelled_is_given_up_and_comes_back(
    database: Session, coordinator: Coordinator, stopped: Callable[[Session, int], AbstractContextManager[None]]
) -> None:
    start_run(database, max_epochs=3)
    with coordinator(database, "--unit-lease-seconds", "8"):
        database.wait_until("SELECT count(*) = 2 FROM easeml.slots WHERE n_units_done > 2")
        n_done = database.value("SELECT sum(n_steps_done) FROM easeml.trials")
        with stopped(database, 1):
            database.wait_until("SELECT status = 'lost' FROM easeml.slots WHERE slot_id = 1")
            assert "no sign of life" in database.value("SELECT lost_reason FROM easeml.slot_status WHERE slot_id = 1")
            database.wait_until("SELECT sum(n_steps_done) >= least(%s + 4, 24) FROM easeml.trials", n_done)
        database.wait_until("SELECT status = 'active' FROM easeml.slots WHERE slot_id = 1")
        wait_for_end(database)
    assert "slot lost" in database.values("SELECT kind FROM easeml.run_events")
    assert database.value("SELECT max(attempt) FROM easeml.training_timeline") >= 2
    check_replays(database)


# A lock of somebody else's


def test_a_unit_that_waits_for_a_lock_waits_and_fails_nothing(database: Session, coordinator: Coordinator) -> None:
    start_run(database, max_epochs=2, batch_size=64)
    other = database.again()
    other.execute("BEGIN; LOCK TABLE easeml.blocks")
    with coordinator(database):
        waiting = "application_name LIKE 'easeml slot%%' AND wait_event_type = 'Lock'"
        database.wait_until(f"SELECT count(*) = %s FROM pg_stat_activity WHERE {waiting}", 2)
        time.sleep(3.0)  # longer than a unit waits: it is tried again and again meanwhile
        other.execute("COMMIT")
        wait_for_end(database)
    assert database.value("SELECT max(attempt) FROM easeml.training_timeline") == 1


# A full disk

N_BEFORE = 8
# After so many units none is recorded until the disk is full, whoever is faster.
GATE = f"""
CREATE TABLE public.gate (is_open boolean);
GRANT SELECT ON public.gate TO PUBLIC;
CREATE FUNCTION public.wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE (SELECT count(*) FROM easeml.training_units) >= {N_BEFORE} AND NOT EXISTS (SELECT FROM public.gate) LOOP
        PERFORM pg_catalog.pg_sleep(0.01);
    END LOOP;
    RETURN NEW;
END
$$;
CREATE TRIGGER gate BEFORE INSERT ON easeml.training_units FOR EACH ROW EXECUTE FUNCTION public.wait_at_the_gate();
"""


@pytest.fixture
def small_disk(database: Session) -> Iterator[Path]:
    """A disk of 48 MB that holds the states of `database`."""
    with small_disk_for(database, ("easeml.checkpoints", "easeml.checkpoint_chunks")) as folder:
        yield folder


def test_a_full_disk_is_waited_out(database: Session, coordinator: Coordinator, small_disk: Path) -> None:
    start_run(database, max_epochs=3)
    database.execute(GATE)
    with coordinator(database):
        database.wait_until("SELECT sum(n_steps_done) >= %s FROM easeml.trials", N_BEFORE)
        filler = fill(small_disk)
        database.execute("INSERT INTO gate VALUES (true)")
        database.wait_until("SELECT count(*) > 0 FROM easeml.run_events WHERE kind = 'disk full'")
        assert database.value("SELECT count(*) FROM easeml.trials WHERE status = 'failed'") == 0
        filler.unlink()
        wait_for_end(database)
    assert database.value("SELECT count(*) FROM easeml.coordinators") == 1
    assert database.value("SELECT max(attempt) FROM easeml.training_timeline") == 1
    check_replays(database)
