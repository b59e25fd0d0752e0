"""Segments, slots and replicas: how they change, what is refused, and what a run under way makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

    Coordinator = Callable[[Session], AbstractContextManager[Any]]

FLOWERS = """
CREATE TABLE flowers AS
SELECT i AS id, (i % 3) * 2 + sin(i * 12.9898) AS petal, (ARRAY['rose', 'tulip', 'lily'])[1 + i % 3] AS kind
FROM generate_series(1, 300) i
"""
SELECT_MODELS = """
SELECT easeml.select_models('flowers', '{mlp}', procedure => 'grid', max_epochs => %s, visit_order => %s,
    search_space => '{"learning_rate": [0.1, 0.03, 0.01, 0.003], "batch_size": 16, "hidden_units": [[8]]}')
"""


def bound_dataset(database: Session, n_partitions: int = 4) -> None:
    database.execute(FLOWERS)
    database.execute(
        "SELECT easeml.create_dataset('flowers', 'flowers', '{petal}', 'kind',"
        " n_partitions => %s, placement => 'bound')",
        [n_partitions],
    )


def add_segments(database: Session, *names: str, n_slots: int = 1) -> None:
    for name in names:
        database.execute("SELECT easeml.add_segment(%s)", [name])
        database.execute("SELECT easeml.add_slots(%s, %s)", [n_slots, name])


def holders(database: Session) -> list[list[str]]:
    return database.values("SELECT holders FROM easeml.partition_status ORDER BY partition_number")


def refused(database: Session, code: str, statement: str, *values: Any) -> str:
    """What the server says against a statement; it must have changed nothing."""
    before = (
        database.rows("SELECT slot_id, status FROM easeml.slots ORDER BY 1"),
        database.rows("TABLE easeml.replicas"),
    )
    with pytest.raises(psycopg.Error) as caught:
        database.execute(statement, values or None)  # type: ignore[arg-type]
    assert caught.value.sqlstate == code
    after = database.rows("SELECT slot_id, status FROM easeml.slots ORDER BY 1"), database.rows("TABLE easeml.replicas")
    assert after == before
    return f"{caught.value.diag.message_primary} | {caught.value.diag.message_hint}"


# Slots


def test_slots_are_added_with_new_numbers_and_set_slots_leaves_other_segments_alone(database: Session) -> None:
    add_segments(database, "east", n_slots=2)
    assert database.value("SELECT easeml.add_slots(2, n_threads => 2)") == [5, 6]
    database.execute("SELECT easeml.set_slots(1)")
    rows = database.rows("SELECT slot_id, segment_name, n_threads FROM easeml.slot_status ORDER BY slot_id")
    assert [tuple(row.values()) for row in rows] == [(1, "local", 1), (3, "east", 1), (4, "east", 1)]
    database.execute("SELECT easeml.set_slots(2)")
    assert database.values("SELECT slot_id FROM easeml.slots ORDER BY 1") == [1, 3, 4, 7]


def test_drain_resume_and_remove(database: Session) -> None:
    database.execute("SELECT easeml.drain_slot(2)")
    assert database.values("SELECT status FROM easeml.slot_status ORDER BY slot_id") == ["offline", "drained"]
    database.execute("SELECT easeml.resume_slot(2)")
    database.execute("SELECT easeml.remove_slot(1)")
    assert database.values("SELECT slot_id FROM easeml.slots WHERE status = 'active'") == [2]


def test_the_last_slot_of_a_shared_data_set_does_not_leave_by_mistake(database: Session) -> None:
    database.execute(FLOWERS)
    database.execute("SELECT easeml.create_dataset('flowers', 'flowers', '{petal}', 'kind', n_partitions => 4)")
    database.execute("SELECT easeml.drain_slot(1)")
    said = refused(database, "ML004", "SELECT easeml.drain_slot(2)")
    assert "slot 2 on segment local is the last" in said
    assert "'flowers'" in said
    assert "force" in said
    database.execute("SELECT easeml.drain_slot(2, force => true)")


def test_the_last_holder_of_a_partition_does_not_leave_by_mistake(database: Session) -> None:
    add_segments(database, "east")
    bound_dataset(database)
    assert "replicate_dataset('flowers', 2)" in refused(database, "ML004", "SELECT easeml.drain_slot(3)")
    assert "partition 1" in refused(database, "ML004", "SELECT easeml.remove_slot(3)")
    assert "last" in refused(database, "ML004", "SELECT easeml.drain_segment('local')")
    database.execute("SELECT easeml.drain_slot(1)")  # slot 2 is on the same segment
    database.execute("SELECT easeml.replicate_dataset('flowers', 2)")
    database.execute("SELECT easeml.drain_segment('east')")
    assert database.values("SELECT status FROM easeml.slots ORDER BY slot_id") == ["draining", "active", "draining"]


def test_two_who_leave_at_once_do_not_count_on_each_other(database: Session) -> None:
    database.execute(FLOWERS)
    database.execute("SELECT easeml.create_dataset('flowers', 'flowers', '{petal}', 'kind', n_partitions => 4)")
    first, second = database.again(), database.again()
    first.execute("BEGIN")
    first.execute("SELECT easeml.drain_slot(1)")
    second.execute("SET statement_timeout = '300ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        second.execute("SELECT easeml.drain_slot(2)")
    first.execute("COMMIT")
    second.execute("RESET statement_timeout")
    refused(second, "ML004", "SELECT easeml.drain_slot(2)")


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        ("SELECT easeml.add_slots(0)", "ML001", "1 to 1000"),
        ("SELECT easeml.add_slots(1, 'nowhere')", "ML003", "There are: local"),
        ("SELECT easeml.add_slots(1, device => 'tpu')", "ML001", "cpu, cpu:N or cuda:N"),
        ("SELECT easeml.add_slots(1, memory_limit_bytes => 1)", "ML001", "256 MB"),
        ("SELECT easeml.drain_slot(99)", "ML003", "no slot 99"),
        ("SELECT easeml.drain_slot(NULL)", "ML003", "no slot NULL"),
        ("SELECT easeml.resume_slot(99)", "ML003", "no slot 99"),
        ("SELECT easeml.remove_slot(99)", "ML003", "no slot 99"),
        ("SELECT easeml.add_segment('')", "ML001", "1 to 200 characters"),
        ("SELECT easeml.add_segment('local')", "ML001", "already"),
        ("SELECT easeml.remove_segment('local')", "ML004", "this server"),
        ("SELECT easeml.drain_segment('nowhere')", "ML003", "no segment"),
        ("SELECT easeml.replicate_dataset('nothing', 1)", "ML003", "no dataset"),
    ],
)
def test_bad_input_is_refused(database: Session, statement: str, code: str, words: str) -> None:
    assert words in refused(database, code, statement)


# Replicas


@pytest.mark.parametrize("n_segments", [1, 3, 4])
def test_copies_are_spread_evenly_and_stay_where_they_are(database: Session, n_segments: int) -> None:
    add_segments(database, *(f"s{i}" for i in range(2, n_segments + 1)))
    bound_dataset(database, n_partitions=7)
    before = holders(database)
    assert all(len(names) == 1 for names in before)
    for factor in (*range(1, n_segments + 1), *range(n_segments, 0, -1)):
        database.execute("SELECT easeml.replicate_dataset('flowers', %s)", [factor])
        now = holders(database)
        assert all(len(set(names)) == factor for names in now)
        copies = Counter(name for names in now for name in names)
        assert max(copies.values()) - min(copies.values()) <= 1
        stayed = sum(len(set(old) & set(new)) for old, new in zip(before, now, strict=True))
        assert stayed >= sum(min(len(old), len(new)) for old, new in zip(before, now, strict=True)) - 2
        before = now
    add_segments(database, "late")
    database.execute("SELECT easeml.replicate_dataset('flowers', 1)")
    assert "late" in {name for names in holders(database) for name in names}


def test_replicas_are_refused_where_they_make_no_sense(database: Session) -> None:
    bound_dataset(database)
    said = refused(database, "ML001", "SELECT easeml.replicate_dataset('flowers', 2)")
    assert "expected 1 to 1" in said
    assert "got 2" in said
    refused(database, "ML001", "SELECT easeml.replicate_dataset('flowers', NULL)")
    database.execute("SELECT easeml.create_dataset('open', 'flowers', '{petal}', 'kind', n_partitions => 4)")
    assert "shared" in refused(database, "ML004", "SELECT easeml.replicate_dataset('open', 1)")
    with pytest.raises(psycopg.Error, match="expected shared or bound"):
        database.execute("SELECT easeml.create_dataset('x', 'flowers', '{petal}', 'kind', placement => 'far')")


def test_a_segment_leaves_when_nothing_depends_on_it(database: Session) -> None:
    add_segments(database, "east")
    bound_dataset(database)
    assert "still has slots" in refused(database, "ML004", "SELECT easeml.remove_segment('east')")
    database.execute("SELECT easeml.remove_slot(3, force => true)")
    assert "only holder" in refused(database, "ML004", "SELECT easeml.remove_segment('east')")
    home = "UPDATE easeml.partitions SET home_segment_id = %s WHERE partition_number = 1"
    database.execute(home, [database.value("SELECT easeml.find_segment('east')")])  # which no replica makes up for
    assert "which are nowhere else" in refused(database, "ML004", "SELECT easeml.remove_segment('east')")
    database.execute(home, [None])
    database.execute("SELECT easeml.replicate_dataset('flowers', 1)")
    database.execute("SELECT easeml.remove_segment('east')")
    assert holders(database) == [["local"]] * 4


def test_a_segment_where_somebody_places_rows_stays_and_others_change_the_topology_meanwhile(database: Session) -> None:
    database.execute("SELECT easeml.add_segment('east')")
    with database.again() as placing, placing.transaction():
        placing.execute(
            "SELECT FROM easeml.segments WHERE segment_name = 'east' FOR KEY SHARE"
        )  # as a new replica does
        database.execute("SET statement_timeout = '60s'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            database.execute("SELECT easeml.remove_segment('east')")
        database.execute("SELECT easeml.add_slots(1)")
    database.execute("SELECT easeml.remove_segment('east')")


def test_a_refreshed_data_set_keeps_its_placement(database: Session) -> None:
    add_segments(database, "east")
    bound_dataset(database)
    database.execute("SELECT easeml.replicate_dataset('flowers', 2)")
    database.execute("SELECT easeml.refresh_dataset('flowers')")
    rows = database.rows("SELECT version, placement, replication_factor FROM easeml.dataset_info ORDER BY version")
    assert [tuple(row.values()) for row in rows] == [(1, "bound", 2), (2, "bound", 2)]


def test_tenants_place_their_own_data_and_leave_the_machine_alone(database: Session) -> None:
    add_segments(database, "east")
    ann = database.as_role("topology_ann", "easeml_tenant")
    database.execute("GRANT CREATE, USAGE ON SCHEMA public TO topology_ann")
    bound_dataset(ann)
    ann.execute("SELECT easeml.replicate_dataset('flowers', 2)")
    bob = database.as_role("topology_bob", "easeml_tenant")
    assert bob.rows("TABLE easeml.replicas") == []
    with pytest.raises(psycopg.Error, match="no dataset"):
        bob.execute("SELECT easeml.replicate_dataset('flowers', 1)")
    for call in (
        "set_slots(1)",
        "add_slots(1)",
        "drain_slot(1)",
        "resume_slot(1)",
        "remove_slot(1)",
        "add_segment('x')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ann.execute(f"SELECT easeml.{call}")


# Runs under way


def start(database: Session, max_epochs: int, visit_order: str) -> int:
    return int(database.value(SELECT_MODELS, max_epochs, visit_order))


def check_visits(database: Session, run_id: int) -> None:
    """The run has ended well, and each trial met each partition once a round, where it is held."""
    database.wait_until("SELECT status NOT IN ('queued', 'running') FROM easeml.run_status WHERE run_id = %s", run_id)
    assert database.value("SELECT status FROM easeml.run_status WHERE run_id = %s", run_id) == "finished"
    rows = database.rows(
        "SELECT trial_id, kind, epoch, array_agg(partition_number ORDER BY partition_number) AS met"
        " FROM easeml.training_timeline WHERE run_id = %s GROUP BY 1, 2, 3", run_id,
    )  # fmt: skip
    (wanted,) = database.rows("SELECT sum(2 * max_epochs + 1) AS n FROM easeml.trials WHERE run_id = %s", run_id)
    assert len(rows) == wanted["n"]
    assert all(row["met"] == [0, 1, 2, 3] for row in rows)


def test_units_run_where_their_partition_is_held(database: Session, coordinator: Coordinator) -> None:
    add_segments(database, "east")
    database.execute("SELECT easeml.set_slots(1)")
    bound_dataset(database)
    with coordinator(database):
        for visit_order in ("cyclic", "free"):
            check_visits(database, start(database, 2, visit_order))
    strays = """
        SELECT count(*) FROM easeml.training_timeline t JOIN easeml.slots s USING (slot_id)
        WHERE NOT EXISTS (SELECT FROM easeml.replicas c
            WHERE c.segment_id = s.segment_id AND c.partition_number = t.partition_number)
    """
    assert database.value(strays) == 0
    assert database.value("SELECT count(DISTINCT slot_id) FROM easeml.training_timeline") == 2


def test_slots_come_and_go_while_a_run_goes_on(database: Session, coordinator: Coordinator) -> None:
    database.execute(FLOWERS)
    database.execute("SELECT easeml.create_dataset('flowers', 'flowers', '{petal}', 'kind', n_partitions => 4)")
    with coordinator(database):
        run_id = start(database, 100_000, "cyclic")  # it does not end before it is cut short
        done = "SELECT sum(n_steps_done) >= %s FROM easeml.trials"
        database.wait_until(done, 40)
        database.execute("SELECT easeml.drain_slot(2)")
        database.wait_until("SELECT status = 'drained' FROM easeml.slot_status WHERE slot_id = 2")
        # Between two units a slot looks drained, too; its session is closed once the coordinator has taken it up.
        database.wait_until(
            "SELECT count(*) = 0 FROM pg_stat_activity"
            " WHERE application_name = 'easeml slot 2' AND datname = current_database()"
        )
        n_before = database.value("SELECT n_units_done FROM easeml.slots WHERE slot_id = 2")
        (added,) = database.value("SELECT easeml.add_slots(1)")
        database.wait_until("SELECT n_units_done > 10 FROM easeml.slots WHERE slot_id = %s", added)
        assert database.value("SELECT n_units_done FROM easeml.slots WHERE slot_id = 2") == n_before
        database.execute("SELECT easeml.remove_slot(%s)", [added])
        database.execute("SELECT easeml.resume_slot(2)")
        database.wait_until("SELECT n_units_done > %s FROM easeml.slots WHERE slot_id = 2", n_before)
        database.execute("SELECT easeml.cancel(%s)", [run_id])
    database.execute("UPDATE easeml.trials SET max_epochs = n_steps_done / 8 + 1")  # as no coordinator knows it yet
    database.execute("SELECT easeml.resume(%s)", [run_id])
    with coordinator(database):
        check_visits(database, run_id)
    assert database.value("SELECT count(*) FROM easeml.trials WHERE status <> 'finished'") == 0


def test_a_slot_whose_session_cannot_be_opened_is_shown_as_waiting(database: Session, coordinator: Coordinator) -> None:
    database.execute("SELECT easeml.add_segment('nowhere', service => 'pg_nowhere')")
    (added,) = database.value("SELECT easeml.add_slots(1, 'nowhere')")
    with coordinator(database):
        database.wait_until("SELECT status = 'waiting' FROM easeml.slot_status WHERE slot_id = %s", added)
        assert "pg_nowhere" in database.value("SELECT lost_reason FROM easeml.slot_status WHERE slot_id = %s", added)
        database.wait_until("SELECT status = 'idle' FROM easeml.slot_status WHERE slot_id = 1")
