"""easeml.set_refresh: a dataset is trained again on new rows, and the new trial answers if it is better on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from easeml_db.postgres.queries import queries

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
SETUP = """
CREATE TABLE sales AS SELECT i AS id, (i % 100) / 10.0 AS x, CASE WHEN i % 100 < 50 THEN 'no' ELSE 'yes' END AS y
FROM generate_series(1, 400) i;
ALTER TABLE sales ADD PRIMARY KEY (id);
SELECT easeml.create_dataset('sales', 'sales', '{x}', 'y', n_partitions => 1);
SELECT easeml.create_dataset('untrained', 'sales', '{x}', 'y', n_partitions => 1);
SELECT easeml.select_models('sales', '{sgd}', n_configs => 2, max_epochs => 2);
"""
# Further rows, which mean the contrary: the former trial is wrong about most of them.
TURNED = """
INSERT INTO sales SELECT i, 2 + (i % 100) / 10.0, CASE WHEN i % 100 < 50 THEN 'yes' ELSE 'no' END
FROM generate_series(401, 2400) i
"""
LAST = "SELECT * FROM easeml.refresh_history WHERE dataset_name = 'sales' ORDER BY refresh_id DESC LIMIT 1"


@pytest.fixture(scope="module")
def shop(module_coordinated: Session) -> Session:
    for statement in SETUP.strip().split(";\n"):
        module_coordinated.execute(statement)
    module_coordinated.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    return module_coordinated


def looked_at(session: Session, outcomes: str, after: int) -> dict[str, Any]:
    """Wait for a later refresh with one of these outcomes, and return it."""
    later = f"SELECT * FROM easeml.refresh_history WHERE refresh_id > {after} AND outcome IN ({outcomes})"
    session.wait_until(f"SELECT EXISTS ({later})")
    return session.rows(f"{later} ORDER BY refresh_id LIMIT 1")[0]


def answering(session: Session) -> int:
    return int(session.value("SELECT trial_id FROM easeml.serving WHERE dataset_name = 'sales'"))


def begun(session: Session, before_trial_id: int) -> int:
    """A refresh whose run has ended; the former trial is deployed, as when it began."""
    session.execute("SELECT easeml.deploy(%s)", [before_trial_id])
    columns = "tenant, dataset_name, outcome, run_id, before_trial_id, reason"
    ended = "SELECT min(run_id) FROM easeml.runs WHERE status = 'finished'"
    values = f"'postgres', 'sales', 'training', ({ended}), {before_trial_id}, ''"
    return int(session.value(f"INSERT INTO easeml.refreshes ({columns}) VALUES ({values}) RETURNING refresh_id"))


def test_the_service_looks_trains_compares_and_lets_the_better_trial_answer(shop: Session) -> None:
    before = answering(shop)
    shop.execute("SELECT easeml.set_refresh('sales', every => '1 day', when_drift => 0.25)")
    assert shop.value("SELECT easeml.advance_refresh('sales')") == "not due"
    known = shop.value("SELECT coalesce(max(refresh_id), 0) FROM easeml.refreshes")
    shop.execute("SELECT easeml.run_refresh('sales')")
    looked = looked_at(shop, "'no drift', 'no new rows', 'training'", known)
    assert (looked["outcome"], looked["run_id"], looked["before_trial_id"]) == ("no drift", None, before)
    assert looked["reason"].startswith("no column has moved by 0.25")

    shop.execute(TURNED)
    shop.execute("SELECT easeml.run_refresh('sales')")
    found = looked_at(shop, "'served', 'not served', 'failed'", looked["refresh_id"])
    assert (found["outcome"], found["drifting"], found["before_trial_id"]) == ("served", "x", before)
    assert found["after_value"] > found["before_value"]
    assert found["n_rows"] >= 30
    assert found["reason"].endswith("the new one answers")
    assert answering(shop) == found["after_trial_id"] != before
    assert shop.value("SELECT max(version) FROM easeml.datasets WHERE dataset_name = 'sales'") == 2
    # The run has the config that was best, and no other.
    configs = "SELECT config FROM easeml.trials WHERE trial_id = %s"
    assert shop.value(configs, found["after_trial_id"]) == shop.value(configs, before)
    # While it trained, the former trial answered.
    history = shop.values("SELECT reason FROM easeml.serving_history ORDER BY serving_id DESC LIMIT 2")
    assert history == ["refreshed", "deployed"]
    assert "better on new rows" in shop.value("SELECT reason FROM easeml.serving WHERE dataset_name = 'sales'")
    (status,) = shop.rows("SELECT * FROM easeml.refresh_status")
    assert (status["last_outcome"], status["problem"], status["when_drift"]) == ("served", None, 0.25)


@pytest.mark.parametrize(("before_value", "after_value"), [(0.9, 0.9), (0.9, 0.8), (0.9, "NaN")])
def test_a_trial_that_is_not_better_does_not_answer(shop: Session, before_value: float, after_value: object) -> None:
    before = answering(shop)
    with shop.transaction(force_rollback=True):
        told = {"refresh_id": begun(shop, before), "before_value": before_value, "after_value": after_value}
        assert shop.value("SELECT easeml.request('finish_refresh', %s)", Jsonb(told | {"n_rows": 40})) == "not served"
        (found,) = shop.rows(LAST)
        assert (found["outcome"], found["n_rows"]) == ("not served", 40)
        assert found["reason"].endswith("the former goes on answering")
        assert answering(shop) == before


def test_trials_that_cannot_be_compared_end_the_refresh(shop: Session) -> None:
    with shop.transaction(force_rollback=True):
        told = {"refresh_id": begun(shop, answering(shop)), "failure": "an input is gone"}
        assert shop.value("SELECT easeml.request('finish_refresh', %s)", Jsonb(told)) == "failed"
        assert shop.rows(LAST)[0]["reason"] == "the trials cannot be compared: an input is gone"


def test_what_was_deployed_by_hand_meanwhile_stays(shop: Session) -> None:
    before = answering(shop)
    other = shop.value("SELECT min(trial_id) FROM easeml.trials WHERE trial_id <> %s", before)
    with shop.transaction(force_rollback=True):
        number = begun(shop, before)
        shop.execute("SELECT easeml.deploy(%s)", [other])
        told = {"refresh_id": number, "before_value": 0.5, "after_value": 0.9, "n_rows": 40}
        assert shop.value("SELECT easeml.request('finish_refresh', %s)", Jsonb(told)) == "not served"
        assert "was changed meanwhile, and stays" in shop.rows(LAST)[0]["reason"]
        assert answering(shop) == other


def test_only_the_trial_that_answers_is_recorded_as_the_former(shop: Session) -> None:
    other = shop.value("SELECT min(trial_id) FROM easeml.trials WHERE trial_id <> %s", answering(shop))
    run_id = shop.value("SELECT max(run_id) FROM easeml.runs")
    told = {"dataset": "sales", "outcome": "training", "run_id": run_id, "before_trial_id": other, "reason": ""}
    with shop.transaction(force_rollback=True):
        shop.execute("SELECT easeml.set_refresh('sales', '1 day')")
        with pytest.raises(psycopg.Error, match="nothing of the kind has happened"):
            shop.execute("SELECT easeml.request('record_refresh', %s)", [Jsonb(told)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP TABLE sales", "there is no table or view public.sales"),
        ("ALTER TABLE sales OWNER TO seller", "is a table of seller, and was a table of postgres"),
        (
            "ALTER TABLE sales RENAME TO old_sales; CREATE VIEW sales AS SELECT * FROM old_sales",
            "is a view of postgres, and was a table of postgres",
        ),
    ],
)
def test_a_source_that_has_become_something_else_is_not_read(shop: Session, change: str, message: str) -> None:
    with shop.transaction(force_rollback=True):
        shop.execute("CREATE ROLE seller")
        shop.execute("SELECT easeml.set_refresh('sales', '1 day')")
        shop.execute("UPDATE easeml.refresh_rules SET next_at = now()")
        shop.execute(change)
        with pytest.raises(psycopg.Error) as refused, shop.transaction():
            shop.execute("SELECT easeml.advance_refresh('sales')")
        assert refused.value.sqlstate == "ML004"
        assert message in (refused.value.diag.message_primary or "")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE sales RENAME TO old_sales; CREATE VIEW sales AS SELECT * FROM old_sales;"
        "ALTER VIEW sales OWNER TO seller",
        "ALTER TABLE sales OWNER TO seller",
        "CREATE TABLE more () INHERITS (sales); ALTER TABLE more OWNER TO seller",
    ],
)
def test_a_superuser_does_not_read_a_relation_of_another_unattended(shop: Session, change: str) -> None:
    with shop.transaction(force_rollback=True):
        shop.execute("CREATE ROLE seller")
        shop.execute(change)
        with pytest.raises(psycopg.Error, match=r"a superuser would read it unattended, got public\..* of seller"):
            shop.execute("SELECT easeml.set_refresh('sales', '1 day')")


def test_a_rule_that_somebody_holds_is_told(shop: Session) -> None:
    shop.execute("SELECT easeml.set_refresh('sales', '1 day')")
    other = shop.again()
    with other.transaction(force_rollback=True):
        other.execute("SELECT easeml.run_refresh('sales')")
        with pytest.raises(psycopg.Error, match="is being refreshed, or an open transaction holds its rule") as refused:
            shop.execute("SELECT easeml.advance_refresh('sales')")
    assert refused.value.sqlstate == "ML016"


def test_what_keeps_the_service_from_looking_is_told(shop: Session) -> None:
    shop.execute("CREATE ROLE silent NOLOGIN IN ROLE easeml_tenant")
    shop.execute("INSERT INTO easeml.tenant_roles (tenant, role) VALUES ('silent', 'silent')")
    shop.execute(
        "INSERT INTO easeml.refresh_rules (tenant, dataset_name, source_kind, every, next_at)"
        " VALUES ('silent', 'd', 'a table of silent', '1 day', now())"
    )
    problem = "SELECT problem FROM easeml.refresh_status WHERE tenant = 'silent'"
    shop.wait_until(f"SELECT ({problem}) IS NOT NULL")
    assert 'role "silent" is not permitted to log in' in shop.value(problem)
    shop.execute("DELETE FROM easeml.refresh_rules WHERE tenant = 'silent'")
    shop.execute("DELETE FROM easeml.tenant_roles WHERE tenant = 'silent'")
    shop.execute("DROP ROLE silent")


def test_the_problem_of_one_tenant_holds_no_rule_of_another(shop: Session) -> None:
    for name in ("rule_a", "rule_b"):
        shop.execute(f"CREATE ROLE {name} NOLOGIN")
        shop.execute("INSERT INTO easeml.tenant_roles (tenant, role) VALUES (%s, %s::regrole)", [name, name])
        rule = "INSERT INTO easeml.refresh_rules (tenant, dataset_name, source_kind, every, next_at)"
        shop.execute(f"{rule} VALUES (%s, 'd', 'a table', '1 day', now() + interval '1 day')", [name])
    values = {
        "problem": "it rains", "rest_seconds": 60, "role": "rule_a", "dataset_name": "d",
        "lease_number": shop.value("SELECT lease_number FROM easeml.coordinator_lease"),
    }  # fmt: skip
    with shop.transaction():
        assert shop.rows(queries("coordinator")["refresh_problem"], **values) == [{"dataset_name": "d"}]
        free = "SELECT tenant::text FROM easeml.refresh_rules WHERE dataset_name = 'd' FOR NO KEY UPDATE SKIP LOCKED"
        assert shop.again().values(free) == ["rule_b"]
    problems = "SELECT tenant::text, problem FROM easeml.refresh_rules WHERE dataset_name = 'd' ORDER BY 1"
    assert [tuple(row.values()) for row in shop.rows(problems)] == [("rule_a", "it rains"), ("rule_b", None)]
    shop.execute("DELETE FROM easeml.refresh_rules WHERE dataset_name = 'd'")
    shop.execute("DELETE FROM easeml.tenant_roles WHERE tenant IN ('rule_a', 'rule_b')")
    shop.execute("DROP ROLE rule_a, rule_b")


def test_what_is_set_is_taken_back_and_goes_with_the_dataset(shop: Session) -> None:
    count = "SELECT count(*) FROM easeml.refresh_status WHERE dataset_name = %s"
    shop.execute("SELECT easeml.set_refresh('sales', when_drift => 0.1)")
    assert shop.rows("SELECT every::text AS every, when_drift FROM easeml.refresh_status") == [
        {"every": "1 day", "when_drift": 0.1}
    ]
    shop.execute("SELECT easeml.set_refresh('sales')")
    assert shop.value(count, "sales") == 0
    with shop.transaction(force_rollback=True):
        shop.execute(
            "INSERT INTO easeml.refreshes (tenant, dataset_name, outcome, reason)"
            " VALUES ('postgres', 'sales', 'training', '')"
        )
        shop.execute("SELECT easeml.set_refresh('sales')")
        assert shop.rows(LAST)[0]["outcome"] == "failed"
    with shop.transaction(force_rollback=True):
        shop.execute("SELECT easeml.set_refresh('sales', '1 hour')")
        shop.execute("SELECT easeml.drop_dataset('sales', cascade => true)")
        assert shop.value(count, "sales") == 0
        assert shop.value("SELECT count(*) FROM easeml.refreshes WHERE dataset_name = 'sales'") == 0


def test_the_shortest_interval_is_accepted_each_time(shop: Session) -> None:
    """It was compared with three readings of the clock, so it was refused about every second time."""
    with shop.transaction(force_rollback=True):
        shop.execute("SELECT easeml.set_refresh('sales', '1 minute') FROM generate_series(1, 100)")
        assert shop.value("SELECT every = '1 minute' FROM easeml.refresh_status WHERE dataset_name = 'sales'")


@pytest.mark.parametrize(
    ("call", "sqlstate", "message"),
    [
        ("set_refresh('sales', '0')", "ML001", "every: expected 1 minute to 1000 years, got 00:00:00"),
        ("set_refresh('sales', '-1 day')", "ML001", "every: expected 1 minute to 1000 years, got -1 days"),
        ("set_refresh('sales', '59 seconds')", "ML001", "every: expected 1 minute to 1000 years, got 00:00:59"),
        ("set_refresh('sales', '360000 days -11999 months')", "ML001", "every: expected 1 minute to 1000 years, got"),
        ("set_refresh('sales', '1 day', 0)", "ML001", "when_drift: expected a positive number, got 0"),
        ("set_refresh('sales', '1 day', 'NaN')", "ML001", "when_drift: expected a positive number, got NaN"),
        ("set_refresh('untrained', '1 day')", "ML010", "untrained"),
        ("set_refresh('nothing', '1 day')", "ML003", "there is no dataset 'nothing'"),
        ("run_refresh('untrained')", "ML003", "dataset 'untrained' of yours is not refreshed"),
        ("advance_refresh('untrained')", "ML003", "dataset 'untrained' of yours is not refreshed"),
        ("request('finish_refresh', '{\"refresh_id\": 0}')", "ML001", "no refresh of yours waits to be finished"),
        ("request('record_refresh', '{\"dataset\": \"untrained\"}')", "ML001", "nothing of the kind has happened"),
    ],
)
def test_bad_arguments_are_refused_in_words(shop: Session, call: str, sqlstate: str, message: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        shop.execute(f"SELECT easeml.{call}")
    assert refused.value.sqlstate == sqlstate
    assert message in (refused.value.diag.message_primary or "")
