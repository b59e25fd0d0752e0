"""Who may do what with every object of the extension, against the table in privileges.txt.

The matrix is read from the catalogue. A new table, column, sequence or routine has no line, so this fails until
somebody has decided about it; the failure shows the lines to add. What anybody may do is not repeated for the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

EXPECTED = Path(__file__).with_name("privileges.txt")
# What a role can do by itself or through its groups. `anybody` is a role without any grant.
ROLES = ("anybody", "easeml_tenant", "easeml_reader", "easeml_coordinator", "easeml_admin", "easeml_owner")
MATRIX = """
WITH role(name) AS (SELECT unnest(%(roles)s::text[])),
relation AS (SELECT c.oid, c.relkind, c.oid::regclass::text AS name FROM pg_class c
    WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind IN ('r', 'v')),
held(object, role, privilege) AS (
    SELECT CASE r.relkind WHEN 'r' THEN 'table ' ELSE 'view ' END || r.name, role.name, p
    FROM relation r, role, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) p
    WHERE has_table_privilege(role.name, r.oid, p)
    UNION ALL
    SELECT CASE r.relkind WHEN 'r' THEN 'table ' ELSE 'view ' END || r.name, role.name,
        format('%%s(%%s)', p, string_agg(a.attname, ',' ORDER BY a.attnum))
    FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped, role,
        unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) p
    WHERE NOT has_table_privilege(role.name, r.oid, p) AND has_column_privilege(role.name, r.oid, a.attnum, p)
    GROUP BY r.relkind, r.name, role.name, p
    UNION ALL
    SELECT 'sequence ' || s.oid::regclass, role.name, p
    FROM pg_class s, role, unnest('{USAGE,SELECT,UPDATE}'::text[]) p
    WHERE s.relnamespace = 'easeml'::regnamespace
        AND CASE WHEN s.relkind = 'S' THEN has_sequence_privilege(role.name, s.oid, p) END
    UNION ALL
    SELECT 'routine ' || f.oid::regprocedure, role.name, 'EXECUTE'
    FROM pg_proc f, role
    WHERE f.pronamespace = 'easeml'::regnamespace AND has_function_privilege(role.name, f.oid, 'EXECUTE')
    UNION ALL
    SELECT 'schema easeml', role.name, p FROM role, unnest('{USAGE,CREATE}'::text[]) p
    WHERE has_schema_privilege(role.name, 'easeml', p)
), told AS (
    SELECT object, role, string_agg(privilege, ' ' ORDER BY privilege) AS privileges FROM held h
    WHERE role = 'anybody' OR (object, 'anybody', privilege) NOT IN (TABLE held) GROUP BY object, role
)
SELECT format('%%s | %%s', object, string_agg(format('%%s: %%s', replace(role, 'easeml_', ''), privileges), '; '
    ORDER BY array_position(%(roles)s::text[], role))) AS line
FROM told GROUP BY object ORDER BY object COLLATE "C"
"""


@pytest.fixture(scope="module")
def anybody(module_database: Session) -> Session:
    return module_database.as_role("anybody")


def test_every_object_is_open_to_whom_it_is_meant_to_be_and_to_nobody_else(
    module_database: Session, anybody: Session
) -> None:
    found = [row["line"] for row in module_database.rows(MATRIX, roles=list(ROLES))]
    expected = EXPECTED.read_text(encoding="utf-8").splitlines()
    assert sorted(set(found) - set(expected)) == [], "lines that privileges.txt has not"
    assert sorted(set(expected) - set(found)) == [], "lines of privileges.txt that no object has"


def test_a_tenant_can_lock_no_table_against_others(module_database: Session) -> None:
    tenant = module_database.as_role("locker", "easeml_tenant")
    tables = "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'r'"
    for table in module_database.values(tables):
        for mode in ("ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE", "EXCLUSIVE", "ACCESS EXCLUSIVE"):
            _denied(tenant, f"LOCK TABLE easeml.{table} IN {mode} MODE")
        for strength in ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"):
            _denied(tenant, f"SELECT FROM easeml.{table} FOR {strength}")


def _denied(session: Session, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege), session.transaction():
        session.execute(statement)  # type: ignore[arg-type]


def test_nobody_is_easeml_owner(module_database: Session) -> None:
    role = (
        "SELECT rolcanlogin OR rolsuper OR rolbypassrls OR rolcreaterole FROM pg_roles WHERE rolname = 'easeml_owner'"
    )
    assert module_database.value(role) is False
    members = "SELECT count(*) FROM pg_auth_members WHERE roleid = 'easeml_owner'::regrole"
    assert module_database.value(members) == 0
    groups = "SELECT roleid::regrole::text FROM pg_auth_members WHERE member = 'easeml_owner'::regrole"
    assert module_database.values(groups) == ["pg_read_all_stats"]
