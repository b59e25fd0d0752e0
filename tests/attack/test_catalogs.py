"""Who owns what, who can become whom, and what is attached to our objects: read from the catalogs.

Of a fresh database, of one that was updated from the last release, and of a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from easeml_db.postgres.extension_files import sql_folder

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

FORMER = sorted(path.stem.removeprefix("easeml--") for path in (sql_folder() / "upgrades").glob("easeml--*.sql"))[-1]
SCHEMAS = "('easeml', 'easeml_tasks', 'easeml_segment')"
OWNED = f"""
SELECT 'relation ' || c.oid::regclass AS object, c.relowner::regrole::text AS owner FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN {SCHEMAS}
UNION ALL SELECT 'routine ' || p.oid::regprocedure, p.proowner::regrole::text FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN {SCHEMAS}
UNION ALL SELECT 'type ' || t.oid::regtype, t.typowner::regrole::text FROM pg_type t
JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname IN {SCHEMAS}
UNION ALL SELECT 'operator ' || o.oid::regoperator, o.oprowner::regrole::text FROM pg_operator o
JOIN pg_namespace n ON n.oid = o.oprnamespace WHERE n.nspname IN {SCHEMAS}
UNION ALL SELECT 'schema ' || n.nspname, n.nspowner::regrole::text FROM pg_namespace n WHERE n.nspname IN {SCHEMAS}
UNION ALL SELECT 'extension ' || e.extname, e.extowner::regrole::text FROM pg_extension e
"""
DEFINERS_OF_THE_INSTALLER = {"create_tenant", "drop_tenant", "analyse_grown", "end_lock_holders"}
"""Granting easeml_tenant takes a superuser, and ANALYZE the owner of the tables."""
MEMBERS = """
SELECT m.member::regrole::text AS member, m.roleid::regrole::text AS of, m.admin_option FROM pg_auth_members m
WHERE starts_with(m.roleid::regrole::text, 'easeml_') OR starts_with(m.member::regrole::text, 'easeml_')
"""
EXPECTED_MEMBERS = {
    ("easeml_admin", "easeml_coordinator"), ("easeml_admin", "easeml_reader"), ("easeml_admin", "easeml_tenant"),
    ("easeml_owner", "pg_read_all_stats"), ("easeml_service", "easeml_coordinator"),
}  # fmt: skip
GROUPS = ("PUBLIC", "easeml_admin", "easeml_coordinator", "easeml_tenant", "easeml_reader", "easeml_owner")
# What lets a role attach something, or take a lock or a row away, whatever its other rights.
HELD = """
SELECT c.oid::regclass::text AS relation, a.grantee::regrole::text AS role, a.privilege_type AS privilege
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) a
WHERE n.nspname IN ('easeml', 'easeml_segment') AND a.grantee <> c.relowner
    AND a.privilege_type IN ('TRIGGER', 'REFERENCES', 'TRUNCATE', 'MAINTAIN')
UNION ALL
SELECT n.nspname, a.grantee::regrole::text, a.privilege_type FROM pg_namespace n, aclexplode(n.nspacl) a
WHERE n.nspname IN ('easeml', 'easeml_segment', 'easeml_tasks') AND a.grantee <> n.nspowner
    AND a.privilege_type = 'CREATE'
"""
# Whatever a query on our tables may call: it is PostgreSQL's or ours.
CALLED = """
SELECT DISTINCT a.what || ' calls ' || p.oid::regprocedure AS call FROM (
    SELECT 'statistics ' || x.stxname AS what, x.tableoid AS classid, x.oid AS objid, x.stxrelid AS relation
    FROM pg_statistic_ext x
    UNION ALL SELECT 'index ' || i.indexrelid::regclass, 'pg_class'::regclass, i.indexrelid, i.indrelid FROM pg_index i
    UNION ALL SELECT 'default ' || d.oid, d.tableoid, d.oid, d.adrelid FROM pg_attrdef d
    UNION ALL SELECT 'constraint ' || c.conname, c.tableoid, c.oid, c.conrelid FROM pg_constraint c
    UNION ALL SELECT 'rule ' || r.rulename, r.tableoid, r.oid, r.ev_class FROM pg_rewrite r
    UNION ALL SELECT 'trigger ' || t.tgname, t.tableoid, t.oid, t.tgrelid FROM pg_trigger t
    UNION ALL SELECT 'policy ' || y.polname, y.tableoid, y.oid, y.polrelid FROM pg_policy y) a
JOIN pg_class c ON c.oid = a.relation JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_depend d ON d.classid = a.classid AND d.objid = a.objid AND d.refclassid = 'pg_proc'::regclass
JOIN pg_proc p ON p.oid = d.refobjid
WHERE n.nspname IN ('easeml', 'easeml_tasks', 'easeml_segment')
    AND p.pronamespace NOT IN (SELECT oid FROM pg_namespace
        WHERE nspname IN ('pg_catalog', 'easeml', 'easeml_segment'))
"""


@pytest.fixture(params=["fresh", "updated", "node"])
def installed(request: pytest.FixtureRequest, database: Session, dsn: str) -> Iterator[Session]:
    """A database with the extension in one of three ways."""
    if request.param == "fresh":
        yield database
        return
    with type(database).open(dsn) as session:
        if request.param == "node":
            session.execute("CREATE EXTENSION easeml_segment CASCADE")
        else:
            session.execute(f"CREATE EXTENSION easeml VERSION '{FORMER}' CASCADE")  # type: ignore[arg-type]
            plant(session)
            session.execute("ALTER EXTENSION easeml UPDATE")
        yield session


def plant(session: Session) -> None:
    """What a member of easeml_coordinator could attach to the tables of states that it owned."""
    session.execute("CREATE SCHEMA planter")
    session.execute("CREATE FUNCTION planter.f(bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1'")
    session.execute(
        "CREATE FUNCTION planter.fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "GRANT CREATE, USAGE ON SCHEMA planter TO easeml_coordinator; SET ROLE easeml_coordinator"
    )
    for table in ("checkpoints", "checkpoint_chunks"):
        session.execute(f"""
            CREATE STATISTICS planter.of_{table} ON (planter.f(checkpoint_id)), checkpoint_id FROM easeml.{table};
            CREATE TRIGGER planted AFTER INSERT ON easeml.{table} EXECUTE FUNCTION planter.fires();
            CREATE RULE planted AS ON INSERT TO easeml.{table} DO ALSO SELECT planter.f(1);
            CREATE POLICY planted ON easeml.{table} USING (planter.f(1) = 1)
        """)  # type: ignore[arg-type]
    session.execute("RESET ROLE")


def test_the_installer_owns_everything_but_what_easeml_owner_does_for_tenants(installed: Session) -> None:
    definers = {
        f"routine {name}"
        for name in installed.values(
            "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'easeml' AND p.prosecdef AND p.proname <> ALL (%s)",
            list(DEFINERS_OF_THE_INSTALLER),
        )
    }
    owners = {row["object"]: row["owner"] for row in installed.rows(OWNED)}
    assert set(owners.values()) <= {"postgres", "easeml_owner"}
    by_owner = {name for name, owner in owners.items() if owner == "easeml_owner"}
    assert by_owner == definers | ({"schema easeml_tasks"} if definers else set())


def test_nobody_can_become_easeml_owner_and_groups_are_as_the_guide_says(installed: Session) -> None:
    members = [row for row in installed.rows(MEMBERS) if not row["member"].startswith("planter")]
    ours = {(row["member"], row["of"]) for row in members if row["member"].startswith("easeml_")}
    # Roles belong to the server, on which other databases may be nodes, with a reader for each tenant.
    readers = {pair for pair in ours if pair[1].startswith("easeml_reads_") or pair[0].startswith("easeml_reads_")}
    assert readers <= {("easeml_segment", of) for _, of in readers} | {(one, "easeml_rows") for one, _ in readers}
    assert ours - readers <= EXPECTED_MEMBERS | {("easeml_service", "easeml_segment")}
    assert not [row for row in members if row["of"] == "easeml_owner" or row["admin_option"]]
    rights = "rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication"
    assert installed.values(f"SELECT rolname::text FROM pg_roles WHERE rolname ~ '^easeml_' AND ({rights})") == []
    can_log_in = "SELECT rolname::text FROM pg_roles WHERE rolname ~ '^easeml_' AND rolcanlogin"
    assert set(installed.values(can_log_in)) <= {"easeml_service"}


def test_nobody_may_attach_anything_or_create_in_our_schemas(installed: Session) -> None:
    held = {(row["relation"], row["role"], row["privilege"]) for row in installed.rows(HELD)}
    maintained = {
        (f"{schema}.{table}", role, "MAINTAIN")
        for schema, role in (("easeml", "easeml_coordinator"), ("easeml_segment", "easeml_segment"))
        for table in ("checkpoints", "checkpoint_chunks")
    }
    assert held <= (maintained if installed.info.server_version >= 170_000 else set())


def test_what_is_attached_to_our_tables_calls_functions_of_postgresql_and_ours_alone(installed: Session) -> None:
    assert installed.values(CALLED) == []


def test_only_what_values_alone_are_given_runs_with_rights_of_others(installed: Session) -> None:
    """No SECURITY DEFINER function in Python takes a text that it could execute, and none is open to all but two."""
    definers = installed.rows(
        "SELECT p.proname::text AS name, l.lanname::text AS language,"
        " has_function_privilege('public', p.oid, 'EXECUTE') AS is_public, p.proconfig FROM pg_proc p"
        " JOIN pg_language l ON l.oid = p.prolang JOIN pg_namespace n ON n.oid = p.pronamespace"
        f" WHERE p.prosecdef AND n.nspname IN {SCHEMAS}"
    )
    assert {row["name"] for row in definers if row["language"] == "plpython3u"} <= {"open_serving", "store_import"}
    assert {row["name"] for row in definers if row["is_public"]} <= {"open_serving", "numbers_of"}
    assert all("search_path=pg_catalog, pg_temp" in row["proconfig"] for row in definers)


def test_the_planted_functions_are_found_where_they_are(database: Session) -> None:
    """The query that finds nothing above does find what is there."""
    database.execute("CREATE SCHEMA planter")
    database.execute("CREATE FUNCTION planter.f(bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1'")
    database.execute("CREATE INDEX planted ON easeml.trials (planter.f(trial_id))")
    database.execute("ALTER TABLE easeml.trials ALTER trial_number SET DEFAULT planter.f(1)")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        database.execute("DROP FUNCTION planter.f")
    assert len(database.values(CALLED)) == 2
