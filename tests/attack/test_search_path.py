"""Nobody's schema decides what easeml's SQL means: names are found in pg_catalog, whoever calls under whatever path."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from easeml_db.local.server import Embedded
from easeml_db.postgres.extension_scripts import sources
from easeml_loaders import bundled_source, column_types, load_table

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SQL = Path(__file__).resolve().parents[2] / "sql"
# They mean the caller's own names, and qualify everything else; byteasend calls nothing.
UNPINNED = {
    "array_bytes", "bytes_as_numbers", "create_dataset", "drift", "evaluate_on_nodes", "find_output", "find_source",
    "drift_on_nodes", "explain_on_nodes", "explain_row_on_nodes", "predict_on_nodes", "predict_table",
}  # fmt: skip
# They are inlined; names in their bodies were looked up when they were made, for these are no literals.
PARSED = {"rank_key", "rank_value"}
# Procedures that commit cannot have a setting: their bodies set it first, and after each commit; one that looks up no
# name needs none.
COMMITTING = {
    "ask_nodes", "commit_first", "evaluate_batch", "evaluate_gang", "evaluate_round", "evaluate_unit",
    "make_forecast_apart", "pilot_unit", "replay", "replay_units", "rest", "train_batch", "train_gang", "train_round",
    "train_unit", "wait", "wait_dataset",
}  # fmt: skip
PINNED = "SET search_path = pg_catalog, pg_temp"
# What pgspot warns of: the functions above that it can read. Of each it is shown below that no trap catches it.
WARNINGS = {
    f"PS005: Function without explicit search_path: easeml.{name}"
    for name in (
        "find_source",
        "create_dataset",
        "drift",
        "wait",
        "wait_dataset",
        "ask_nodes",
        "evaluate_on_nodes",
        "predict_on_nodes",
        "explain_on_nodes",
        "explain_row_on_nodes",
        "drift_on_nodes",
        "find_output",
        "predict_table",
        "replay",
    )
}
# What it calls commits, too; it names everything with its schema, and its operator.
ON_NODES = {"PS005: Function without explicit search_path: easeml_segment.unit_on_worker"}
# Functions of the server that easeml's SQL names are there once more in mallory's schema, for arguments of any type.
TRAPS = """
CREATE SCHEMA mallory AUTHORIZATION mallory;
CREATE TABLE mallory.seen (caught text, by_role text);
GRANT ALL ON mallory.seen TO PUBLIC;
GRANT USAGE ON SCHEMA mallory TO PUBLIC;
DO $traps$
DECLARE
    trap record;
BEGIN
    FOR trap IN
        SELECT DISTINCT c.proname AS name, t.arguments FROM pg_proc c,
            unnest(ARRAY['integer', 'text', 'anyelement', 'anyelement, anyelement', 'text, text', '']) t(arguments)
        WHERE c.pronamespace = 'pg_catalog'::regnamespace AND c.prokind = 'f' AND c.proname ~ '^[a-z_0-9]+$'
            AND EXISTS (SELECT FROM pg_proc e
                WHERE e.pronamespace = 'easeml'::regnamespace AND strpos(e.prosrc, c.proname || '(') > 0)
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION mallory.%I(%s) RETURNS text LANGUAGE plpgsql AS %L', trap.name,
                trap.arguments, format('BEGIN INSERT INTO mallory.seen VALUES (%L, current_user);'
                ' ALTER ROLE mallory SUPERUSER; RETURN NULL; END', trap.name));
        EXCEPTION WHEN OTHERS THEN NULL;  -- words that SQL reserves
        END;
    END LOOP;
END
$traps$;
CREATE FUNCTION mallory.trapped(a text, b text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN INSERT INTO mallory.seen VALUES ('operator', current_user); ALTER ROLE mallory SUPERUSER; RETURN true; END $$;
CREATE OPERATOR mallory.= (LEFTARG = text, RIGHTARG = text, PROCEDURE = mallory.trapped);
CREATE OPERATOR mallory.<> (LEFTARG = text, RIGHTARG = text, PROCEDURE = mallory.trapped);
"""
# What a loader calls; arguments that need no conversion are preferred to the server's own function.
TRAPS_OF_LOADING = """
CREATE SCHEMA mallory;
CREATE TABLE mallory.seen (caught text);
CREATE FUNCTION mallory.parse_ident(text) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN INSERT INTO mallory.seen VALUES ('parse_ident'); RETURN ARRAY[$1]; END $$;
CREATE FUNCTION mallory.format_type(oid, text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN INSERT INTO mallory.seen VALUES ('format_type'); RETURN 'text'; END $$;
CREATE FUNCTION mallory.equals(name, text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN INSERT INTO mallory.seen VALUES ('='); RETURN true; END $$;
CREATE OPERATOR mallory.= (LEFTARG = name, RIGHTARG = text, PROCEDURE = mallory.equals);
"""
UNIT = (
    '{"trial_id": 0, "step": 0, "kind": "train", "epoch": 1, "position": 0, "partition_number": 0, "seed": 0,'
    ' "slot_id": 1, "lease_number": 0, "attempt": 1}'
)
# Everything that an administrator, the service or a tenant calls, in an order in which it works.
CALLS = [
    "SELECT easeml.create_dataset('d', 'public.points', '{x}', 'y', n_partitions => 2, placement => 'bound')",
    "SELECT easeml.refresh_dataset('d')",
    "SELECT * FROM easeml.drift('d', 'public.points')",
    "SELECT easeml.replicate_dataset('d', 1)",
    "SELECT easeml.preview_procedure('asha', dataset => 'd')",
    "SELECT easeml.plan_goal(interval '1 hour', 1, 0.9), easeml.known_times(easeml.find_dataset('d'), 'asha')",
    "SELECT easeml.profile_dataset('d', '{linear}', max_epochs => 1)",
    """SELECT easeml.create_price_list('p', '[{"instance_type": "i", "n_slots": 1, "price_per_hour": 1}]')""",
    "SELECT easeml.create_provisioner('m', 'p', '{/a}', '{/a}', '{/a}')",
    "SELECT easeml.limit_provisioner('m', 3)",
    "SELECT easeml.drop_provisioner('m')",
    "SELECT easeml.drop_price_list('p')",
    "SELECT * FROM easeml.prices",
    "SELECT easeml.select_models('d', '{linear}', n_configs => 1)",
    "SELECT easeml.grant_use('d', 'easeml_reader')",
    "SELECT easeml.revoke_use('d', 'easeml_reader')",
    "SELECT easeml.set_prediction_audit('d', true)",
    "SELECT easeml.cancel(run_id) FROM easeml.runs",
    "SELECT easeml.resume(run_id) FROM easeml.runs",
    "SELECT easeml.add_slots(1)",
    "SELECT easeml.drain_slot(3)",
    "SELECT easeml.resume_slot(3)",
    "SELECT easeml.remove_slot(3)",
    "SELECT easeml.add_segment('s')",
    "SELECT easeml.drain_segment('s')",
    "SELECT easeml.resume_segment('s')",
    "SELECT easeml.remove_segment('s')",
    "SELECT easeml.install_greenplum_views(host => 'control'), easeml.remove_greenplum_views()",
    "SELECT easeml.set_slots(2)",
    "SELECT easeml.create_tenant('trudy', max_runs => 1)",
    "SELECT easeml.alter_tenant('trudy', weight => 2)",
    "SELECT easeml.drop_tenant('trudy')",
    "SELECT easeml.set_policy('hybrid')",
    "SELECT easeml.register_architecture('m', 'easeml_experiments.mixer:build', '{\"Input = [8,8,1] Output = [2]\"}',"
    """ '[{"name": "n_blocks", "kind": "integer", "default": 1, "low": 1, "high": 2},"""
    """ {"name": "n_channels", "kind": "integer", "default": 4, "low": 1, "high": 8}]')""",
    "SELECT easeml.withdraw_architecture('m')",
    "SELECT easeml.python_facts()",
    *(
        f"SELECT * FROM easeml.{view}"
        for view in (
            "tenant_status",
            "instance_status",
            "plan_accuracy",
            "plan_revisions",
            "run_status",
            "leaderboard",
            "slot_status",
            "run_regret",
            "dataset_info",
        )
    ),
    "CALL easeml.wait(1, 0.1)",
    "CALL easeml.replay(1)",
    f"CALL easeml.train_unit('{UNIT}')",
    "SELECT easeml.set_refresh('d', '1 day')",
    "SELECT easeml.run_refresh('d')",
    "SELECT easeml.advance_refresh('d')",
    "SELECT easeml.predict('d', '{\"x\": 1}'::jsonb)",
    "SELECT easeml.predict_table('d', 'public.points', 'public.answers')",
    "SELECT easeml.drop_run(run_id, force => true) FROM easeml.runs",
    "SELECT easeml.drop_dataset('d')",
]


@pytest.fixture(scope="module")
def trapped(module_database: Session) -> Iterator[Session]:
    """A superuser's session whose search_path begins with mallory's schema."""
    root = module_database
    root.as_role("mallory", "easeml_tenant")
    root.as_role("trudy")
    root.execute("CREATE TABLE points AS SELECT i * 0.1 AS x, i % 2 AS y FROM generate_series(1, 40) i")
    root.execute(TRAPS)
    session = root.again()
    session.execute("SET search_path = mallory, pg_catalog, public")
    yield session
    root.execute("DROP SCHEMA mallory CASCADE")


def test_the_traps_work(trapped: Session) -> None:
    with trapped.transaction(force_rollback=True):
        trapped.execute("SELECT quote_ident('x')")
        assert trapped.value("SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = 'mallory'::pg_catalog.name")


def sqlstate_of(session: Session, call: str) -> str:
    """How a statement ended."""
    try:
        session.execute(call.encode())
    except psycopg.Error as error:
        return error.sqlstate or "none"
    return "00000"


def test_a_superuser_runs_into_no_trap(trapped: Session) -> None:
    for call in CALLS:
        # No run trains here, so some have nothing to do; but they had to get as far as saying so.
        assert sqlstate_of(trapped, call)[:2] in ("00", "ML"), call
        assert trapped.rows("SELECT * FROM mallory.seen") == [], call
    assert not trapped.value("SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = 'mallory'::pg_catalog.name")


def test_every_routine_has_a_search_path_of_its_own(module_database: Session) -> None:
    unpinned = module_database.values(
        "SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'easeml'::regnamespace"
        " AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)"
    )
    assert set(unpinned) == UNPINNED | PARSED | COMMITTING


def test_a_schema_that_somebody_else_made_or_filled_is_not_taken(dsn: str, module_database: Session) -> None:
    open_session = type(module_database).open
    module_database.as_role("squatter")
    for before in (
        "CREATE SCHEMA easeml AUTHORIZATION squatter",
        "CREATE SCHEMA easeml; GRANT CREATE ON SCHEMA easeml TO squatter",
        "CREATE SCHEMA easeml; GRANT CREATE ON SCHEMA easeml TO PUBLIC",
        "CREATE SCHEMA easeml; CREATE FUNCTION easeml.fail(text, varchar) RETURNS void LANGUAGE sql AS ''",
    ):
        with open_session(dsn) as session:
            session.execute(before.encode())
            with pytest.raises(psycopg.Error, match="schema easeml is there already") as refused:
                session.execute("CREATE EXTENSION easeml CASCADE")
            assert refused.value.sqlstate == "ML004"
            session.execute("DROP SCHEMA easeml CASCADE")
    with open_session(dsn) as session:  # as a dump does it
        session.execute("CREATE SCHEMA easeml; CREATE EXTENSION easeml SCHEMA easeml CASCADE")


@pytest.mark.parametrize(("extension", "warnings"), [("easeml", WARNINGS), ("easeml_segment", ON_NODES)])
def test_pgspot_finds_no_error_and_only_the_warnings_that_are_explained(
    tmp_path: Path, extension: str, warnings: set[str]
) -> None:
    built = tmp_path / "easeml.sql"
    # In a schema that is there, CREATE OR REPLACE could take somebody's object: install.sql checks that it is empty.
    text = f"CREATE SCHEMA {extension};\n" + "\n".join(sources(SQL, extension).values())
    # pgspot forgets the quotes of a parameter's name, and stops there; so it does where a body is no literal.
    text = text.replace('OUT "precision"', "OUT precise")
    text = re.sub(r"\nRETURN (.*?);\n", rf" {PINNED} AS $$ SELECT \1 $$;\n", text, flags=re.DOTALL)
    built.write_text(text, encoding="utf-8")
    program = Path(sys.executable).with_name("pgspot")
    command = [program, "--ignore-lang", "plpython3u", built]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    assert "Errors: 0" in told[-2] + told[-1]
    assert {line.partition("(")[0] for line in told if line.startswith("PS")} == warnings
    assert not [line for line in told if "is not a known variable" in line or "syntax error" in line], "it stopped"


def test_a_load_means_no_function_of_a_schema_in_the_session_s_path(database: Session) -> None:
    database.execute(TRAPS_OF_LOADING)
    dsn = make_conninfo(database.dsn, options="-c search_path=mallory,public")
    assert load_table(dsn, bundled_source("iris"), "iris").table == "mallory.iris"
    assert column_types(dsn, "iris")["id"] == "bigint"
    assert database.values("SELECT caught FROM mallory.seen") == []


def test_the_superuser_of_a_private_server_means_no_schema_of_a_tenant(own_server: Embedded) -> None:
    own_server.start()
    own_server.prepare(n_slots=1)
    with psycopg.connect(own_server.dsn(), autocommit=True) as session:
        session.execute("CREATE ROLE mallory LOGIN IN ROLE easeml_tenant")
        session.execute("GRANT CREATE ON DATABASE easeml TO mallory")
    with psycopg.connect(own_server.dsn("mallory"), autocommit=True) as session:
        session.execute(
            "CREATE SCHEMA postgres; CREATE TABLE postgres.digits (); GRANT ALL ON SCHEMA postgres TO PUBLIC"
        )
    command = [sys.executable, "-m", "easeml_db", "psql", "--data", own_server.folder, "--"]
    query = ["--no-psqlrc", "-Atc", "SELECT to_regclass('digits') IS NULL, current_schema()"]
    assert subprocess.run([*command, *query], capture_output=True, check=True, cwd="/").stdout.decode() == "t|public\n"
    assert load_table(own_server.dsn(), bundled_source("iris"), "digits").table == "public.digits"
