"""Who starts very many runs waits for its own clock, but only while others have open runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.conftest import Session

SELECT = "SELECT easeml.select_models('work', '{linear}', n_configs => %s, max_epochs => 1)"
CLOCK = "UPDATE easeml.tenant_roles SET paced_until = clock_timestamp() + %s::interval WHERE tenant = 'mallory'"
AHEAD = "SELECT extract(epoch FROM paced_until - clock_timestamp()) FROM easeml.tenant_roles WHERE tenant = 'mallory'"
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
    prepared["mallory"].execute("RESET statement_timeout")
    module_database.execute("SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs")
    module_database.execute("UPDATE easeml.tenant_roles SET paced_until = NULL")


def is_made_to_wait(module_database: Session, mallory: Session, statement: str) -> bool:
    """Say whether a statement is still under way when its tenant's clock would let it begin."""
    module_database.execute(CLOCK, ["1 hour"])
    mallory.execute("SET statement_timeout = '3s'")
    try:
        mallory.execute(statement)
    except psycopg.errors.QueryCanceled as error:
        return "easeml.await_pace" in (error.diag.context or "")
    return False


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


def test_nobody_waits_alone_however_many_runs_it_has(module_database: Session, tenants: dict[str, Session]) -> None:
    assert not is_made_to_wait(module_database, tenants["mallory"], SELECT % 1)


def test_a_superuser_waits_for_nobody(module_database: Session, tenants: dict[str, Session]) -> None:
    run_id = tenants["mallory"].value(SELECT % 1)
    tenants["mallory"].execute("SELECT easeml.cancel(%s)", [run_id])
    tenants["victim"].execute(SELECT % 1)
    module_database.execute(CLOCK, ["1 hour"])
    module_database.execute("SELECT easeml.resume(%s)", [run_id])
    assert module_database.value(RUNS + " AND is_open") == 1


def test_each_start_moves_the_clock_by_its_trials_and_a_dropped_run_gives_nothing_back(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    mallory = tenants["mallory"]
    module_database.execute(CLOCK, ["1 hour"])
    mallory.execute(SELECT % 2000)
    ahead = module_database.value(AHEAD)
    assert 0 < ahead <= 15, "nobody is further ahead than a wait can make good"
    module_database.execute(CLOCK, ["5 seconds"])
    before = module_database.value("SELECT paced_until FROM easeml.tenant_roles WHERE tenant = 'mallory'")
    run_id = mallory.value(SELECT % 2000)
    moved = "SELECT extract(epoch FROM paced_until - %s) FROM easeml.tenant_roles WHERE tenant = 'mallory'"
    assert module_database.value(moved, before) >= 2.25
    mallory.execute("SELECT easeml.drop_run(%s)", [run_id])
    assert module_database.value(moved, before) >= 2.25


def test_the_burst_is_free(module_database: Session, tenants: dict[str, Session]) -> None:
    tenants["victim"].execute(SELECT % 1)
    mallory = tenants["mallory"]
    mallory.execute("SET statement_timeout = '60s'")
    module_database.execute(CLOCK, ["4 seconds"])
    mallory.execute(SELECT % 1)
    assert module_database.value(RUNS) == 1


def test_the_service_begins_no_run_of_a_task_whose_tenant_is_ahead(
    module_database: Session, tenants: dict[str, Session]
) -> None:
    tenants["victim"].execute(SELECT % 1)
    mallory = tenants["mallory"]
    task_id = mallory.value("SELECT easeml.create_task('often', 'Input = [2] Output = [2]', schema => 'mallory')")
    mallory.execute("SELECT easeml.run_task('often')")
    lease_number = module_database.value("SELECT lease_number FROM easeml.coordinator_lease")
    looked_at = "SELECT wanted_at IS NULL FROM easeml.tasks WHERE task_id = %s"
    try:
        for ahead, expected in (("1 hour", False), ("0 hours", True)):
            module_database.execute(CLOCK, [ahead])
            module_database.execute("SELECT easeml.advance_task(%s, %s)", [task_id, lease_number])
            assert module_database.value(looked_at, task_id) is expected
    finally:
        mallory.execute("SELECT easeml.drop_task('often', cascade => true)")
