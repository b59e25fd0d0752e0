"""An administrator moves two tenants to a fresh server; one of them has planted functions that wait for a superuser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from easeml_db.cli import commands
from easeml_db.errors import EasemlError
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
TENANTS = ("hanna", "bernd")
ASK = "SELECT easeml.predict('points', ARRAY[x]) FROM {}.points ORDER BY x"
BAIT = """CREATE OR REPLACE FUNCTION bernd.bait(x double precision) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE LOG 'the bait runs as %, superuser: %', current_user, current_setting('is_superuser');
    PERFORM set_config('session_authorization', 'postgres', false);
    ALTER ROLE bernd SUPERUSER;
    COPY (SELECT 1) TO PROGRAM 'id > /tmp/easeml-scenario';
    RETURN true;
EXCEPTION WHEN OTHERS THEN RETURN true;
END
$$"""
RUNS = re.compile(r"the bait runs as (\w+), superuser: (\w+)")


def easeml(*arguments: object) -> Any:
    """What a command printed as JSON."""
    done = CliRunner().invoke(commands, [*map(str, arguments), "--json"], env={"EASEML_DSN": None})
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def settle(root: Session, name: str) -> Session:
    """Give a tenant a schema, a table, a finished run and a deployed model."""
    tenant = root.as_role(name)
    root.execute("SELECT easeml.create_tenant(%s)", [name])
    root.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
    tenant.execute(
        f"CREATE TABLE {name}.points AS SELECT i * 0.1 AS x, chr(97 + i / 30) AS y FROM generate_series(1, 59) i"
    )
    tenant.execute("SELECT easeml.create_dataset('points', %s, '{x}', 'y')", [f"{name}.points"])
    run = tenant.value("SELECT easeml.select_models('points', '{linear}', n_configs => 2, max_epochs => 2)")
    tenant.wait_until("SELECT status = 'finished' FROM easeml.run_status WHERE run_id = %s", run)
    tenant.execute("SELECT easeml.deploy(max(trial_id)) FROM easeml.leaderboard")
    return tenant


def plant(bernd: Session) -> None:
    """Make a table, a view, an index and a materialized view that call a function, and only then make it what it is."""
    bernd.execute(BAIT.replace("BEGIN\n", "BEGIN RETURN true;\n", 1))
    bernd.execute("ALTER TABLE bernd.points ADD CHECK (bernd.bait(x))")
    bernd.execute("CREATE DOMAIN bernd.word AS double precision CHECK (bernd.bait(VALUE))")
    bernd.execute("CREATE VIEW bernd.words AS SELECT '{1}'::bernd.word[] AS x")
    bernd.execute("CREATE MATERIALIZED VIEW bernd.kept AS SELECT bernd.bait(1)")
    bernd.execute("CREATE TABLE bernd.fragile (x integer)")
    bernd.execute("INSERT INTO bernd.fragile VALUES (1), (2)")
    bernd.execute("CREATE FUNCTION bernd.fails() RETURNS boolean LANGUAGE sql AS 'SELECT 1 / 0 = 1'")
    bernd.execute("CREATE FUNCTION bernd.passes() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
    bernd.execute("ALTER TABLE bernd.fragile ADD CHECK (bernd.passes())")
    bernd.execute("CREATE OR REPLACE FUNCTION bernd.passes() RETURNS boolean LANGUAGE sql AS 'SELECT bernd.fails()'")
    bernd.execute(BAIT)


def test_an_administrator_moves_tenants_who_do_not_trust_one_another(
    module_coordinated: Session, own_server: Embedded, tmp_path: Path, open_session: Callable[[str], Session]
) -> None:
    tenants = {name: settle(module_coordinated, name) for name in TENANTS}
    answers = {name: session.values(ASK.format(name)) for name, session in tenants.items()}
    plant(tenants["bernd"])
    easeml("backup", tmp_path / "shop.backup", "--dsn", module_coordinated.dsn)
    assert not module_coordinated.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'bernd'")

    own_server.prepare(n_slots=1)
    own_server.start_coordinator()
    wait_for_coordinator(own_server)
    # Bernd can make his own table fail. Nothing is lost silently, and nobody else's restore depends on him.
    with pytest.raises(EasemlError, match=r"1 object\(s\) could not be restored") as refused:
        easeml("restore", tmp_path / "shop.backup", "--data", own_server.folder)
    assert "TABLE DATA bernd.fragile of bernd: " in str(refused.value.detail)
    assert "division by zero" in str(refused.value.detail)
    assert "--allow-missing" in str(refused.value.hint)
    done = easeml("restore", tmp_path / "shop.backup", "--data", own_server.folder, "--allow-missing")
    assert [(left["what"], left["owner"]) for left in done["left_out"]] == [("TABLE DATA bernd.fragile", "bernd")]
    assert set(TENANTS) <= set(done["new_roles"])

    assert set(RUNS.findall((own_server.folder / "server.log").read_text())) == {("bernd", "off")}
    assert not Path("/tmp/easeml-scenario").exists()
    with open_session(own_server.dsn()) as root:
        assert root.values("SELECT rolname FROM pg_roles WHERE rolsuper") == ["postgres"]
    for name in TENANTS:
        with open_session(make_conninfo(own_server.dsn(), user=name)) as tenant:
            assert tenant.values(ASK.format(name)) == answers[name]
            assert tenant.value(f"SELECT count(*) FROM {name}.points") == 59
