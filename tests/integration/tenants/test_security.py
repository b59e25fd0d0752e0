"""Who may do what: every object of the schema as every kind of role, and tenants who try to get at one another.

Objects are read from the catalogue, so that new ones are covered (or fail here until somebody decides about them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tests.stored_plans import PLANNED
from tests.stored_tasks import TASKS

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
DENIED = ("42501", "ML003", "ML004")
ROLES = {
    "alice": ["easeml_tenant"],
    "bob": ["easeml_tenant"],
    "rita": ["easeml_reader"],
    "anna": ["easeml_admin"],
    "nobody_": [],
}
TABLE = """
CREATE TABLE {name} AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, (ARRAY['red', 'green', 'blue'])[1 + i % 3] AS y,
    (ARRAY['secret one', 'secret two'])[1 + i % 2] AS c FROM generate_series(1, 120) i
"""


REFRESHED = """
INSERT INTO easeml.refresh_rules (tenant, dataset_name, source_kind, every, next_at)
SELECT DISTINCT tenant, dataset_name, 'a table', interval '1 day', now() + interval '1 day' FROM easeml.datasets;
INSERT INTO easeml.refreshes (tenant, dataset_name, outcome, reason)
SELECT DISTINCT tenant, dataset_name, 'no drift', '' FROM easeml.datasets;
"""


@pytest.fixture(scope="module")
def roles(module_coordinated: Session) -> dict[str, Session]:
    """A session for each kind of role; alice has a dataset and a finished run, bob a dataset of the same name."""
    root = module_coordinated
    sessions = {name: root.as_role(name, *groups) for name, groups in ROLES.items()}
    for name in ("alice", "bob"):
        root.execute(sql.SQL("CREATE SCHEMA {0} AUTHORIZATION {0}").format(sql.Identifier(name)))
        sessions[name].execute(TABLE.format(name="mine"))
    root.execute("SELECT easeml.create_tenant('alice', max_runs => 100)")
    alice, bob = sessions["alice"], sessions["bob"]
    alice.execute("SELECT easeml.create_dataset('colours', 'mine', '{x,c}', 'y', n_partitions => 2)")
    alice.execute("SELECT easeml.create_dataset('numbers', 'mine', '{x}', 'y', n_partitions => 2)")
    alice.execute(
        "SELECT easeml.create_dataset('private', 'mine', '{x}', 'y', n_partitions => 2, placement => 'bound')"
    )
    bob.execute("SELECT easeml.create_dataset('own', 'mine', '{x}', 'y', n_partitions => 2)")
    for dataset in ("colours", "numbers", "private", "private"):
        allocation = "water_filling" if dataset == "numbers" else "hopping"
        alice.execute(
            f"SELECT easeml.select_models('{dataset}', '{{linear}}', n_configs => 2, max_epochs => 1,"
            f" allocation => '{allocation}')"
        )
    root.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    alice.execute("SELECT easeml.drop_run(max(run_id)) FROM easeml.runs")
    alice.execute("SELECT easeml.grant_use('colours', 'bob')")
    alice.execute("SELECT easeml.grant_use('numbers', 'bob')")
    alice.execute("SELECT easeml.deploy(min(trial_id)) FROM easeml.leaderboard WHERE dataset_name = 'colours'")
    alice.execute("SELECT easeml.set_prediction_audit('private', true)")
    alice.execute("SELECT easeml.predict('private', '{1}'::float8[])")
    # These states are too small for chunks; what is asked here is who sees and writes them.
    root.execute("INSERT INTO easeml.checkpoint_chunks SELECT checkpoint_id, tenant, 0, 'x' FROM easeml.checkpoints")
    root.execute("INSERT INTO easeml.checkpoint_copies SELECT checkpoint_id, tenant, 1 FROM easeml.checkpoints")
    root.execute(
        "INSERT INTO easeml.device_profiles (tenant, dataset_id, architecture, device_kind, alpha, beta, c, d,"
        " eps_seconds, n_packed, n_devices, is_bounded, measurements)"
        " SELECT tenant, dataset_id, 'mlp', 'cuda', 1, 1, 1, 1, 0, 1, 1, true, '{}' FROM easeml.datasets"
    )
    root.execute(PLANNED)
    root.execute(TASKS)
    root.execute(REFRESHED)
    return {**sessions, "root": root}


@pytest.fixture
def alice(roles: dict[str, Session]) -> Session:
    return roles["alice"]


@pytest.fixture
def bob(roles: dict[str, Session]) -> Session:
    return roles["bob"]


@pytest.fixture
def root(roles: dict[str, Session]) -> Session:
    return roles["root"]


def relations(database: Session, kind: str) -> list[str]:
    return database.values(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = %s ORDER BY 1",
        kind,
    )


def owned(database: Session) -> list[str]:
    """Tables with an tenant column."""
    return database.values(
        "SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'"
        " WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind = 'r' ORDER BY 1"
    )


def denied(session: Session, statement: str, *values: Any) -> str:
    """The SQLSTATE with which a statement is refused, which must be one of DENIED; nothing of it stays."""
    with pytest.raises(psycopg.Error) as caught, session.transaction(force_rollback=True):
        session.execute(statement, values or None)  # type: ignore[arg-type]
    assert caught.value.sqlstate in DENIED, f"{statement}: {caught.value}"
    return caught.value.sqlstate or ""


# The catalogue


def test_every_table_with_an_owner_is_under_row_level_security(root: Session) -> None:
    secured = root.values(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relrowsecurity ORDER BY 1"
    )
    assert secured == owned(root)
    assert len(secured) >= 12
    for table in secured:
        policies = root.rows("SELECT * FROM pg_policies WHERE schemaname = 'easeml' AND tablename = %s", table)
        own = {p["policyname"]: (p["cmd"], p["qual"]) for p in policies if "easeml_tenant" in p["roles"]}
        if table == "tenant_roles":
            asked = "((role)::oid = (to_regrole(quote_ident((CURRENT_USER)::text)))::oid)"
        else:
            asked = "(tenant = ( SELECT easeml.current_tenant() AS current_tenant))"
        assert own.pop("own_rows") == ("SELECT", asked), table
        assert set(own) == ({"packed_rows"} if table == "blocks" else set()), table


def test_tables_without_an_owner_hold_nothing_of_tenants(root: Session) -> None:
    assert sorted(set(relations(root, "r")) - set(owned(root))) == [
        "coordinator_lease",
        "coordinators",
        "dumps",
        "instance_types",
        "lock_holders",
        "policy_memory",
        "price_lists",
        "provisioner_calls",
        "provisioners",
        "registered_architectures",
        "restored_tables",
        "retention_settings",
        "segments",
        "slots",
        "tenancy",
    ]


def test_security_definer_functions_have_a_fixed_search_path(root: Session) -> None:
    definers = root.rows(
        "SELECT proname::text AS name, proconfig, proowner::regrole::text AS owner FROM pg_proc WHERE"
        " pronamespace = 'easeml'::regnamespace AND"
        " prosecdef ORDER BY 1"
    )
    # Each one is a decision: it takes values only, and never looks at a tenant's relation or expression.
    assert {row["name"] for row in definers} == {
        "advance_task", "analyse_grown", "due_tasks", "finish_packing", "open_node_job", "wanted_node_jobs",
        "end_lock_holders",
        "charge", "open_serving", "check_byte_limit", "create_tenant", "drop_tenant", "keep_hours", "numbers_of",
        "check_example_limit",
        "perform_request", "plan_search_on", "preview_search", "refuse_too_many", "refuse_unpacked", "store_import",
    }  # fmt: skip
    for row in definers:
        assert "search_path=pg_catalog, pg_temp" in row["proconfig"], row["name"]
        # Granting easeml_tenant and taking it back needs a superuser, ending sessions of others does, and ANALYZE needs
        # the tables' owner; nothing else does.
        needs_superuser = row["name"] in ("create_tenant", "drop_tenant", "analyse_grown", "end_lock_holders")
        assert (row["owner"] == "easeml_owner") != needs_superuser, row["name"]


def test_views_read_with_the_rights_of_whoever_asks(root: Session) -> None:
    plain = root.values(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'v'"
        " AND NOT coalesce('security_invoker=true' = ANY (reloptions) OR 'security_invoker=on' = ANY"
        " (reloptions), false)"
    )
    assert plain == ["kept_sizes"]  # its own condition says whose sizes it shows


def test_every_object_has_a_comment(root: Session) -> None:
    silent = root.values("""
        SELECT 'relation ' || oid::regclass FROM pg_class
        WHERE relnamespace = 'easeml'::regnamespace AND relkind IN ('r', 'v') AND obj_description(oid,
            'pg_class') IS NULL
        UNION ALL
        SELECT format('column %s.%s', attrelid::regclass, attname) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'v' AND attnum > 0
            AND col_description(attrelid, attnum) IS NULL
        UNION ALL
        SELECT 'routine ' || oid::regprocedure FROM pg_proc WHERE pronamespace = 'easeml'::regnamespace
            AND obj_description(oid, 'pg_proc') IS NULL
        UNION ALL
        SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname = 'easeml' AND obj_description(oid,
            'pg_namespace') IS NULL
    """)
    assert silent == []


def test_group_roles_cannot_log_in_and_are_no_superusers(root: Session) -> None:
    rows = root.rows("SELECT * FROM pg_roles WHERE rolname LIKE 'easeml\\_%' ORDER BY rolname")
    # Roles belong to the server: where another database of it is a node, there are the roles of nodes, too.
    of_nodes = {
        "easeml_segment",
        "easeml_rows",
        *(r["rolname"] for r in rows if r["rolname"].startswith("easeml_reads_")),
    }
    assert {row["rolname"] for row in rows} - of_nodes == {
        "easeml_admin", "easeml_coordinator", "easeml_owner", "easeml_reader", "easeml_service", "easeml_tenant",
    }  # fmt: skip
    for row in rows:
        assert row["rolcanlogin"] == (row["rolname"] == "easeml_service")
        assert not any(row[right] for right in ("rolsuper", "rolbypassrls", "rolcreaterole", "rolcreatedb"))


# Every object as every role


def test_nobody_gets_at_nothing(root: Session, roles: dict[str, Session]) -> None:
    for name in relations(root, "r") + relations(root, "v"):
        assert denied(roles["nobody_"], f"SELECT FROM easeml.{name}") == "42501"
    assert denied(roles["nobody_"], "SELECT easeml.has_live_coordinator()") == "42501"
    assert denied(roles["nobody_"], "SELECT easeml.select_models('colours')") == "42501"
    assert denied(roles["nobody_"], "SELECT easeml.predict('colours', '{1}'::int[])") == "ML003"


def test_tenants_see_no_row_of_others(root: Session, bob: Session) -> None:
    for table in owned(root):
        assert set(bob.values(f"SELECT DISTINCT tenant::text FROM easeml.{table}")) <= {"bob"}, table
        if table != "events":
            assert root.value(f"SELECT count(*) FROM easeml.{table} WHERE tenant = 'alice'") > 0, table
    foreign = set(root.values("SELECT trial_id FROM easeml.trials WHERE tenant = 'alice'"))
    assert foreign
    for view in relations(root, "v"):
        rows = bob.rows(f"SELECT * FROM easeml.{view}")
        assert all(row.get("tenant", "bob") == "bob" for row in rows), view
        assert not foreign & {row.get("trial_id") for row in rows}, view


def test_tenants_can_neither_change_nor_delete_rows_of_others(root: Session, bob: Session) -> None:
    for table in relations(root, "r"):
        before = root.rows(f"SELECT md5(t::text) FROM easeml.{table} t ORDER BY 1") if table in owned(root) else None
        columns = root.values(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND attidentity = '' AND attgenerated = ''",
            f"easeml.{table}",
        )
        for column in columns:
            harmless(bob, f"UPDATE easeml.{table} SET {column} = {column} WHERE true")
        harmless(bob, f"DELETE FROM easeml.{table}")
        denied(bob, f"TRUNCATE easeml.{table} CASCADE")
        if before is not None:
            assert root.rows(f"SELECT md5(t::text) FROM easeml.{table} t ORDER BY 1") == before


def harmless(session: Session, statement: str) -> None:
    """Run a statement that may be refused, and may touch rows of one's own only (rolled back)."""
    try:
        with session.transaction(force_rollback=True):
            session.execute(statement + " RETURNING *" if "DELETE" not in statement else statement)  # type: ignore[arg-type]
    except psycopg.errors.InsufficientPrivilege:
        return


def test_tenants_write_nothing_that_is_the_coordinators(root: Session, alice: Session) -> None:
    for table in (
        "checkpoints",
        "checkpoint_chunks",
        "training_units",
        "evaluations",
        "epoch_metrics",
        "metric_values",
        "slots",
        "segments",
        "coordinators",
        "coordinator_lease",
        "tenants",
        "tenant_usage",
    ):
        assert denied(alice, f"INSERT INTO easeml.{table} DEFAULT VALUES") == "42501"
        assert denied(alice, f"DELETE FROM easeml.{table}") == "42501"
    for column in ("checkpoint_id", "best_checkpoint_id", "best_metric_value", "best_epoch", "n_steps_done", "config"):
        assert denied(alice, f"UPDATE easeml.trials SET {column} = NULL") == "42501"


def test_readers_read_results_and_no_data(root: Session, roles: dict[str, Session]) -> None:
    rita = roles["rita"]
    with_rows = {"version_blocks", "node_job_status"}
    for view in with_rows:
        assert denied(rita, f"SELECT FROM easeml.{view}") == "42501"
    for view in set(relations(root, "v")) - with_rows:
        assert len(rita.rows(f"SELECT * FROM easeml.{view}")) == root.value(f"SELECT count(*) FROM easeml.{view}"), view
    for table in ("blocks", "checkpoints", "checkpoint_chunks", "prediction_audits", "prediction_log", "node_jobs"):
        assert denied(rita, f"SELECT FROM easeml.{table}") == "42501"
    for table, column in (("datasets", "encoder"), ("evaluations", "statistics"), ("partitions", "checksum")):
        assert denied(rita, f"SELECT {column} FROM easeml.{table}") == "42501"
    for table in relations(root, "r"):
        assert denied(rita, f"DELETE FROM easeml.{table}") == "42501"
        assert denied(rita, f"INSERT INTO easeml.{table} DEFAULT VALUES") == "42501"
    assert denied(rita, "SELECT easeml.predict('colours', '{}'::jsonb)") == "ML003"


def test_administrators_do_everything_for_everybody(root: Session, roles: dict[str, Session]) -> None:
    anna = roles["anna"]
    for table in relations(root, "r"):
        assert anna.value(f"SELECT count(*) FROM easeml.{table}") == root.value(f"SELECT count(*) FROM easeml.{table}")
    run_id = roles["alice"].value(
        "SELECT easeml.select_models('colours', '{linear}', n_configs => 1, max_epochs => 100000)"
    )
    anna.execute("SELECT easeml.cancel(%s)", [run_id])
    anna.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    assert root.value("SELECT count(*) FROM easeml.runs WHERE run_id = %s", run_id) == 0


# Bob and the things of alice


def test_bob_cannot_touch_runs_and_data_sets_of_alice(root: Session, alice: Session, bob: Session) -> None:
    run_id = alice.value("SELECT min(run_id) FROM easeml.runs")
    trial_id = alice.value("SELECT min(trial_id) FROM easeml.trials")
    for call in (f"cancel({run_id})", f"resume({run_id})", f"drop_run({run_id})", f"deploy({trial_id})"):
        assert denied(bob, f"SELECT easeml.{call}") == "ML003"
    for name in ("colours", "private"):
        for call in (
            "drop_dataset({})", "drop_dataset({}, true)", "refresh_dataset({})", "select_models({})",
            "grant_use({}, 'bob')", "revoke_use({}, 'bob')", "undeploy({})",
        ):  # fmt: skip
            assert denied(bob, f"SELECT easeml.{call}".format(repr(name))) == "ML003"
    assert denied(bob, f"CALL easeml.wait({run_id})") == "ML003"
    assert denied(bob, "SELECT easeml.create_dataset('theft', 'alice.mine', '{x}', 'y')") == "42501"


def test_bob_cannot_predict_with_what_alice_keeps(alice: Session, bob: Session) -> None:
    trial_id = alice.value("SELECT min(trial_id) FROM easeml.leaderboard WHERE dataset_name = 'private'")
    for named in ("", f", {trial_id}"):
        assert denied(bob, f"SELECT easeml.predict('private', '{{1}}'::int[]{named})") == "ML003"
        assert denied(bob, f"SELECT easeml.predict('own', '{{1}}'::int[]{named or ', 1'})") == "ML003"
        assert denied(bob, f"SELECT easeml.predict('numbers', '{{1}}'::int[]{named or ', 999'})") == "ML003"
        assert denied(bob, f"SELECT easeml.predict_table('private', 'mine', 'stolen'{named})") == "ML003"


def test_a_session_that_changes_roles_keeps_no_rights(root: Session) -> None:
    session = root.again()
    session.execute("SET SESSION AUTHORIZATION alice")
    call = "SELECT easeml.predict('private', '{1}'::int[])"
    assert session.value(call) in ("red", "green", "blue")
    session.execute("SET SESSION AUTHORIZATION bob")
    assert denied(session, call) == "ML003"
    session.execute("RESET SESSION AUTHORIZATION")
    session.execute("SET ROLE alice")
    assert session.value(call) in ("red", "green", "blue")
    session.execute("SET ROLE bob")
    assert denied(session, call) == "ML003"


def test_grant_lets_bob_predict_and_nothing_more(alice: Session, bob: Session) -> None:
    for call in (
        "predict('numbers', '{1}'::float8[])", "predict('colours', to_jsonb(m))",
        "predict_value('numbers', to_jsonb(m))", "predict_row('numbers', '{1}'::float8[])",
        "predict_row('colours', to_jsonb(m))",
    ):  # fmt: skip
        theirs = bob.rows(f"SELECT easeml.{call} AS answer FROM mine m ORDER BY id LIMIT 9")
        own = alice.rows(f"SELECT easeml.{call} AS answer FROM mine m ORDER BY id LIMIT 9")
        assert theirs == own
    with bob.transaction(force_rollback=True):
        assert bob.value("SELECT easeml.predict_table('colours', 'mine', 'answers')") == 120
        assert bob.value("SELECT relowner::regrole::text FROM pg_class WHERE oid = 'answers'::regclass") == "bob"
    assert denied(bob, "SELECT easeml.predict_table('colours', 'alice.mine', 'answers')") == "42501"
    assert bob.values("SELECT dataset_name FROM easeml.dataset_info") == ["own"]
    for view in ("leaderboard", "learning_curves", "run_status", "training_timeline", "run_events"):
        assert bob.rows(f"SELECT * FROM easeml.{view}") == []


def test_revoked_use_ends_at_once_even_in_a_warm_session(alice: Session, bob: Session) -> None:
    assert bob.value("SELECT easeml.predict('numbers', '{1}'::float8[])")
    alice.execute("SELECT easeml.revoke_use('numbers', 'bob')")
    assert denied(bob, "SELECT easeml.predict('numbers', '{1}'::float8[])") == "ML003"
    alice.execute("SELECT easeml.grant_use('numbers', 'bob')")
    assert bob.value("SELECT easeml.predict('numbers', '{1}'::float8[])")


def test_of_several_grants_of_a_name_the_oldest_answers_and_a_warning_lists_them(
    root: Session, alice: Session, bob: Session
) -> None:
    carol, dave = root.as_role("carol", "easeml_tenant"), root.as_role("dave")
    root.execute("CREATE SCHEMA carol AUTHORIZATION carol")
    carol.execute(TABLE.format(name="mine"))
    carol.execute("SELECT easeml.create_dataset('numbers', 'mine', '{x}', 'y')")
    for tenant in (alice, carol):
        tenant.execute("SELECT easeml.grant_use('numbers', 'dave')")
    warnings: list[tuple[str | None, str | None]] = []
    dave.add_notice_handler(lambda told: warnings.append((told.message_primary, told.message_hint)))
    assert dave.value("SELECT easeml.predict('numbers', '{1}'::float8[])") in ("red", "green", "blue")
    assert warnings == [
        (
            "several tenants let you use a dataset 'numbers'; alice.numbers answers, by the oldest grant",
            "Name the one that you mean: 'alice.numbers', 'carol.numbers'.",
        )
    ]
    assert dave.value("SELECT easeml.predict('alice.numbers', '{1}'::float8[])") in ("red", "green", "blue")
    trial_id = alice.value("SELECT min(trial_id) FROM easeml.leaderboard WHERE dataset_name = 'numbers'")
    assert dave.value("SELECT easeml.predict('numbers', '{1}'::float8[], %s)", trial_id) in ("red", "green", "blue")
    assert len(warnings) == 1
    with pytest.raises(psycopg.Error, match="no trained trial yet"):
        dave.execute("SELECT easeml.predict('carol.numbers', '{1}'::float8[])")


def test_bob_cannot_hang_rows_on_parents_of_alice(root: Session, alice: Session, bob: Session) -> None:
    dataset_id, run_id, arm_id, trial_id = (
        alice.value(f"SELECT min({column}) FROM easeml.{table}")
        for column, table in (
            ("dataset_id", "datasets"),
            ("run_id", "runs"),
            ("arm_id", "arms"),
            ("trial_id", "trials"),
        )
    )
    inserts = [
        f"partitions (tenant, dataset_id, partition_number, n_train_rows, n_validation_rows, n_test_rows, n_bytes,"
        f" checksum) VALUES (%s, {dataset_id}, 77, 1, 1, 1, 1, 0)",
        f"blocks (tenant, dataset_id, split, partition_number, block_number, n_rows, inputs, targets)"
        f" VALUES (%s, {dataset_id}, 'train', 0, 99, 1, '', '')",
        f"runs (tenant, dataset_id, procedure, architectures, n_configs, max_epochs, metric, is_higher_better, seed)"
        f" VALUES (%s, {dataset_id}, 'random', '{{linear}}', 1, 1, 'accuracy', true, 0)",
        f"arms (tenant, run_id, architecture) VALUES (%s, {run_id}, 'mlp')",
        f"events (tenant, run_id, kind, message) VALUES (%s, {run_id}, 'x', 'x')",
        f"deployments (tenant, dataset_name, trial_id) VALUES (%s, 'colours2', {trial_id})",
    ]
    for insert in inserts:
        for tenant in ("alice", "bob"):
            assert denied(bob, f"INSERT INTO easeml.{insert}", tenant) == "42501"
    for insert in (
        f"trials (run_id, arm_id, trial_number, architecture, config, max_epochs) VALUES ({run_id}, {arm_id}, 99,"
        " 'linear', '{}', 1)",
        "dataset_grants (tenant, dataset_name, grantee) VALUES ('alice', 'private', 'bob'::regrole)",
    ):
        assert denied(bob, f"INSERT INTO easeml.{insert}") == "42501"


def test_bob_cannot_have_a_trial_served_from_a_state_of_alice(root: Session, alice: Session, bob: Session) -> None:
    stolen = alice.value("SELECT best_checkpoint_id FROM easeml.trials JOIN easeml.runs USING (run_id) JOIN"
                         " easeml.datasets USING (dataset_id)"
                         " WHERE dataset_name = 'private' LIMIT 1")  # fmt: skip
    run_id = bob.value("SELECT easeml.select_models('own', '{linear}', n_configs => 1, max_epochs => 1000000)")
    bob.execute("SELECT easeml.cancel(%s)", [run_id])
    arm_id = bob.value("SELECT min(arm_id) FROM easeml.arms WHERE run_id = %s", run_id)
    forged = (
        "INSERT INTO easeml.trials (run_id, arm_id, trial_number, architecture, config, max_epochs, {column})"
        f" VALUES ({run_id}, {arm_id}, 99, 'linear', '{{{{}}}}', 1, {stolen}) RETURNING trial_id"
    )
    for column in ("checkpoint_id", "best_checkpoint_id"):
        assert denied(bob, forged.format(column=column)) == "42501"
    # Even a trial that names it (here by a superuser's hand) does not get it.
    trial_id = root.value(
        "UPDATE easeml.trials SET best_checkpoint_id = %s WHERE run_id = %s RETURNING trial_id", stolen, run_id
    )
    with pytest.raises(psycopg.Error) as refused:
        bob.execute("SELECT easeml.predict('own', '{1}'::int[], %s)", [trial_id])
    assert refused.value.sqlstate == "ML005"
    bob.execute("SELECT easeml.drop_run(%s, force => true)", [run_id])
    assert root.value("SELECT count(*) FROM easeml.checkpoints WHERE checkpoint_id = %s", stolen) == 1


def test_tenants_cannot_act_as_a_slot(bob: Session) -> None:
    for call in ("train_unit('{}')", "evaluate_unit('{}')", "train_gang('{}')", "evaluate_gang('{}')"):
        assert denied(bob, f"CALL easeml.{call}") == "42501"
    assert denied(bob, "SELECT easeml.set_slots(1)") == "42501"
    assert denied(bob, "SELECT easeml.python_facts()") == "42501"
    assert denied(bob, "SELECT easeml.warm_up()") == "42501"
    assert denied(bob, "SET ROLE easeml_coordinator") == "42501"


SPY = """
CREATE FUNCTION {schema}.spy(value float8) RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.seen VALUES (current_user);
    BEGIN
        EXECUTE 'ALTER ROLE {schema} SUPERUSER';
        INSERT INTO {schema}.seen VALUES ('became superuser');
    EXCEPTION WHEN insufficient_privilege THEN NULL;
    END;
    BEGIN
        INSERT INTO {schema}.seen SELECT 'read ' || count(*) FROM easeml.blocks
            WHERE tenant <> '{schema}' HAVING count(*) > 0;
    END;
    RETURN value;
END $$
"""


def test_code_in_a_source_runs_with_the_rights_of_its_reader(root: Session, bob: Session) -> None:
    bob.execute("CREATE TABLE bob.seen (who text)")
    bob.execute(SPY.format(schema="bob"))
    bob.execute("CREATE VIEW bob.trap AS SELECT id, bob.spy(x) AS x, y, c FROM bob.mine")
    bob.execute("SELECT easeml.create_dataset('trap', 'trap', '{x}', 'y')")
    bob.execute("SELECT easeml.refresh_dataset('trap')")
    assert bob.value("SELECT easeml.predict_table('colours', 'trap', 'trapped')") == 120
    bob.execute("SELECT easeml.predict('colours', to_jsonb(t)) FROM bob.trap t")
    bob.execute("SELECT easeml.drop_dataset('trap')")
    assert bob.values("SELECT DISTINCT who FROM bob.seen") == ["bob"]
    assert not root.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'bob'")


def test_search_path_and_temporary_objects_change_nothing_of_prediction(root: Session, bob: Session) -> None:
    session = bob.again()
    session.execute("CREATE TEMPORARY TABLE seen (who text)")
    for name, arguments in (("format", "text, VARIADIC text[]"), ("count", "bigint")):
        session.execute(
            f"CREATE FUNCTION pg_temp.{name}({arguments}) RETURNS text LANGUAGE sql AS 'INSERT INTO"
            f" pg_temp.seen VALUES (current_user) RETURNING who'"
        )
    session.execute("CREATE TEMPORARY TABLE datasets (tenant name, dataset_name text)")
    session.execute("INSERT INTO datasets VALUES ('bob', 'private')")
    session.execute("SET search_path = pg_temp, bob, pg_catalog")
    assert denied(session, "SELECT easeml.predict('private', '{1}'::int[])") == "ML003"
    assert session.value("SELECT easeml.predict('numbers', '{1}'::int[])") in ("red", "green", "blue")
    assert session.values("SELECT who FROM pg_temp.seen WHERE who <> 'bob'") == []
