"""A tenant is a role, not its name: renamed, dropped and made again, dumped and restored where its number differs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from easeml_db.local.server import Embedded

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SEEN = "SELECT dataset_name FROM easeml.dataset_info ORDER BY 1"
MEANT = "SELECT tenant FROM easeml.usable_dataset(%s, 'd', NULL)"


@pytest.fixture
def root(database: Session) -> Iterator[Session]:
    database.execute("CREATE TABLE points AS SELECT i * 0.1 AS x, i % 2 AS y FROM generate_series(1, 40) i")
    database.execute("GRANT SELECT ON points TO PUBLIC")
    yield database
    for role in ("ina", "ina_2", "nina", "gert", "own_service"):
        database.execute(f"DROP ROLE IF EXISTS {role}")


def tenant(root: Session, role: str) -> Session:
    session = root.as_role(role, "easeml_tenant")
    session.execute("SELECT easeml.create_dataset('d', 'points', '{x}', 'y', n_partitions => 2)")
    return session


def test_a_renamed_role_keeps_its_rows_and_limits(root: Session) -> None:
    tenant(root, "ina").execute("SELECT easeml.grant_use('d', 'ina')")
    root.execute("SELECT easeml.create_tenant('ina', max_runs => 1)")
    root.execute("ALTER ROLE ina RENAME TO nina")
    nina = root.as_role("nina")
    assert nina.values(SEEN) == ["d"]
    nina.execute("SELECT easeml.select_models('d', '{linear}', n_configs => 1)")
    with pytest.raises(psycopg.Error, match="max_runs"):
        nina.execute("SELECT easeml.select_models('d', '{linear}', n_configs => 1)")
    root.execute("SELECT easeml.alter_tenant('nina', max_runs => 2)")
    assert root.value("SELECT max_runs FROM easeml.tenants WHERE tenant = 'ina'") == 2
    assert root.value(MEANT, "nina") == "ina"


def test_a_role_made_again_sees_nothing_of_its_predecessor(root: Session) -> None:
    gert = tenant(root, "gert")
    root.as_role("ina")
    gert.execute("SELECT easeml.grant_use('d', 'ina')")
    tenant(root, "ina")
    root.execute("DROP ROLE ina")
    ina = root.as_role("ina", "easeml_tenant")
    assert ina.values(SEEN) == []
    with pytest.raises(psycopg.Error, match="there is no dataset"):
        root.execute(MEANT, ["ina"])  # the grant was its predecessor's, too
    ina.execute("SELECT easeml.create_dataset('mine', 'points', '{x}', 'y', n_partitions => 2)")
    assert ina.values("SELECT DISTINCT tenant FROM easeml.dataset_info") == ["ina_2"]
    assert ina.values(SEEN) == ["mine"]
    assert root.values("SELECT tenant FROM easeml.dataset_info WHERE dataset_name = 'd' ORDER BY 1") == ["gert", "ina"]


def test_an_administrator_hands_the_rows_of_a_dropped_role_on(root: Session) -> None:
    tenant(root, "ina")
    adopt = "SELECT easeml.adopt_tenant(%s, %s)"
    nina = root.as_role("nina", "easeml_tenant")
    for names, sqlstate in ((("ina", "nina"), "ML004"), (("ina", "nobody"), "ML003"), (("nobody", "nina"), "ML003")):
        with pytest.raises(psycopg.Error) as refused:  # the role is there; there is no such role; no such tenant
            root.execute(adopt, names)
        assert refused.value.sqlstate == sqlstate
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        nina.execute(adopt, ["ina", "nina"])
    root.execute("DROP ROLE ina")
    root.execute(adopt, ["ina", "nina"])
    assert nina.values(SEEN) == ["d"]
    nina.execute("SELECT easeml.refresh_dataset('d')")


def test_a_role_that_adopts_a_tenant_has_that_tenants_settings(root: Session) -> None:
    tenant(root, "ina")
    root.as_role("nina", "easeml_tenant")
    for name, weight in (("ina", 3), ("nina", 2)):
        root.execute("SELECT easeml.create_tenant(%s, weight => %s)", [name, weight])
    root.execute("DROP ROLE ina")
    root.execute("SELECT easeml.adopt_tenant('ina', 'nina')")
    assert root.rows("SELECT tenant, weight FROM easeml.tenant_status") == [{"tenant": "ina", "weight": 3}]


OWN = {
    "dataset": "SELECT easeml.create_dataset('mine', 'points', '{x}', 'y', n_partitions => 2)",
    "task": "INSERT INTO easeml.tasks (tenant, task_name, program, template, examples, place, specification)"
    " VALUES ('nina', 'mine', '', '', '', '', '{}')",
    "packing": "INSERT INTO easeml.packings (dataset_id, tenant, dataset_name, version, caller, shuffle, arguments,"
    " places) VALUES (-1, 'nina', 'mine', 1, 'nina', 'across', '{}', '{}')",
}


@pytest.mark.parametrize("own", OWN)
def test_a_role_with_something_of_its_own_adopts_no_tenant(root: Session, own: str) -> None:
    tenant(root, "ina")
    nina = root.as_role("nina", "easeml_tenant")
    root.execute("SELECT easeml.register_tenant('nina')")
    (nina if own == "dataset" else root).execute(OWN[own])
    root.execute("DROP ROLE ina")
    with pytest.raises(psycopg.Error, match="role nina has datasets or tasks of its own") as refused:
        root.execute("SELECT easeml.adopt_tenant('ina', 'nina')")
    assert refused.value.sqlstate == "ML004"
    assert root.value("SELECT count(*) FROM easeml.tenant_roles WHERE tenant = 'nina'") == 1


def test_a_dump_brings_tenants_back_by_the_names_of_their_roles(root: Session, own_server: Embedded) -> None:
    gert = tenant(root, "gert")
    root.as_role("ina")
    gert.execute("SELECT easeml.grant_use('d', 'ina')")
    tenant(root, "nina")
    root.execute("DROP ROLE nina")
    dump = subprocess.run(["pg_dump", root.dsn], capture_output=True, check=True).stdout
    oids = {role: root.value("SELECT oid FROM pg_roles WHERE rolname = %s", role) for role in ("gert", "ina")}
    own_server.start()
    with type(root).open(own_server.dsn(database="postgres")) as session:
        for role in ("stranger", "nina", "ina", "gert", "easeml_service"):
            session.execute(f"CREATE ROLE {role} LOGIN")
        session.execute("CREATE DATABASE restored")
    target = own_server.dsn(database="restored")
    subprocess.run(["psql", target, "--quiet", "--set=ON_ERROR_STOP=1"], input=dump, capture_output=True, check=True)
    with type(root).open(target) as restored:
        found = {role: restored.value("SELECT oid FROM pg_roles WHERE rolname = %s", role) for role in oids}
        assert all(found[role] != oids[role] for role in oids)
        restored.execute("GRANT easeml_tenant TO gert, nina, stranger")
        assert restored.as_role("gert").values(SEEN) == ["d"]
        assert restored.value(MEANT, "ina") == "gert"
        # Their role was gone when the dump was made: nobody inherits the rows by a number or a name.
        for role in ("nina", "stranger"):
            session = restored.as_role(role)
            session.execute("SELECT easeml.create_dataset('new', 'points', '{x}', 'y', n_partitions => 2)")
            assert session.values(SEEN) == ["new"]
        known = restored.values("SELECT tenant::text FROM easeml.tenant_roles ORDER BY 1")
        assert known == ["gert", "nina_2", "stranger"]


def test_a_dump_is_restored_where_a_role_is_missing_and_its_rows_wait_to_be_adopted(
    root: Session, own_server: Embedded
) -> None:
    for session in [tenant(root, role) for role in ("gert", "ina")]:
        session.execute("SELECT easeml.grant_use('d', 'gert'), easeml.grant_use('d', 'ina')")
    dump = subprocess.run(["pg_dump", root.dsn], capture_output=True, check=True).stdout.decode()
    own_server.start()
    with type(root).open(own_server.dsn(database="postgres")) as session:
        session.execute("CREATE ROLE gert LOGIN; CREATE ROLE easeml_service LOGIN")
        session.execute("CREATE DATABASE restored")
    target = own_server.dsn(database="restored")
    subprocess.run(["psql", target, "--quiet", "--set=ON_ERROR_STOP=1"], input=dump.encode(), check=True)
    with type(root).open(target) as restored:
        restored.execute("GRANT easeml_tenant TO gert")
        assert restored.as_role("gert").values(SEEN) == ["d"]
        assert restored.values("SELECT grantee::text FROM easeml.dataset_grants ORDER BY tenant") == ["gert", "gert"]
        rows = "SELECT tenant::text, role::text, role_name::text FROM easeml.tenant_roles ORDER BY 1"
        assert [tuple(row.values()) for row in restored.rows(rows)] == [("gert", "gert", None), ("ina", None, None)]
        ina = restored.as_role("ina", "easeml_tenant")  # another person, for all that the server knows
        assert ina.values(SEEN) == []
        restored.execute("SELECT easeml.adopt_tenant('ina', 'ina')")
        assert ina.values(SEEN) == ["d"]


OURS = ("easeml_owner", "easeml_coordinator", "easeml_admin", "easeml_service", "own_service", "pg_monitor", "postgres")


@pytest.mark.parametrize("role", OURS)
def test_roles_of_easeml_and_of_postgresql_become_no_tenants(root: Session, role: str) -> None:
    gert = tenant(root, "gert")
    root.as_role("own_service", "easeml_coordinator")
    calls = [(root, "SELECT easeml.create_tenant(%s)"), (gert, "SELECT easeml.grant_use('d', %s)")]
    gone = root.as_role("ina", "easeml_tenant")
    gone.execute("SELECT easeml.create_dataset('d', 'points', '{x}', 'y', n_partitions => 2)")
    root.execute("DROP ROLE ina")
    calls.append((root, "SELECT easeml.adopt_tenant('ina', %s)"))
    for session, call in calls:
        with pytest.raises(psycopg.Error) as refused:
            session.execute(call, [role])
        assert refused.value.sqlstate == "ML004"
    assert root.values("SELECT tenant FROM easeml.tenant_roles WHERE role = %s::regrole", role) == []


def test_a_renamed_role_of_easeml_becomes_no_tenant(root: Session) -> None:
    gert = tenant(root, "gert")
    with root.transaction(force_rollback=True):
        root.execute("CREATE ROLE renamed LOGIN IN ROLE easeml_coordinator")
        root.execute("ALTER ROLE renamed RENAME TO harmless")
        for call in ("SELECT easeml.create_tenant('harmless')", "SELECT easeml.adopt_tenant('gert', 'harmless')"):
            with pytest.raises(psycopg.Error, match="role of easeml or PostgreSQL"), root.transaction():
                root.execute(call)
    with root.transaction(force_rollback=True):
        root.execute("ALTER ROLE easeml_owner RENAME TO harmless")
        with pytest.raises(psycopg.Error, match="role of easeml or PostgreSQL"), root.transaction():
            root.execute("SELECT easeml.create_tenant('harmless')")
    for group in ("easeml_reader", "easeml_tenant"):
        gert.execute("SELECT easeml.grant_use('d', %s)", [group])
