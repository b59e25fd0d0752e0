"""On a node: functions that PostgreSQL may call when a query on a table is planned, because its owner has named them.

An index, a statistics object or a constraint depends on the functions of its expressions. Those of PostgreSQL's own are
not recorded, those of extensions belong to superusers. What lies deeper (aggregates, types within types, partitions) is
not looked for here: the reader and its sandbox (`tenant_rows`) hold what runs.
"""

from __future__ import annotations

from typing import NamedTuple

from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Session, Statement, only_column


class _Planted(NamedTuple):
    """A function, the role it belongs to, and what calls it."""

    function: str
    owner: str
    caller: str


PARTS = """
    SELECT 'pg_class'::regclass AS kind, i.indexrelid AS part FROM pg_index i WHERE i.indrelid = $1
    UNION ALL SELECT 'pg_constraint'::regclass, c.oid FROM pg_constraint c WHERE c.conrelid = $1
"""
STATISTICS = "UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid FROM pg_statistic_ext s WHERE s.stxrelid = $1"
FUNCTIONS = """
SELECT f.oid::regprocedure::text AS function, pg_get_userbyid(f.proowner)::text AS owner,
    pg_describe_object(p.kind, p.part, 0) AS caller
FROM ({parts}) p JOIN pg_depend d ON d.classid = p.kind AND d.objid = p.part
LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
LEFT JOIN pg_constraint c ON d.refclassid = 'pg_type'::regclass AND c.contypid = d.refobjid
LEFT JOIN pg_depend n ON n.classid = 'pg_constraint'::regclass AND n.objid = c.oid
    AND n.refclassid = 'pg_proc'::regclass
JOIN pg_proc f ON f.oid = CASE d.refclassid WHEN 'pg_proc'::regclass THEN d.refobjid
    WHEN 'pg_operator'::regclass THEN o.oprcode ELSE n.refobjid END
JOIN pg_roles w ON w.oid = f.proowner WHERE NOT w.rolsuper AND w.rolname <> $2 ORDER BY 1, 3 LIMIT 1
"""
HAS_STATISTICS: Statement[bool] = Statement(
    "SELECT current_setting('server_version_num')::int >= 100000 AS has_statistics", (), only_column
)
OLD = Statement(FUNCTIONS.format(parts=PARTS), ("oid", "text"), _Planted)
PLANTED = Statement(FUNCTIONS.format(parts=PARTS + STATISTICS), ("oid", "text"), _Planted)


def check_nothing_planted(session: Session, relation: int, name: str, role: str) -> None:
    """Refuse a table whose planning may call functions of others than superusers and the role. Raises NotAllowed."""
    found = session.rows(PLANTED if session.row(HAS_STATISTICS) else OLD, relation, role)
    if found:
        function, owner, caller = found[0]
        raise NotAllowed(
            f"reading {name} may call {function}, a function of role {owner}, in {caller}",
            hint=f"Its owner drops that, or writes it without functions of roles other than {role}.",
        )
