"""Predictions: whose rights they use, which dataset a name means, what may be sent, and what readers see.

ann owns dataset cls; mallory, a tenant beside her, owns another of that name; ben has no role of easeml at all. They
share one warm session that changes its user, since each fresh one would load PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

TABLE = """
CREATE TABLE mine AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr({first} + i % 3) AS y FROM generate_series(1, 120) i
"""
ANNS, MALLORYS = {"a", "b", "c"}, {"p", "q", "r"}
ASK = "SELECT easeml.predict(%s, '{1}'::float8[])"


@pytest.fixture(scope="module")
def root(module_database: Session, coordinator: Callable[..., AbstractContextManager[Any]]) -> Session:
    """A database in which ann and mallory have trained; nothing trains any more."""
    root = module_database
    root.execute("SELECT easeml.set_slots(1)")
    for name, first in (("ann", 97), ("mallory", 112)):
        tenant = root.as_role(name, "easeml_tenant")
        root.execute(sql.SQL("CREATE SCHEMA {0} AUTHORIZATION {0}").format(sql.Identifier(name)))
        tenant.execute(TABLE.format(first=first))
        tenant.execute("SELECT easeml.create_dataset('cls', 'mine', '{x}', 'y', n_partitions => 2)")
        tenant.execute("SELECT easeml.select_models('cls', '{linear}', n_configs => 2, max_epochs => 2)")
    root.as_role("ben").close()
    root.as_role("rita", "easeml_reader").close()
    root.execute("CREATE SCHEMA ben AUTHORIZATION ben")
    with coordinator(root, "--until-idle") as process:
        process.wait()
    assert set(root.values("SELECT status FROM easeml.runs")) == {"finished"}
    return root


@pytest.fixture
def ask(root: Session, warm: Session) -> Iterator[Callable[[str], AbstractContextManager[Session]]]:
    """`with ask("ben") as session:` a warm session of that role. Grants and audits of the test end with it."""

    @contextmanager
    def as_role(role: str) -> Iterator[Session]:
        warm.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(role)))
        try:
            yield warm
        finally:
            warm.execute("RESET SESSION AUTHORIZATION")

    yield as_role
    for table in ("dataset_grants", "prediction_audits", "prediction_log"):
        root.execute(f"DELETE FROM easeml.{table}")


@pytest.fixture(scope="module")
def warm(root: Session) -> Session:
    return root.again()


def grant(ask: Any, owner: str, **more: bool) -> None:
    """Let ben predict with the dataset cls of an owner."""
    with ask(owner) as session:
        session.execute("SELECT easeml.grant_use('cls', 'ben', serving_only => %s)", [more.get("serving_only", False)])


def refused(session: Session, code: str, statement: str, *values: Any) -> str:
    with pytest.raises(psycopg.Error) as caught:
        session.execute(statement, values or None)  # type: ignore[arg-type]
    assert caught.value.sqlstate == code, caught.value
    return str(caught.value)


# Who may predict


def test_a_grant_alone_suffices_to_predict(ask: Any) -> None:
    grant(ask, "ann")
    with ask("ben") as ben:
        for name in ("cls", "ann.cls"):
            assert ben.value(ASK, name) in ANNS
            assert ben.value("SELECT easeml.predict(%s, '{\"x\": 1}')", name) in ANNS
        ben.execute("CREATE TABLE ben.rows AS SELECT i AS id, i / 9.0 AS x FROM generate_series(1, 9) i")
        assert ben.value("SELECT easeml.predict_table('ann.cls', 'ben.rows', 'ben.answers')") == 9
        assert set(ben.values("SELECT predicted_label FROM ben.answers")) <= ANNS
        ben.execute("DROP TABLE ben.rows, ben.answers")
        assert refused(ben, "42501", "SELECT FROM easeml.datasets")
        assert refused(ben, "42501", "SELECT easeml.deploy(1)")
    with ask("ann") as ann:
        ann.execute("SELECT easeml.revoke_use('cls', 'ben')")
    with ask("ben") as ben:
        refused(ben, "ML003", ASK, "ann.cls")


def test_a_grant_can_be_for_the_serving_trial_only(root: Session, ask: Any) -> None:
    grant(ask, "ann", serving_only=True)
    trials = root.values("SELECT trial_id FROM easeml.leaderboard WHERE tenant = 'ann' ORDER BY rank, trial_id")
    asking = "SELECT serving_trial_id FROM easeml.predict_row('ann.cls', '{\"x\": 1}', %s)"
    with ask("ben") as ben:
        assert ben.value(asking, None) == ben.value(asking, trials[0]) == trials[0]
        for other in (trials[1], 999999):  # whether a trial is there stays unsaid
            assert "may use only the trial that answers" in refused(ben, "ML004", asking, other)
    with ask("ann") as ann:
        ann.execute("SELECT easeml.deploy(%s)", [trials[1]])
    with ask("ben") as ben:
        assert ben.value(asking, trials[1]) == trials[1]
        refused(ben, "ML004", asking, trials[0])
    grant(ask, "ann")
    with ask("ben") as ben:
        assert ben.value(asking, trials[0]) == trials[0]
    with ask("ann") as ann:
        ann.execute("SELECT easeml.undeploy('cls')")


# Which dataset a name means


def meant(root: Session, asker: str, name: str) -> str:
    """The dataset that a name means, as tenant/dataset."""
    row = root.rows("SELECT tenant, dataset_name FROM easeml.usable_dataset(%s, %s, NULL)", asker, name)[0]
    return f"{row['tenant']}/{row['dataset_name']}"


def test_nobody_stops_a_working_call_by_granting_something(ask: Any) -> None:
    grant(ask, "ann")
    with ask("ben") as ben:
        before = [ben.value(ASK, name) for name in ("cls", "ann.cls")]
    grant(ask, "mallory")
    with ask("ann") as ann:  # to change a grant does not make it younger
        ann.execute("SELECT easeml.grant_use('cls', 'ben', serving_only => true)")
        ann.execute("SELECT easeml.grant_use('cls', 'mallory')")
    with ask("ben") as ben:
        assert [ben.value(ASK, name) for name in ("cls", "ann.cls")] == before
        assert ben.value(ASK, "mallory.cls") in MALLORYS
    with ask("mallory") as mallory:
        assert mallory.value(ASK, "cls") in MALLORYS
        assert mallory.value(ASK, "ann.cls") in ANNS


def test_own_names_come_first_then_names_in_full_then_the_oldest_grant(root: Session) -> None:
    with root.transaction(force_rollback=True):
        root.execute("SELECT easeml.register_tenant('ben')")
        root.execute("""
            INSERT INTO easeml.datasets (tenant, dataset_name, version, source, input_columns, target_column, task,
                input_shape, n_outputs, n_partitions, validation_fraction, test_fraction, seed, block_rows, encoder)
            SELECT t, n, 1, '', '{}', '', 'regression', '{}', 1, 1, 0.2, 0.2, 0, 1, '{}'
            FROM (VALUES ('ben', 'own'), ('ben', 'ann.own'), ('ann', 'own'), ('ann', 'x.y'), ('mallory', 'ann.cls'),
                ('mallory', 'x.y'), ('mallory', 'mallory.z')) AS v (t, n)
        """)
        root.execute("""
            INSERT INTO easeml.dataset_grants (tenant, dataset_name, grantee, granted_at)
            SELECT t, n, 'ben', now() + a * interval '1 day' FROM (VALUES ('ann', 'own', 0), ('ann', 'cls', 2),
                ('mallory', 'cls', 3), ('mallory', 'ann.cls', 1), ('ann', 'x.y', 5), ('mallory', 'x.y', 6),
                ('mallory', 'mallory.z', 7)) v (t, n, a)
        """)
        expected = {
            "own": "ben/own",
            "ben.own": "ben/own",
            "ann.own": "ben/ann.own",
            "cls": "ann/cls",
            "ann.cls": "ann/cls",  # though mallory has granted one of that very name before
            "mallory.ann.cls": "mallory/ann.cls",
            "mallory.z": "mallory/mallory.z",
            "x.y": "ann/x.y",
            "mallory.x.y": "mallory/x.y",
        }
        assert {name: meant(root, "ben", name) for name in expected} == expected
    for name in ("ann", "ann.", ".cls", "ann.none", "ben.cls", "a" * 64 + ".cls"):
        refused(root, "ML003", "SELECT easeml.usable_dataset('ben', %s, NULL)", name)


def test_the_time_of_a_grant_is_not_the_tenants_to_choose(ask: Any) -> None:
    with ask("mallory") as mallory:
        forged = (
            "INSERT INTO easeml.dataset_grants (dataset_name, grantee, granted_at) VALUES ('cls', 'ben', '-infinity')"
        )
        refused(mallory, "42501", forged)
        refused(mallory, "42501", "UPDATE easeml.dataset_grants SET granted_at = '-infinity'")


def test_a_name_that_begins_with_a_tenant_never_means_a_dataset_of_another(root: Session, ask: Any) -> None:
    grant(ask, "ann")
    with ask("mallory") as mallory:
        for name in ("ann.cls", "rita.cls"):
            mallory.execute("SELECT easeml.create_dataset(%s, 'mine', '{x}', 'y', n_partitions => 2)", [name])
            mallory.execute("SELECT easeml.grant_use(%s, 'ben')", [name])
    assert meant(root, "ben", "ann.cls") == "ann/cls"
    with ask("ann") as ann:
        ann.execute("SELECT easeml.revoke_use('cls', 'ben')")
    with ask("ben") as ben:
        refused(ben, "ML003", ASK, "ann.cls")
        refused(ben, "ML003", ASK, "rita.cls")  # a role that has no dataset so far
    assert meant(root, "ben", "mallory.ann.cls") == "mallory/ann.cls"
    with ask("mallory") as mallory:
        mallory.execute("SELECT easeml.drop_dataset(n) FROM unnest('{ann.cls,rita.cls}'::text[]) n")


def test_a_grant_that_was_kept_uncommitted_is_no_older_than_one_made_meanwhile(root: Session, ask: Any) -> None:
    early = root.as_role("mallory")
    with early.transaction():
        early.execute("SELECT easeml.grant_use('cls', 'ben')")
        grant(ask, "ann")
        assert meant(root, "ben", "ann.cls") == "ann/cls"
        refused(root, "ML003", "SELECT easeml.usable_dataset('ben', 'cls', NULL)")
    assert meant(root, "ben", "cls") == "mallory/cls"  # a name that meant nothing before
    with ask("mallory") as mallory:
        mallory.execute("SELECT easeml.revoke_use('cls', 'ben')")
    grant(ask, "ann")  # again, and in time
    assert meant(root, "ben", "cls") == "ann/cls"
    with early.transaction():
        early.execute("SELECT easeml.grant_use('cls', 'ben')")
    assert meant(root, "ben", "cls") == "ann/cls"


def test_a_transaction_that_began_early_gives_no_older_grant(root: Session, ask: Any) -> None:
    early = root.as_role("mallory")
    with early.transaction():
        early.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        early.execute("SELECT FROM easeml.datasets")
        grant(ask, "ann")
        assert meant(root, "ben", "cls") == "ann/cls"
        early.execute("SELECT easeml.grant_use('cls', 'ben')")
    assert meant(root, "ben", "cls") == "ann/cls"


def test_the_day_of_the_audit_is_not_the_askers_to_choose(root: Session, ask: Any) -> None:
    with ask("ann") as ann:
        ann.execute("SELECT easeml.set_prediction_audit('cls', true)")
    grant(ask, "ann")
    with ask("ben") as ben:
        ben.execute("SET timezone = '<far>-167'")
        ben.execute(ASK, ["ann.cls"])
        ben.execute("RESET timezone")
    days = root.values("SELECT day = (last_at AT TIME ZONE 'UTC')::date FROM easeml.prediction_log")
    assert days == [True]


# Whose rights a prediction uses


def test_a_definer_function_predicts_as_its_owner_and_as_nobody_else(root: Session, ask: Any) -> None:
    grant(ask, "ann")
    body = "LANGUAGE sql SECURITY DEFINER AS $$ SELECT easeml.predict('{}', '{{1}}'::float8[]) $$"
    with ask("mallory") as mallory:
        mallory.execute("CREATE FUNCTION mallory.ask() RETURNS text " + body.format("ann.cls"))
        mallory.execute("GRANT USAGE ON SCHEMA mallory TO PUBLIC")
    with ask("ann") as ann:
        ann.execute("CREATE FUNCTION ann.ask() RETURNS text " + body.format("cls"))
        ann.execute("GRANT USAGE ON SCHEMA ann TO PUBLIC")
    with ask("ben") as ben:
        assert ben.value(ASK, "ann.cls") in ANNS
        refused(ben, "ML003", "SELECT mallory.ask()")  # mallory may not, though who calls may
        # ... not even in the statement that has just asked by right.
        refused(ben, "ML003", "SELECT easeml.predict('ann.cls', '{1}'::float8[]), mallory.ask()")
        assert ben.value("SELECT ann.ask()") in ANNS
    refused(root, "ML003", "SELECT mallory.ask()")


def test_a_statement_that_changes_its_role_asks_anew(warm: Session, ask: Any) -> None:
    grant(ask, "ann")
    switch = """
        DO $$ BEGIN
            SET LOCAL ROLE ben;
            PERFORM easeml.predict('ann.cls', '{1}'::float8[]);
            SET LOCAL ROLE mallory;
            PERFORM easeml.predict('ann.cls', '{1}'::float8[]);
        END $$
    """
    assert "role mallory may use" in refused(warm, "ML003", switch)


def test_internal_functions_refuse_direct_calls(root: Session, ask: Any) -> None:
    with ask("ann") as ann:
        assert ann.value(ASK, "cls") in ANNS
        failure = ann.value("SELECT failure FROM easeml.open_serving('cls', NULL)")
        assert (failure["sqlstate"], failure["message"]) == ("ML004", "easeml.open_serving cannot be called directly")
        packed = r"SELECT easeml.predict_packed('cls', NULL, 1, '\x00', NULL)"
        assert "cannot be called directly" in refused(ann, "ML004", packed)
        for call in ("serving_trial('ann', 'cls', NULL)", "usable_dataset('ann', 'cls', NULL)",
                     "log_prediction('ann', 'cls', 'ben', 1)"):  # fmt: skip
            refused(ann, "42501", f"SELECT easeml.{call}")


# An immutable function may not write; what it calls may.
INDEXED = """
CREATE TABLE ann.told (what text);
CREATE FUNCTION ann.tell(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO ann.told VALUES (what) RETURNING what';
CREATE FUNCTION ann.asked(x float8) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
    RETURN easeml.predict('ann.cls', ARRAY[x]);
EXCEPTION WHEN OTHERS THEN
    RETURN ann.tell(SQLERRM);
END $$;
CREATE TABLE ann.indexed (x float8) WITH (autovacuum_analyze_threshold = 1);
CREATE INDEX ON ann.indexed (ann.asked(x));
INSERT INTO ann.indexed VALUES (1), (2), (3)
"""


def test_autovacuum_does_not_predict_for_an_index_expression(root: Session, ask: Any) -> None:
    with ask("ann") as ann:
        ann.execute(INDEXED)
        assert ann.values("SELECT what FROM ann.told") == []
    root.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
    root.execute("SELECT pg_reload_conf()")
    try:
        root.wait_until("SELECT EXISTS (SELECT FROM ann.told)")
    finally:
        root.execute("ALTER SYSTEM SET autovacuum_naptime = '1h'")
        root.execute("SELECT pg_reload_conf()")
    (told,) = root.values("SELECT DISTINCT what FROM ann.told")
    assert told == "predictions are answered in sessions of clients only, and this is autovacuum worker"
    root.execute("DROP TABLE ann.indexed, ann.told; DROP FUNCTION ann.asked, ann.tell")


# What may be sent


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("repeat('[', 5000) || repeat(']', 5000)", "nested too deep"),
        ("'{\"x\": ' || repeat('9', 5001) || '}'", "expected a json object of columns, got other text"),
        ("'{\"x\": ' || repeat('9', 4000) || '}'", "input 'x': expected a number, got 9999"),
        ("'{\"x\": \"' || repeat('z', 1000000) || '\"}'", "input 'x': expected a number, got 'zzz"),
        ("'{\"x\": NaN}'", "expected a json object of columns, got other text"),
        ("repeat(' ', 33554433)", "expected at most 33554432 characters of json"),
        ("'{1,2}'", "expected a json object of columns, got other text"),
        ("NULL", "expected a json object of columns, got NULL"),
        ("'[1]'", "expected a json object of columns, got an array"),
    ],
)
def test_json_that_is_huge_deep_or_no_row_is_refused_in_a_line(ask: Any, inputs: str, message: str) -> None:
    with ask("ann") as ann:
        text = refused(ann, "ML009", f"SELECT easeml.predict('cls', {inputs})").partition("CONTEXT")[0]
    assert message in text
    assert len(text) < 400


def test_arrays_of_any_size_are_refused_by_their_size(ask: Any) -> None:
    with ask("ann") as ann:
        assert "expected 1 numbers, got 20000000" in refused(
            ann, "ML009", "SELECT easeml.predict('cls', array_fill(0.0::float8, ARRAY[20000000]))"
        )
        for stored in (
            r"'\x'",
            r"'\xffffffff'",
            r"'\x010000000000000000000000ffffff7f'",
            r"'\x00000000ffffffff00000000'",
        ):
            failure = ann.value(f"SELECT failure FROM easeml.predict_numbers('cls', {stored}, NULL)")
            assert failure["sqlstate"] == "ML009"


def test_a_missing_element_is_missing_however_the_row_is_given(ask: Any) -> None:
    with ask("ann") as ann:
        answers = ann.rows(
            "SELECT (easeml.predict_row('cls', given)).probability"
            " FROM (VALUES ('{NULL}'::float8[]), ('{NaN}'), ('{{NULL}}')) AS v (given)"
            " UNION ALL SELECT (easeml.predict_row('cls', '{\"x\": null}')).probability"
        )
    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)


def test_a_prediction_of_many_rows_lets_a_timeout_through(ask: Any) -> None:
    with ask("ann") as ann:
        ann.execute("CREATE VIEW ann.many AS SELECT i AS id, 1.0 AS x FROM generate_series(1, 3000000) i")
        ann.execute("SET statement_timeout = '400ms'")
        refused(ann, "57014", "SELECT easeml.predict_table('cls', 'ann.many', 'ann.out')")
        refused(ann, "57014", "SELECT count(easeml.predict('cls', ARRAY[x])) FROM ann.many")
        ann.execute("RESET statement_timeout")
        ann.execute("DROP VIEW ann.many")


def test_a_prediction_of_many_rows_is_whole_though_a_timer_looks_for_cancels(ask: Any) -> None:
    with ask("ann") as ann:
        ann.execute("CREATE TABLE ann.many AS SELECT i AS id, i % 9 * 1.0 AS x FROM generate_series(1, 150000) i")
        assert ann.value("SELECT easeml.predict_table('cls', 'ann.many', 'ann.out')") == 150_000
        assert ann.value("SELECT count(DISTINCT (id, predicted_label)) FROM ann.out") == 150_000
        ann.execute("DROP TABLE ann.many, ann.out")


def test_a_session_that_predicts_is_bounded_in_memory(root: Session, warm: Session, ask: Any) -> None:
    with ask("ann") as ann:
        assert ann.value(ASK, "cls") in ANNS
    with warm.transaction(force_rollback=True):
        warm.execute(
            "CREATE FUNCTION pg_temp.data_limit() RETURNS bigint LANGUAGE plpython3u AS"
            " $$import resource; return resource.getrlimit(resource.RLIMIT_DATA)[0]$$"
        )
        assert 2 << 30 <= warm.value("SELECT pg_temp.data_limit()") < 2**62


# What is recorded of predictions


def test_the_owner_can_have_it_recorded_who_predicts(root: Session, ask: Any) -> None:
    grant(ask, "ann")
    log = "SELECT asker::text, n_statements, day = current_date AS is_today FROM easeml.prediction_log ORDER BY asker"
    with ask("ben") as ben:
        ben.execute(ASK, ["ann.cls"])
    with ask("ann") as ann:
        assert ann.rows(log) == []
        ann.execute("SELECT easeml.set_prediction_audit('cls', true)")
        ann.execute("SELECT easeml.predict('cls', ARRAY[x]) FROM mine")
    with ask("ben") as ben:
        for _ in range(2):
            ben.execute(ASK, ["ann.cls"])
        ben.execute("BEGIN READ ONLY")
        assert ben.value(ASK, "ann.cls") in ANNS
        ben.execute("COMMIT")
        refused(ben, "42501", "SELECT FROM easeml.prediction_log")
    expected = [
        {"asker": "ann", "n_statements": 1, "is_today": True},
        {"asker": "ben", "n_statements": 2, "is_today": True},
    ]
    with ask("ann") as ann:
        assert ann.rows(log) == expected
        refused(ann, "42501", "UPDATE easeml.prediction_log SET n_statements = 1")
    with ask("mallory") as mallory:
        assert mallory.rows(log) == []
    with ask("ann") as ann:
        ann.execute("SELECT easeml.set_prediction_audit('cls', false)")
        ann.execute(ASK, ["cls"])
        assert ann.rows(log) == expected


def test_a_recorded_prediction_waits_for_no_other_session(root: Session, ask: Any) -> None:
    with ask("ann") as ann:
        ann.execute("SELECT easeml.set_prediction_audit('cls', true)")
        ann.execute(ASK, ["cls"])
    with root.transaction():
        root.execute("UPDATE easeml.prediction_log SET n_statements = n_statements")
        with ask("ann") as ann:
            assert ann.value(ASK, "cls") in ANNS
    assert root.value("SELECT n_statements FROM easeml.prediction_log") == 1


def test_records_of_predictions_end_after_ninety_days(root: Session, ask: Any) -> None:
    root.execute(
        "INSERT INTO easeml.prediction_log (tenant, dataset_name, day, asker, trial_id)"
        " SELECT 'ann', 'cls', current_date - n, 'ben', 1 FROM unnest(ARRAY[1, 90, 91, 400]) n"
    )
    with ask("ann") as ann:
        ann.execute("SELECT easeml.set_prediction_audit('cls', true)")
        ann.execute(ASK, ["cls"])
        assert ann.values("SELECT current_date - day FROM easeml.prediction_log ORDER BY 1") == [0, 1, 90]


# What readers see


def test_readers_see_no_targets(root: Session, ask: Any) -> None:
    with ask("ann") as ann:
        ann.execute(
            "CREATE TABLE pay AS SELECT i AS id, i % 7 AS x, 1000.0 + i AS salary FROM generate_series(1, 40) i"
        )
        text = refused(ann, "ML002", "SELECT easeml.create_dataset('pay', 'pay', '{x}', 'salary', n_partitions => 7)")
        assert "40 rows are too few for 7 partitions" in text
        assert "at most 6 partitions" in text
        assert ann.value("SELECT easeml.create_dataset('pay', 'pay', '{x}', 'salary', n_partitions => 6)")
        assert ann.value("SELECT min(least(n_train_rows, n_validation_rows, n_test_rows)) FROM easeml.partitions") >= 1
        ann.execute("SELECT easeml.drop_dataset('pay')")
    with ask("rita") as rita:
        for statement in ("statistics FROM easeml.evaluations", "checksum FROM easeml.partitions",
                          "encoder FROM easeml.datasets", "* FROM easeml.evaluations"):  # fmt: skip
            refused(rita, "42501", f"SELECT {statement}")
        rows = rita.rows("SELECT n_rows FROM easeml.training_timeline WHERE kind = 'validate'")
        assert rows
        assert all(row["n_rows"] > 0 for row in rows)
