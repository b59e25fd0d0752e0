"""Forecasts that the coordinator keeps of runs under way: when they are made, what views show of them, what they cost.

Units are written by hand, as in test_plans.py; there is no coordinator, only its forecasting session.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.postgres.chores.forecasts import LOOK_SECONDS, Cadence, Forecasts
from easeml_db.postgres.stores.store_session import StoreSession
from tests.integration.plans.test_plans import EVALUATIONS, METRICS, TABLE, UNITS

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

AT_ONCE = Cadence(first_seconds=0.0, least_seconds=0.0, most_seconds=0.0, timeout_seconds=200.0)
EPOCH_SECONDS = 24  # by hand: two units of 10 and two of 2 seconds
SLOT_SECONDS = 6 * EPOCH_SECONDS + 3 * 4  # of a run of three trials of two epochs, which ends with three tests
LIVE = """
INSERT INTO easeml.coordinators (lease_number, host, process_id, version, heartbeat_at)
SELECT lease_number, 'here', 1, '1', now() + interval '1 hour' FROM easeml.coordinator_lease
"""


@pytest.fixture(scope="module")
def admin(module_database: Session) -> Session:
    """Two slots, and a lease that some coordinator holds."""
    module_database.execute("SELECT easeml.set_slots(2)")
    module_database.execute("UPDATE easeml.coordinator_lease SET lease_number = 7")
    module_database.execute(LIVE)
    return module_database


def timed_tenant(admin: Session, name: str) -> Session:
    """A tenant with a dataset and three trials of mlp that took EPOCH_SECONDS an epoch."""
    session = admin.as_role(name, "easeml_tenant")
    admin.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
    session.execute(TABLE.replace("lena", name))
    session.execute(f"SELECT easeml.create_dataset('flowers', '{name}.mine', '{{x}}', 'y', n_partitions => 2)")
    run = session.value("SELECT easeml.select_models('flowers', '{mlp}', n_configs => 3, max_epochs => 2)")
    for statement in (UNITS, EVALUATIONS, METRICS):
        admin.execute(statement, {"run": run})
    for status in ("running", "finished"):
        admin.execute(f"UPDATE easeml.runs SET status = '{status}' WHERE run_id = %s", [run])
        admin.execute(f"UPDATE easeml.trials SET status = '{status}', n_steps_done = 10 WHERE run_id = %s", [run])
    return session


@pytest.fixture(scope="module")
def lena(admin: Session) -> Session:
    return timed_tenant(admin, "lena")


@pytest.fixture(scope="module")
def mia(admin: Session) -> Session:
    return timed_tenant(admin, "mia")


@pytest.fixture(autouse=True)
def _end_of_runs(admin: Session) -> Any:
    yield
    admin.execute("UPDATE easeml.runs SET status = 'cancelled' WHERE status IN ('queued', 'running')")


def begin_run(session: Session, admin: Session, age: str = "20 seconds") -> int:
    """Start three trials of two epochs, which no coordinator trains: six epochs on two slots."""
    run = session.value("SELECT easeml.select_models('flowers', '{mlp}', n_configs => 3, max_epochs => 2)")
    admin.execute(
        f"UPDATE easeml.runs SET status = 'running', created_at = now() - interval '{age}',"
        f" started_at = now() - interval '{age}' WHERE run_id = %s",
        [run],
    )
    return int(run)


def take_turns(dsn: str, n_turns: int = 1, cadence: Cadence = AT_ONCE, *, lease_number: int = 7) -> list[float]:
    """Let the forecasting session take turns; return for how long it wants to rest after each."""

    async def turns() -> list[float]:
        leading = StoreSession(dsn)
        leading.lease_number = lease_number
        forecasts = Forecasts(leading, cadence)
        try:
            return [await forecasts.take_turn() for _ in range(n_turns)]
        finally:
            await forecasts.close()

    return asyncio.run(turns())


def service(admin: Session) -> str:
    """The connection string of a role that may what a coordinator's may, and no more."""
    return admin.as_role("foreteller", "easeml_coordinator").dsn


def n_forecasts(session: Session, run: int) -> int:
    return int(session.value("SELECT count(*) FROM easeml.run_forecasts WHERE run_id = %s", run))


def test_run_status_shows_the_newest_forecast(lena: Session, admin: Session) -> None:
    run = begin_run(lena, admin)
    status = "SELECT *, extract(epoch FROM eta_at - now()) AS left FROM easeml.run_status WHERE run_id = %s"
    (before,) = lena.rows(status, run)
    assert (before["eta_at"], before["cost_expected"], before["cost_so_far"]) == (None, None, 0)
    take_turns(service(admin))
    (row,) = lena.rows(status, run)
    assert float(row["left"]) == pytest.approx(SLOT_SECONDS / 2, rel=0.15)
    assert row["eta_at"] < row["eta_p95_at"]
    assert row["cost_expected"] == pytest.approx(SLOT_SECONDS / 3600, rel=0.15)
    assert row["is_at_risk"] is False


def test_a_run_is_at_risk_when_it_may_end_after_the_deadline_of_its_tenant(lena: Session, admin: Session) -> None:
    run = begin_run(lena, admin)
    take_turns(service(admin))
    admin.execute("SELECT easeml.create_tenant('lena')")
    found = []
    for interval in ("1 minute", "1 hour"):
        admin.execute("SELECT easeml.alter_tenant('lena', deadline => now() + %s::interval)", [interval])
        found.append(lena.value("SELECT is_at_risk FROM easeml.run_status WHERE run_id = %s", run))
    admin.execute("UPDATE easeml.tenants SET deadline = NULL")
    assert found == [True, False]


def test_a_run_is_at_risk_by_its_own_deadline_and_cost(lena: Session, admin: Session) -> None:
    run = begin_run(lena, admin)
    take_turns(service(admin))
    found = []
    for limit in ("deadline = now() + interval '1 hour'", "deadline = now()", "deadline = NULL, max_cost = 0.01"):
        admin.execute(f"UPDATE easeml.runs SET {limit} WHERE run_id = %s", [run])
        found.append(lena.value("SELECT is_at_risk FROM easeml.run_status WHERE run_id = %s", run))
        assert lena.value("SELECT is_at_risk FROM easeml.forecast(%s)", run) is found[-1]
    assert found == [False, True, True]


def test_a_run_that_takes_longer_than_forecast_is_due_now(lena: Session, admin: Session) -> None:
    run = begin_run(lena, admin)
    take_turns(service(admin))
    admin.execute("UPDATE easeml.forecasts SET eta_at = now() - interval '1 hour' WHERE run_id = %s", [run])
    assert lena.value("SELECT eta_at >= now() FROM easeml.run_status WHERE run_id = %s", run)


def test_what_has_ended_or_begun_again_has_no_eta(lena: Session, admin: Session) -> None:
    run = begin_run(lena, admin)
    take_turns(service(admin))
    eta = "SELECT eta_at IS NULL FROM easeml.run_status WHERE run_id = %s"
    lena.execute("SELECT easeml.cancel(%s)", [run])
    assert lena.value(eta, run)
    lena.execute("SELECT easeml.resume(%s)", [run])
    admin.execute("UPDATE easeml.runs SET status = 'running', started_at = clock_timestamp() WHERE run_id = %s", [run])
    assert lena.value(eta, run)  # what was forecast before it was cancelled says nothing
    assert n_forecasts(lena, run) == 1


def test_nobody_is_forecast_before_its_time_or_without_the_lease(lena: Session, admin: Session) -> None:
    run = begin_run(lena, admin)
    take_turns(service(admin), lease_number=6)
    take_turns(service(admin), cadence=Cadence(first_seconds=3600.0, most_seconds=3600.0))
    assert n_forecasts(lena, run) == 0
    take_turns(
        admin.dsn, 3, Cadence(first_seconds=10.0, least_seconds=3600.0, most_seconds=3600.0, timeout_seconds=200.0)
    )
    assert n_forecasts(lena, run) == 1


def test_a_run_of_which_nothing_is_known_is_forecast_as_soon_as_something_is(admin: Session) -> None:
    nora = admin.as_role("nora", "easeml_tenant")
    admin.execute("CREATE SCHEMA nora AUTHORIZATION nora")
    nora.execute(TABLE.replace("lena", "nora"))
    nora.execute("SELECT easeml.create_dataset('flowers', 'nora.mine', '{x}', 'y', n_partitions => 2)")
    run = begin_run(nora, admin)
    patient = Cadence(first_seconds=0.0, least_seconds=3600.0, most_seconds=3600.0, timeout_seconds=200.0)
    eta = "SELECT eta_at IS NOT NULL FROM easeml.run_status WHERE run_id = %s"
    take_turns(service(admin), cadence=patient)
    assert n_forecasts(nora, run) == 1
    assert not nora.value(eta, run)
    for statement in (UNITS, EVALUATIONS):
        admin.execute(statement, {"run": run})
    admin.execute("UPDATE easeml.trials SET status = 'running', n_steps_done = 8 WHERE run_id = %s", [run])
    admin.execute("UPDATE easeml.forecasts SET made_at = made_at - interval '5 seconds' WHERE run_id = %s", [run])
    take_turns(service(admin), cadence=patient)
    assert nora.value(eta, run)


def test_a_run_with_a_time_limit_goes_up_to_it_until_its_first_forecast(lena: Session, admin: Session) -> None:
    run = lena.value("SELECT easeml.select_models('flowers', '{mlp}', max_seconds => 300)")
    status = "SELECT eta_at, eta_p95_at, started_at, cost_expected FROM easeml.run_status WHERE run_id = %s"
    assert lena.rows(status, run)[0]["eta_at"] is None
    admin.execute("UPDATE easeml.runs SET status = 'running', started_at = clock_timestamp() WHERE run_id = %s", [run])
    (row,) = lena.rows(status, run)
    assert row["eta_at"] == row["eta_p95_at"] == row["started_at"] + timedelta(seconds=300)
    assert row["cost_expected"] is None


def test_a_planned_run_says_when_it_will_be_done_from_its_start(lena: Session, admin: Session) -> None:
    run = lena.value(
        "SELECT easeml.select_models('flowers', '{mlp}', n_configs => 3, max_epochs => 2, deadline => '2 hours')"
    )
    status = "SELECT * FROM easeml.run_status WHERE run_id = %s"
    (plan,) = lena.rows("SELECT * FROM easeml.plans WHERE run_id = %s", run)
    (queued,) = lena.rows(status, run)
    assert queued["eta_at"] - plan["made_at"] >= timedelta(seconds=plan["seconds_mean"])
    assert (queued["cost_expected"], queued["is_at_risk"]) == (plan["cost_mean"], False)
    admin.execute("UPDATE easeml.runs SET status = 'running', started_at = clock_timestamp() WHERE run_id = %s", [run])
    (running,) = lena.rows(status, run)
    assert running["eta_at"] == running["started_at"] + timedelta(seconds=plan["seconds_mean"])
    assert running["eta_p95_at"] == running["started_at"] + timedelta(seconds=plan["seconds_p95"])
    take_turns(service(admin))
    assert n_forecasts(lena, run) == 1
    lena.execute("SELECT easeml.cancel(%s)", [run])
    assert lena.rows(status, run)[0]["eta_at"] is None
    lena.execute("SELECT easeml.resume(%s)", [run])
    assert lena.rows(status, run)[0]["eta_at"] is None  # the plan was of all, and part of it may be done


def test_tenants_are_forecast_in_turn_however_many_runs_one_has(lena: Session, mia: Session, admin: Session) -> None:
    many = [begin_run(lena, admin, "1 hour") for _ in range(3)]
    one = begin_run(mia, admin, "1 minute")
    take_turns(service(admin), 2)
    assert n_forecasts(mia, one) == 1
    assert sum(n_forecasts(lena, run) for run in many) == 1


def test_a_forecast_that_takes_too_long_is_given_up_and_others_go_on(
    lena: Session, mia: Session, admin: Session
) -> None:
    slow, other = begin_run(lena, admin, "1 hour"), begin_run(mia, admin, "1 minute")
    hang = """
    CREATE OR REPLACE FUNCTION easeml.record_forecast(run_id bigint, made jsonb) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF record_forecast.run_id = {} THEN PERFORM pg_sleep(60); END IF;
        INSERT INTO easeml.forecasts (run_id, tenant, cost_so_far)
        SELECT r.run_id, r.tenant, 0 FROM easeml.runs r WHERE r.run_id = record_forecast.run_id;
    END $$
    """
    kept = admin.value("SELECT pg_get_functiondef('easeml.record_forecast'::regproc)")
    admin.execute(hang.format(slow))
    try:
        rests = take_turns(service(admin), 3, Cadence(least_seconds=0.0, most_seconds=0.0, timeout_seconds=4.0))
    finally:
        admin.execute(kept)
    assert n_forecasts(lena, slow) == 0
    assert n_forecasts(mia, other) == 2
    assert max(rests) > LOOK_SECONDS  # rests follow from how long it took


def test_a_long_run_keeps_few_forecasts(lena: Session, admin: Session) -> None:
    run = begin_run(lena, admin, "10 hours")
    admin.execute(
        "INSERT INTO easeml.forecasts (run_id, tenant, made_at, cost_so_far) SELECT %s, 'lena', t, 0"
        " FROM generate_series(now() - interval '9 hours', now(), interval '3 hours') t",
        [run],
    )
    take_turns(service(admin), 5)
    made = lena.values("SELECT now() - made_at FROM easeml.run_forecasts WHERE run_id = %s ORDER BY made_at", run)
    assert len(made) == 5  # every third hour, and the newest


def test_a_run_of_too_many_trials_is_said_to_have_them_by_whoever_forecasts_it(lena: Session, admin: Session) -> None:
    run = begin_run(lena, admin)
    admin.execute(
        "INSERT INTO easeml.trials (run_id, arm_id, tenant, trial_number, architecture, config, max_epochs)"
        " SELECT run_id, arm_id, tenant, 100 + n, architecture, config, max_epochs FROM generate_series(1, 20000) n,"
        " LATERAL (SELECT * FROM easeml.trials WHERE run_id = %s LIMIT 1) t",
        [run],
    )
    take_turns(service(admin))
    said = "SELECT eta_at, note FROM easeml.{} WHERE {} = %s"
    for view, number in (("forecast()", "run"), ("run_forecasts", "run_id")):
        assert lena.rows(said.format(view, number), run) == [{"eta_at": None, "note": "too many trials to forecast"}]


def test_forecasts_belong_to_the_tenant_and_go_with_the_run(lena: Session, mia: Session, admin: Session) -> None:
    run = begin_run(lena, admin)
    take_turns(service(admin))
    assert n_forecasts(lena, run) == 1
    assert n_forecasts(mia, run) == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        lena.execute("SELECT easeml.record_forecast(%s, NULL)", [run])
    lena.execute("SELECT easeml.drop_run(%s)", [run])
    assert admin.value("SELECT count(*) FROM easeml.forecasts WHERE run_id = %s", run) == 0
