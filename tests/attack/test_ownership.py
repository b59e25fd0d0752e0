"""What an administrator or the service may attach to an object of ours: nothing.

PostgreSQL runs what is attached to a table (statistics, indexes, triggers, rules, policies, defaults) with the rights
of whoever uses it. A superuser reads these tables with `easeml tenants`, `doctor`, `backup` and `install`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
ACTORS = {"chief": "easeml_admin", "worker": "easeml_coordinator", "tina": "easeml_tenant", "rita": "easeml_reader"}
RELATIONS = """SELECT c.oid::regclass::text AS name, c.relkind::text AS kind,
    (SELECT quote_ident(a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = 1) AS first
FROM pg_class c WHERE c.relnamespace IN ('easeml'::regnamespace, 'easeml_tasks'::regnamespace)
    AND c.relkind IN ('r', 'v') ORDER BY c.relkind, c.oid::regclass::text"""
ON_TABLES = (
    "CREATE STATISTICS of_{actor}.st ON (of_{actor}.f(1)), {first} FROM {name}",
    "CREATE INDEX ON {name} ((of_{actor}.f(1)))",
    "CREATE INDEX ON {name} ({first}) WHERE of_{actor}.f(1) = 1",
    "CREATE TRIGGER planted AFTER INSERT ON {name} EXECUTE FUNCTION of_{actor}.fires()",
    "CREATE RULE planted AS ON INSERT TO {name} DO ALSO SELECT of_{actor}.f(1)",
    "CREATE POLICY planted ON {name} USING (of_{actor}.f(1) = 1)",
    "ALTER TABLE {name} ALTER {first} SET DEFAULT of_{actor}.f(1)",
    "ALTER TABLE {name} ADD CHECK (of_{actor}.f(1) = 1)",
    "ALTER TABLE {name} ADD planted integer GENERATED ALWAYS AS (of_{actor}.f(1)) STORED",
    "ALTER TABLE {name} DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE {name} DISABLE TRIGGER USER",
    "ALTER TABLE {name} OWNER TO {actor}",
    "CREATE TABLE of_{actor}.child () INHERITS ({name})",
    "CREATE TABLE of_{actor}.child (x bigint REFERENCES {name})",
    "DROP TABLE {name}",
    "TRUNCATE {name}",
)
ON_VIEWS = (
    'CREATE OR REPLACE RULE "_RETURN" AS ON SELECT TO {name} DO INSTEAD SELECT of_{actor}.f(1)',
    "CREATE OR REPLACE VIEW {name} AS SELECT of_{actor}.f(1)",
    "ALTER VIEW {name} ALTER {first} SET DEFAULT of_{actor}.f(1)",
    "ALTER VIEW {name} RESET (security_invoker)",
    "CREATE TRIGGER planted INSTEAD OF INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION of_{actor}.fires()",
    "DROP VIEW {name}",
)
BESIDE = (
    "CREATE TABLE easeml.planted (x integer)",
    "CREATE TABLE easeml_tasks.planted (x integer)",
    "CREATE FUNCTION easeml.version(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION easeml.version() RETURNS text LANGUAGE sql AS 'SELECT 1::text'",
    "ALTER FUNCTION easeml.version() RESET search_path",
    "ALTER FUNCTION easeml.version() SECURITY DEFINER",
    "ALTER SCHEMA easeml RENAME TO planted",
    "ALTER DEFAULT PRIVILEGES FOR ROLE easeml_owner GRANT ALL ON TABLES TO {actor}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE postgres GRANT ALL ON TABLES TO {actor}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA easeml GRANT ALL ON TABLES TO PUBLIC; CREATE TABLE easeml.planted (x integer)",
    "ALTER DATABASE {database} SET search_path = of_{actor}, pg_catalog",
    "ALTER ROLE postgres SET search_path = of_{actor}, pg_catalog",
    "ALTER ROLE easeml_owner SET search_path = of_{actor}, pg_catalog",
    "ALTER EXTENSION easeml ADD FUNCTION of_{actor}.f(integer)",
    "ALTER EXTENSION easeml DROP VIEW easeml.runs",
    "ALTER TYPE easeml.runs OWNER TO {actor}",
    "CREATE CAST (easeml.runs AS text) WITH FUNCTION of_{actor}.cast_run(easeml.runs) AS IMPLICIT",
    "CREATE EVENT TRIGGER planted ON ddl_command_start EXECUTE FUNCTION of_{actor}.fires()",
    "CREATE FUNCTION of_{actor}.py() RETURNS text LANGUAGE plpython3u AS 'return 1'",
    "COMMENT ON EXTENSION easeml IS 'planted'",
    "GRANT easeml_owner TO {actor}",
    "SET ROLE easeml_owner",
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION easeml_owner",
    "GRANT easeml_tenant TO {actor}",
)
# Rows that easeml_owner, or whoever works with a task or dataset, executes as SQL.
AS_SQL = (
    "UPDATE easeml.tasks SET examples = 'x; ALTER ROLE {actor} SUPERUSER'",
    'UPDATE easeml.tasks SET specification = \'{{"output": {{"type": "of_{actor}.domain"}}}}\'',
    "UPDATE easeml.tasks SET place = 'of_{actor}.x', program = 'x', classes = '{{x}}', tenant = 'postgres'",
    "INSERT INTO easeml.tasks (tenant, task_name, program, template, examples, place, specification)"
    " VALUES ('postgres', 'x', 'x', 'x', 'x', 'x', '{{}}')",
    "UPDATE easeml.labelling_functions SET function = 'of_{actor}.f'",
    "INSERT INTO easeml.labelling_functions (task_id, tenant, function) VALUES (1, 'postgres', 'of_{actor}.f')",
    "UPDATE easeml.datasets SET source = 'of_{actor}.view'",
    "UPDATE easeml.refresh_rules SET tenant = 'postgres'",
    "UPDATE easeml.packings SET caller = 'postgres'",
    "UPDATE easeml.packings SET places = '{{}}'",
    "INSERT INTO easeml.provisioners (provisioner, start_program) VALUES ('x', '{{/bin/sh}}')",
    "UPDATE easeml.provisioners SET probe_program = '{{/bin/sh}}'",
)
PLANTS = """
CREATE SCHEMA of_{actor};
CREATE FUNCTION of_{actor}.pwn() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('is_superuser') = 'on' THEN ALTER ROLE {actor} SUPERUSER; END IF; RETURN 1; END $$;
CREATE FUNCTION of_{actor}.f(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN RETURN of_{actor}.pwn(); END $$;
CREATE FUNCTION of_{actor}.fires() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM of_{actor}.pwn(); RETURN NULL; END $$;
"""
# Only who may use the types of our rows can take them as arguments; a function of an earlier version may be there.
CAST = """
CREATE FUNCTION of_{actor}.cast_run(easeml.runs) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN RETURN of_{actor}.pwn(); END $$;
ALTER FUNCTION of_{actor}.cast_run(easeml.runs) OWNER TO {actor};
"""


@pytest.fixture(scope="module")
def actors(module_database: Session) -> Iterator[dict[str, Session]]:
    """An administrator, a service, a tenant and a reader who may create schemas in the database."""
    database = module_database.value("SELECT current_database()")
    found = {name: module_database.as_role(name, group) for name, group in ACTORS.items()}
    tina = found["tina"]
    for name, session in found.items():
        module_database.execute(f'GRANT CREATE ON DATABASE "{database}" TO {name}')
        session.execute(PLANTS.format(actor=name))
        module_database.execute(CAST.format(actor=name))
    tina.execute("SELECT easeml.create_task('work', 'Input = [2] Output = [2]', schema => 'of_tina')")
    return found


def is_refused(session: Session, statement: str) -> bool:
    """Whether the role may not do that, or such an object cannot have it; what it may is undone."""
    try:
        with session.transaction(force_rollback=True):
            session.execute(statement)  # type: ignore[arg-type]
    except psycopg.Error as error:
        return error.sqlstate in (
            "42501",
            "42704",
            "42809",
            "42P17",
            "0A000",
        )  # a privilege, or what such an object cannot have
    return False


@pytest.mark.parametrize("actor", ACTORS)
def test_nobody_attaches_anything_to_a_table_or_view_of_ours(
    module_database: Session, actors: dict[str, Session], actor: str
) -> None:
    allowed = [
        statement
        for relation in module_database.rows(RELATIONS)
        for template in (ON_TABLES if relation["kind"] == "r" else ON_VIEWS)
        if not is_refused(actors[actor], statement := template.format(actor=actor, **relation))
    ]
    assert allowed == []


@pytest.mark.parametrize("actor", ACTORS)
def test_nobody_changes_what_stands_beside_the_tables(
    module_database: Session, actors: dict[str, Session], actor: str
) -> None:
    database = module_database.value("SELECT quote_ident(current_database())")
    statements = [template.format(actor=actor, database=database) for template in BESIDE]
    assert [statement for statement in statements if not is_refused(actors[actor], statement)] == []


@pytest.mark.parametrize("actor", ACTORS)
def test_nobody_writes_a_row_that_others_execute(actors: dict[str, Session], actor: str) -> None:
    statements = [template.format(actor=actor) for template in AS_SQL]
    assert [statement for statement in statements if not is_refused(actors[actor], statement)] == []


def test_a_superuser_may_look_at_all_after_an_administrator_tried_everything(
    module_database: Session, actors: dict[str, Session]
) -> None:
    """The attack of the whole: plant, commit what is allowed, and have a superuser look with the commands."""
    for name in ("chief", "worker"):
        for relation in module_database.rows(RELATIONS):
            for template in ON_TABLES[:6] if relation["kind"] == "r" else ON_VIEWS[:3]:
                _attempt(actors[name], template.format(actor=name, **relation))
        for template in AS_SQL:
            _attempt(actors[name], template.format(actor=name))
    for command in (["tenant"], ["doctor"], ["slot"], ["run"], ["task"], ["dataset"]):
        subprocess.run(
            [sys.executable, "-m", "easeml_db", *command, "--dsn", module_database.dsn],
            capture_output=True, check=False, timeout=120,
        )  # fmt: skip
    for relation in module_database.rows(RELATIONS):
        module_database.execute(f"SELECT * FROM {relation['name']} LIMIT 1")
        if relation["kind"] == "r":
            module_database.execute(f"ANALYZE {relation['name']}")
    superusers = "SELECT rolname::text FROM pg_roles WHERE rolsuper AND rolname = ANY (%s)"
    assert module_database.values(superusers, list(ACTORS)) == []


def _attempt(session: Session, statement: str) -> None:
    try:
        session.execute(statement)  # type: ignore[arg-type]
    except psycopg.Error:
        return
