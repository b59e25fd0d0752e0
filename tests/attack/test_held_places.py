"""Two tenants hold both places in which the service looks at what is refreshed: a third one's look begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
# A minute, as it is, would be waited for here; without the bound it is half an hour.
PRELUDE = "from easeml_db.postgres.chores import work_slots; work_slots.SHORT_SECONDS = 1.0"
COLLUDING = ("mallory", "minnie")
SETUP = """
CREATE FUNCTION {name}.pause() RETURNS integer LANGUAGE sql VOLATILE AS 'SELECT 0';
CREATE TABLE {name}.rows AS SELECT sin(i) AS x, CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END AS y
    FROM generate_series(1, 60) i;
CREATE VIEW {name}.source AS SELECT x + {name}.pause() AS x, y FROM {name}.rows;
SELECT easeml.create_dataset('d', '{name}.source', '{{x}}', 'y', n_partitions => 1);
SELECT easeml.select_models('d', '{{sgd}}', n_configs => 1, max_epochs => 1);
"""
FOR_EVER = (
    "CREATE OR REPLACE FUNCTION {name}.pause() RETURNS integer LANGUAGE sql VOLATILE AS 'SELECT 0 FROM pg_sleep(1e6)'"
)
AT_WORK = "SELECT count(*) = 2 FROM pg_stat_activity WHERE usename = ANY (%s) AND query LIKE '%%advance_refresh%%'"
LOOKED_AT = "SELECT EXISTS (SELECT FROM easeml.refresh_history WHERE tenant = %s)"
TOLD = "SELECT EXISTS (SELECT FROM easeml.refresh_status WHERE tenant = ANY (%s) AND problem LIKE %s)"


@pytest.fixture(scope="module")
def tenants(module_coordinated: Session) -> dict[str, Session]:
    """Tenants with a view each, of which a trial answers, and which are to be refreshed."""
    tenants = {name: module_coordinated.as_role(name, "easeml_tenant") for name in (*COLLUDING, "victim")}
    for name, session in tenants.items():
        module_coordinated.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
        for statement in SETUP.format(name=name).strip().split(";\n"):
            session.execute(statement)
    module_coordinated.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    for name, session in tenants.items():
        session.execute("SELECT easeml.set_refresh('d', every => '1 day')")
        if name in COLLUDING:
            session.execute(FOR_EVER.format(name=name))
    return tenants


def test_places_that_two_tenants_hold_are_given_on(module_coordinated: Session, tenants: dict[str, Session]) -> None:
    for name in COLLUDING:
        tenants[name].execute("SELECT easeml.run_refresh('d')")
    module_coordinated.wait_until(AT_WORK, list(COLLUDING))
    tenants["victim"].execute("SELECT easeml.run_refresh('d')")
    module_coordinated.wait_until(LOOKED_AT, "victim")
    assert module_coordinated.value("SELECT last_outcome FROM easeml.refresh_status WHERE tenant = 'victim'") == (
        "no new rows"
    )
    # Who was ended is told, and the server has ended what it was doing.
    module_coordinated.wait_until(TOLD, list(COLLUDING), "it took longer than 1 seconds while others waited%")
