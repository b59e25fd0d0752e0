"""Who starts very many runs waits for its own clock, whoever else has runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SELECT = "SELECT easeml.select_models('work', '{linear}', n_configs => %s, max_epochs => 1)"
CLOCK = "UPDATE easeml.tenant_roles SET paced_until = clock_timestamp() + %s::interval WHERE tenant = 'mallory'"
PACED_UNTIL = "SELECT paced_until FROM easeml.tenant_roles WHERE tenant = 'mallory'"
AHEAD = "SELECT extract(epoch FROM paced_until - clock_timestamp()) FROM easeml.tenant_roles WHERE tenant = 'mallory'"
WAITED_FOR = "SELECT easeml.seconds_ahead('mallory')"
IS_ASLEEP = "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
RUNS = "SELECT count(*) FROM easeml.runs WHERE tenant = 'mallory'"


@pytest.fixture(scope="module")
def prepared(module_database: Session) -> dict[str, Session]:
    """Two tenants with a dataset each; no coordinator serves them."""
    tenants = {name: module_database.as_role(name, "easeml_tenant") for name in ("mallory", "victim")}
    for name, session in tenants.items():
        module_database.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
        session.execute("CREATE TABLE mine AS SELECT sin(i) AS x, i % 2 = 0 AS y FROM generate_series(1, 40) i")
        session.execute("SELECT easeml.create_dataset('work', 'mine', '{x}', 'y', n_partitions => 1)")
    return tenants


@pytest.fixture
def tenants(module_database: Session, prepared: dict[str, Session]) -> Iterator[dict[str, Session]]:
    """Both without runs, and mallory's clock where that of a newcomer stands."""
    yield prepared
    module_database.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")
    module_database.execute("UPDATE easeml.tenant_roles SET paced_until = NULL")


def is_made_to_wait(module_database: Session, mallory: Session, statement: str) -> bool:
    """Say whether a statement falls asleep for its tenant's clock, which is far ahead."""
    module_database.execute(CLOCK, ["1 hour"])
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(mallory.execute, statement)
        while not asked.done():
            if module_database.value(IS_ASLEEP, mallory.info.backend_pid):
                mallory.cancel_safe()
            time.sleep(0.02)
    error = asked.exception()
    assert error is None or isinstance(error, psycopg.errors.QueryCanceled), error
    return error is not None and "easeml.await_pace" in (error.diag.context or "")


@pytest.mark.parametrize("action", ["start", "resume"])
def test_a_tenant_far_ahead_of_its_clock_waits_while_others_have_open_runs(
    module_database: Session, tenants: dict[str, Session], action: str
) -> None:
    mallory = tenants["mallory"]
    run_id = mallory.value(SELECT % 1)
    mallory.execute("SELECT easeml.cancel(%s)", [run_id])
    tenants["victim"].execute(SELECT % 1)
    statement = {"start": SELECT % 1, "resume": f"SELECT easeml.resume({run_id})"}[action]
    assert is_made_to_wait(module_database, mallory, statement)
    assert module_database.value(RUNS + " AND is_open") == 0


def test_a_tenant_far_ahead_of_its_clock_waits_alone_too(module_database: Session, tenants: dict[str, Session]) -> None:
    """What it has the service record meanwhile is still there when others come."""
    assert is_made_to_wait(module_database, tenants["mallory"], SELECT % 1)


def test_twenty_starts_in_a_row_wait_for_nobody(module_database: Session, tenants: dict[str, Session]) -> None:
    began = time.monotonic()
    for _ in range(15):
        tenants["mallory"].execute(SELECT % 1)
        assert module_database.value(WAITED_FOR) == 0
    assert time.monotonic() - began < 15 * 5


def test_a_paced_start_begins_by_itself_and_not_before_its_time(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    tenants["victim"].execute(SELECT % 1)
    module_database.execute(CLOCK, ["6 seconds"])
    until = module_database.value(PACED_UNTIL)
    tenants["mallory"].execute(SELECT % 1)
    early = module_database.value("SELECT extract(epoch FROM %s - 5 * interval '1 second' - clock_timestamp())", until)
    assert early <= 0, "it would have begun before its clock was five seconds ahead"
    assert module_database.value(RUNS) == 1


def test_sessions_of_one_tenant_wait_one_after_another(module_database: Session, tenants: dict[str, Session]) -> None:
    """However many ask at once, they do not all go at the same moment."""
    tenants["victim"].execute(SELECT % 1)
    module_database.execute(CLOCK, ["1 hour"])
    first, second = tenants["mallory"], module_database.as_role("mallory")

    def wait() -> None:
        with pytest.raises(psycopg.errors.QueryCanceled):
            first.execute(SELECT % 1)

    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        module_database.wait_until(IS_ASLEEP, first.info.backend_pid)
        second.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable) as refused:
            second.execute(SELECT % 1)
    finally:
        module_database.execute("SELECT pg_cancel_backend(%s)", [first.info.backend_pid])
        waiting.join()
    assert "easeml.await_pace" in (refused.value.diag.context or "")


def test_a_superuser_waits_for_nobody(module_database: Session, tenants: dict[str, Session]) -> None:
    run_id = tenants["mallory"].value(SELECT % 1)
    module_database.execute("SELECT easeml.cancel(%s)", [run_id])
    tenants["victim"].execute(SELECT % 1)
    # It is a tenant itself once it asks for something; its clock is as far ahead as that of the run's tenant.
    module_database.execute("UPDATE easeml.tenant_roles SET paced_until = clock_timestamp() + interval '1 hour'")
    asker = module_database.value("SELECT tenant::text FROM easeml.tenant_roles WHERE role = current_user::regrole")
    assert module_database.value("SELECT easeml.seconds_ahead(%s)", asker) > 3000
    with module_database.transaction():
        module_database.execute("SET LOCAL statement_timeout = '30s'")
        module_database.execute("SELECT easeml.resume(%s)", [run_id])
    assert module_database.value(RUNS + " AND is_open") == 1


def test_each_start_moves_the_clock_by_its_trials_and_a_dropped_run_gives_nothing_back(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    mallory = tenants["mallory"]
    module_database.execute(CLOCK, ["4900 ms"])
    mallory.execute(SELECT % 10_000)
    ahead = module_database.value(AHEAD)
    assert 0 < ahead <= 15, "nobody is further ahead than a wait can make good"
    module_database.execute(CLOCK, ["4900 ms"])
    before = module_database.value("SELECT paced_until FROM easeml.tenant_roles WHERE tenant = 'mallory'")
    run_id = mallory.value(SELECT % 2000)
    moved = "SELECT extract(epoch FROM paced_until - %s) FROM easeml.tenant_roles WHERE tenant = 'mallory'"
    assert module_database.value(moved, before) >= 2.25
    mallory.execute("SELECT easeml.drop_run(%s)", [run_id])
    assert module_database.value(moved, before) >= 2.25


def test_the_burst_is_free(module_database: Session, tenants: dict[str, Session]) -> None:
    tenants["victim"].execute(SELECT % 1)
    for ahead, least, most in (("1 second", 0, 0), ("4900 ms", 0, 0), ("65 seconds", 0.001, 60)):
        with module_database.transaction():
            module_database.execute(CLOCK, [ahead])
            assert least <= module_database.value(WAITED_FOR) <= most
    module_database.execute(CLOCK, ["4900 ms"])
    before = module_database.value(PACED_UNTIL)
    tenants["mallory"].execute(SELECT % 1)
    moved = module_database.value(
        "SELECT extract(epoch FROM paced_until - %s) FROM easeml.tenant_roles WHERE tenant = 'mallory'", before
    )
    assert moved >= 0.25, "the start counts although it was free"


@pytest.fixture
def often(tenants: dict[str, Session]) -> Iterator[str]:
    """A task of mallory, who has asked for a run of it."""
    mallory = tenants["mallory"]
    mallory.execute("SELECT easeml.create_task('often', 'Input = [2] Output = [2]', schema => 'mallory')")
    yield "often"
    mallory.execute("SELECT easeml.drop_task('often', cascade => true)")


TASK = "SELECT {} FROM easeml.tasks WHERE task_name = 'often'"


def advance(module_database: Session) -> int | None:
    """Have the service look at the task."""
    return module_database.value(
        "SELECT easeml.advance_task(t.task_id, l.lease_number) FROM easeml.tasks t, easeml.coordinator_lease l"
        " WHERE t.task_name = 'often'"
    )


def due(module_database: Session, *, is_first: bool = False) -> list[int]:
    return module_database.values("SELECT task_id FROM easeml.due_tasks(%s) AS t(task_id)", is_first)


def test_the_service_begins_no_run_of_a_task_whose_tenant_is_ahead(
    module_database: Session, tenants: dict[str, Session], often: str
) -> None:
    tenants["mallory"].execute("SELECT easeml.run_task('often')")
    for ahead, is_looked_at in (("1 hour", False), ("0 hours", True)):
        module_database.execute(CLOCK, [ahead])
        module_database.execute("UPDATE easeml.tasks SET not_before = NULL")
        assert advance(module_database) is None
        assert module_database.value(TASK.format("wanted_at IS NULL")) is is_looked_at


def test_a_task_that_waits_for_its_pace_is_looked_at_later_whatever_made_it_due(
    module_database: Session, tenants: dict[str, Session], often: str
) -> None:
    """That a coordinator has started, and knows other architectures, is written down nowhere else."""
    module_database.execute(CLOCK, ["0 hours"])
    advance(module_database)
    (task_id,) = due(module_database, is_first=True)
    assert due(module_database) == []
    module_database.execute(CLOCK, ["65 seconds"])
    assert advance(module_database) is None
    seconds = module_database.value(TASK.format("extract(epoch FROM not_before - clock_timestamp())"))
    assert 0 < seconds <= 60
    assert due(module_database) == [], "it is not looked at before its time"
    module_database.execute("UPDATE easeml.tasks SET not_before = clock_timestamp()")
    assert due(module_database) == [task_id], "nobody has done anything"
    module_database.execute(CLOCK, ["0 hours"])
    advance(module_database)
    assert module_database.value(TASK.format("not_before")) is None


@pytest.mark.parametrize("statement", [SELECT % 1, "SELECT easeml.run_task('often')"])
def test_the_service_does_not_wait_for_a_tenant_that_holds_what_it_needs(
    module_database: Session, tenants: dict[str, Session], often: str, statement: str
) -> None:
    """It holds the task and would wait for the tenant, who may hold the tenant's row and wait for the task."""
    tenants["mallory"].execute("SELECT easeml.run_task('often')")
    with module_database.as_role("mallory") as holder, holder.transaction(force_rollback=True):
        holder.execute(statement)
        version = module_database.value(TASK.format("xmin"))
        with module_database.transaction():
            module_database.execute("SET LOCAL lock_timeout = '10ms'")
            found = advance(module_database)
        assert found == 0, "a coordinator remembers that nobody could look at it"
        assert module_database.value(TASK.format("xmin")) == version, "nothing is written, however often it looks"
    assert module_database.value(RUNS) == 0
