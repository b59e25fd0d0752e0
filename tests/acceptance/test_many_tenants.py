"""Several tenants with data of their own on one coordinator, through SQL: who is served, what each of them can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.errors import InvalidArgument
from easeml_loaders import bundled_source, load_table

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

TENANTS = {"amy": "iris", "bea": "wine", "cleo": "breast_cancer"}
CREATE = "SELECT easeml.create_dataset(%s, source => %s, inputs => %s, target => 'label', n_partitions => 2)"
SELECT = """
SELECT easeml.select_models(%s, architectures => %s, procedure => 'grid', max_epochs => %s,
    search_space => '{"linear": {"learning_rate": [0.01, 0.1]}, "mlp": {"hidden_units": [[16], [32]]}}')
"""
THREE = "{gaussian_nb,linear,mlp}"
COLUMNS = """
SELECT array_agg(attname ORDER BY attnum) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND attname NOT IN ('label', 'id')
"""


@pytest.fixture
def tenants(database: Session) -> Iterator[dict[str, Session]]:
    """Sessions of three tenants, each with a table of real rows."""
    sessions = {}
    for role, name in TENANTS.items():
        load_table(database.dsn, bundled_source(name), f"public.{name}")
        sessions[role] = database.as_role(role)
        database.execute("SELECT easeml.create_tenant(%s)", [role])
        database.execute(f"GRANT SELECT ON public.{name} TO {role}")
        columns = database.value(COLUMNS, f"public.{name}")
        sessions[role].execute(CREATE, [name, f"public.{name}", columns])
    yield sessions
    for role in TENANTS:  # roles outlive the database
        database.execute(f"REVOKE easeml_tenant FROM {role}")


def ask(session: Session, dataset: str, max_epochs: int = 2, *, architectures: str = "{linear,mlp}") -> int:
    """Start a run."""
    return int(session.value(SELECT, dataset, architectures, max_epochs))


IS_OVER = "SELECT status IN ('finished', 'failed', 'cancelled') FROM easeml.run_status WHERE run_id = %s"


def check_first_services(database: Session) -> None:
    """Of the runs that took part in a decision, one that had nothing yet was served before any that had something."""
    decisions: dict[int, dict[int, bool]] = {}
    for row in database.rows("SELECT decision_id, run_id, is_chosen FROM easeml.policy_decisions ORDER BY 1"):
        decisions.setdefault(row["decision_id"], {})[row["run_id"]] = row["is_chosen"]
    served: set[int] = set()
    for standings in decisions.values():
        (chosen,) = (run for run, is_chosen in standings.items() if is_chosen)
        assert chosen not in served or set(standings) <= served
        served.add(chosen)


def test_tenants_are_served_in_turn_and_each_sees_why(
    database: Session, tenants: dict[str, Session], coordinator: Callable[..., AbstractContextManager[Any]]
) -> None:
    runs = {role: ask(tenants[role], name) for role, name in TENANTS.items()}
    with coordinator(database) as process:
        database.wait_until("SELECT count(*) >= 3 FROM easeml.arm_openings")
        process.kill()  # nothing that was decided is lost, and nothing decided twice
    with coordinator(database):
        for role, run in runs.items():
            tenants[role].wait_until(IS_OVER, run)

    check_first_services(database)
    opened = database.values("SELECT arm_id FROM easeml.arm_openings")
    assert sorted(opened) == sorted(database.values("SELECT arm_id FROM easeml.arms"))
    arms = database.rows("SELECT * FROM easeml.arm_beliefs")
    assert {arm["status"] for arm in arms} == {"closed"}
    assert all(0 < arm["quality"] <= 1 and arm["cost_seconds"] > 0 and arm["deviation"] < 0.25 for arm in arms)
    best = "SELECT max(validation_metric) FROM easeml.leaderboard WHERE run_id = %s"
    regret = "SELECT best_quality FROM easeml.run_regret WHERE run_id = %s"
    assert all(tenants[role].value(regret, run) == tenants[role].value(best, run) for role, run in runs.items())

    amy = tenants["amy"]
    seen = amy.rows("SELECT * FROM easeml.policy_decisions")
    assert {row["run_id"] for row in seen} == {runs["amy"]}
    assert {row["is_chosen"] for row in seen} == {True, False}
    assert all(row["reason"].startswith("served" if row["is_chosen"] else "waited") for row in seen)
    for view in ("arm_beliefs", "run_regret"):
        assert set(amy.values(f"SELECT run_id FROM easeml.{view}")) == {runs["amy"]}
    for table in ("arm_openings", "arm_opening_candidates", "priors", "posteriors"):
        assert set(amy.values(f"SELECT tenant FROM easeml.{table}")) == {"amy"}


def test_one_joins_late_one_cancels_one_has_a_deadline(
    database: Session, tenants: dict[str, Session], coordinator: Callable[..., AbstractContextManager[Any]]
) -> None:
    with coordinator(database):
        first = ask(tenants["amy"], "iris", 300, architectures=THREE)
        hurried = ask(tenants["cleo"], "breast_cancer", 300, architectures=THREE)
        database.wait_until("SELECT count(*) >= 2 FROM easeml.arm_openings")
        database.execute("SELECT easeml.alter_tenant('cleo', deadline => now() + interval '3 seconds')")
        late = ask(tenants["bea"], "wine", architectures=THREE)
        tenants["amy"].execute("SELECT easeml.cancel(%s)", [first])
        database.wait_until(IS_OVER, hurried)
        database.wait_until(IS_OVER, late)
    states = {row["run_id"]: row["status"] for row in database.rows("SELECT run_id, status FROM easeml.run_status")}
    assert states == {first: "cancelled", hurried: "finished", late: "finished"}
    assert database.values("SELECT run_id FROM easeml.arm_openings").count(late) == 3
    assert database.value("SELECT max(n_epochs_done) < 300 FROM easeml.leaderboard WHERE run_id = %s", hurried)
    overtime = (
        "SELECT r.finished_at >= t.deadline FROM easeml.runs r JOIN easeml.tenants t USING (tenant) WHERE r.run_id = %s"
    )
    assert database.value(overtime, hurried)


def test_the_policy_is_an_administrators_to_change_and_must_exist(
    database: Session, tenants: dict[str, Session]
) -> None:
    database.execute("SELECT easeml.set_policy('ei_rate', prior => 'rbf', seed => 5)")
    used = database.values("SELECT name FROM easeml.policies WHERE is_in_use ORDER BY kind")
    assert used == ["ei_rate", "rbf"]
    with pytest.raises(psycopg.Error, match="there is no tenancy policy 'best'") as refused:
        database.execute("SELECT easeml.set_policy('best')")
    assert refused.value.sqlstate == InvalidArgument.sqlstate
    assert "hybrid" in (refused.value.diag.message_hint or "")
    with pytest.raises(psycopg.Error, match="there is no prior 'flat'"):
        database.execute("SELECT easeml.set_policy('hybrid', prior => 'flat')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        tenants["amy"].execute("SELECT easeml.set_policy('greedy')")
    assert database.values("SELECT name FROM easeml.policies WHERE is_in_use ORDER BY kind") == used
