"""Contents of a database that somebody may miss: a restore replaces only a database without any."""

from __future__ import annotations

from typing import Any

import psycopg

Connection = psycopg.Connection[dict[str, Any]]
HAS_EASEML = "SELECT FROM pg_catalog.pg_extension WHERE extname = 'easeml'"
ROWS = """SELECT what, n FROM (VALUES ('run(s)', (SELECT count(*) FROM easeml.runs)),
    ('dataset(s)', (SELECT count(*) FROM easeml.datasets)), ('tenant(s)', (SELECT count(*) FROM easeml.tenants))
    ) k(what, n) WHERE n > 0"""
# Objects that belong to no extension (deptype e) and are no part of another object (i): row types, types of arrays,
# sequences of identity columns.
OBJECTS = """SELECT f.what, count(*) AS n FROM (
        SELECT CASE WHEN c.relkind = 'S' THEN 'sequence(s)' ELSE 'table(s) or view(s)' END,
            'pg_catalog.pg_class'::regclass, c.oid, c.relnamespace
        FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
        UNION ALL SELECT 'function(s) or procedure(s)', 'pg_catalog.pg_proc'::regclass, p.oid, p.pronamespace
        FROM pg_catalog.pg_proc p
        UNION ALL SELECT 'type(s) or domain(s)', 'pg_catalog.pg_type'::regclass, t.oid, t.typnamespace
        FROM pg_catalog.pg_type t
    ) f(what, class_oid, object_oid, schema_oid)
    JOIN pg_catalog.pg_namespace s ON s.oid = f.schema_oid
    WHERE s.nspname !~ '^pg_' AND s.nspname <> 'information_schema'
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = f.class_oid AND d.objid = f.object_oid AND d.deptype IN ('e', 'i'))
    GROUP BY f.what ORDER BY f.what = 'table(s) or view(s)' DESC, f.what"""
OTHERS = """SELECT 'large object(s)' AS what, count(*) AS n FROM pg_catalog.pg_largeobject_metadata HAVING count(*) > 0
    UNION ALL SELECT format('extension(s) (%s)', string_agg(e.extname, ', ' ORDER BY e.extname)), count(*)
    FROM pg_catalog.pg_extension e WHERE e.extname NOT IN ('plpgsql', 'plpython3u', 'easeml') HAVING count(*) > 0"""


def contents_of(session: Connection) -> list[str]:
    """Return in words what a database holds besides what easeml install puts into it; nothing if it is empty."""
    has_easeml = bool(session.execute(HAS_EASEML).fetchall())
    queries = [*([ROWS] if has_easeml else []), OBJECTS, OTHERS]
    return [f"{row['n']} {row['what']}" for query in queries for row in session.execute(query).fetchall()]
