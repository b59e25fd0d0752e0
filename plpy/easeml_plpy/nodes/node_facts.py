"""Facts that a node reports about itself, so that a control server can refuse an unsuitable one."""

from __future__ import annotations

import importlib
import json
import platform
from typing import Self

from easeml_plpy import __version__
from easeml_plpy.server.devices import devices
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Session, Statement, only_column

PACKAGES = ("torch", "numpy", "safetensors")

# Not a session of easeml's, because a node of another version must be able to report its version.
NODE: Statement[str] = Statement(
    "SELECT jsonb_build_object('identity', n.identity, 'holder', n.holder, 'extension', easeml_segment.version(),"
    " 'server', current_setting('server_version'), 'database',"
    " current_database(), 'port', current_setting('port'))::text AS facts FROM easeml_segment.node n",
    (),
    only_column,
)
# What the service could reach beyond easeml: roles that it may become, tables that were granted to itself.
SERVICE: Statement[str] = Statement(
    """
SELECT jsonb_build_object('role', r.rolname, 'is_superuser', r.rolsuper,
    'groups', ARRAY(SELECT g.rolname::text FROM pg_roles g WHERE NOT r.rolsuper AND pg_has_role(r.oid, g.oid, 'MEMBER')
        AND g.oid <> r.oid AND g.rolname !~ '^easeml_(segment$|rows$|reads_)' ORDER BY 1 LIMIT 100),
    'tables', ARRAY(SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE a.grantee = r.oid AND a.privilege_type = 'SELECT' AND c.relowner <> r.oid
        AND n.nspname NOT IN ('easeml_segment', 'easeml_rows') ORDER BY 1 LIMIT 100),
    'readers', ARRAY(SELECT g.rolname::text FROM pg_roles g WHERE g.rolname ~ '^easeml_reads_'
        AND pg_has_role(r.oid, g.oid, 'MEMBER') ORDER BY 1))::text AS facts
FROM pg_roles r WHERE r.rolname = session_user
""",
    (),
    only_column,
)
HAS_CITUS: Statement[int] = Statement("SELECT count(*) AS n FROM pg_extension WHERE extname = 'citus'", (), only_column)
CITUS: Statement[str] = Statement(
    "SELECT jsonb_build_object('version', x.extversion, 'group', g.groupid, 'name', n.nodename, 'port',"
    " n.nodeport)::text FROM pg_extension x CROSS JOIN pg_dist_local_group g"
    " LEFT JOIN pg_dist_node n ON n.groupid = g.groupid AND n.noderole = 'primary' WHERE x.extname = 'citus'",
    (),
    only_column,
)


class _AnyVersion(Session):
    """A connection to a node whose extension may be of any version."""

    schema = "easeml_segment"

    @classmethod
    def of(cls, plpy: object, GD: object) -> Self:
        """Return a session that keeps nothing."""
        return cls(plpy)  # type: ignore[arg-type]


def node_facts_of(session: Session) -> str:
    """Return identity, holder, versions and devices as JSON; a package that cannot be imported has its error."""
    versions = {name: version_of(name) for name in PACKAGES}
    facts = json.loads(session.row(NODE)) | {"python": platform.python_version(), "package": __version__}
    facts["service"] = json.loads(session.row(SERVICE))
    if session.row(HAS_CITUS):
        facts["citus"] = json.loads(session.row(CITUS))
    return json.dumps(facts | {"packages": versions, "devices": devices() if versions["torch"]["version"] else []})


node_facts = entry_point(of=_AnyVersion)(node_facts_of)


def version_of(name: str) -> dict[str, str | None]:
    """Return the version of a package, or why it cannot be imported."""
    try:
        return {"version": str(importlib.import_module(name).__version__), "fault": None}
    except Exception as error:  # noqa: BLE001 - whatever keeps a package from importing is what is asked for
        return {"version": None, "fault": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
