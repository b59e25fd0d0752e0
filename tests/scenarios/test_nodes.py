"""An administrator adds a node as the guide says. A tenant packs and trains rows there beside somebody who plants code.

The node is a server of its own that listens on TCP and takes passwords.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.cli import commands
from tests.fixtures.servers import temporary_server
from tests.fixtures.sessions import Session
from tests.nodes import service_file

if TYPE_CHECKING:
    Coordinator = Callable[..., AbstractContextManager[Any]]

SERVICE, ANNA, BEN, CAROL = "node_service", "node_anna", "node_ben", "node_carol"
PASSWORD = "a password of this node alone"
PLANTED = f"""
CREATE TABLE {BEN}.loot (role text, n bigint);
GRANT USAGE ON SCHEMA {BEN} TO PUBLIC;
GRANT INSERT ON {BEN}.loot TO PUBLIC;
CREATE FUNCTION {BEN}.look() RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE n bigint := -1;
BEGIN
    BEGIN
        SELECT count(*) INTO n FROM easeml_segment.version_blocks;
    EXCEPTION WHEN insufficient_privilege THEN NULL;
    END;
    INSERT INTO {BEN}.loot VALUES (current_user, n);
    RETURN 1;
END $$;
CREATE FUNCTION {BEN}.folded(x integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN RETURN {BEN}.look(); END $$;
"""
PLANT = f"CREATE INDEX planted ON {BEN}.shared (({BEN}.folded(1)))"
ROWS = "SELECT i AS id, sin(i) + (i % 2) * 2 AS x, chr(97 + i % 2) AS kind FROM generate_series(1, 300) i"
CREATE = "SELECT easeml.create_dataset('shared', %s, '{x}', 'kind', n_partitions => 2)"
SHARED = f'{{"east": "{BEN}.shared"}}'
WAIT = "CALL easeml.wait_dataset(%s, 60)"


@pytest.fixture
def node() -> Iterator[Session]:
    """A server that an administrator has, with the roles and tables of its users; it knows nothing of easeml yet."""
    with temporary_server() as server:
        with Session.open(server.dsn(database="postgres")) as session:
            session.execute("CREATE DATABASE shop")
        with Session.open(server.dsn(database="shop")) as node:
            node.execute(f"CREATE ROLE {SERVICE} LOGIN PASSWORD '{PASSWORD}'")
            for role in (ANNA, BEN, CAROL):
                node.execute(f"CREATE ROLE {role} LOGIN; CREATE SCHEMA {role} AUTHORIZATION {role}")
            ben = node.as_role(BEN)
            for statement in (PLANTED, f"CREATE TABLE shared AS {ROWS}", f"GRANT SELECT ON shared TO {ANNA}"):
                ben.execute(f"SET search_path = {BEN}; {statement}")
            ben.execute(f"TRUNCATE {BEN}.loot")
            yield node


def easeml(*arguments: str) -> str:
    """Run a command that must succeed."""
    done = CliRunner().invoke(commands, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def add_node(control: Session, node: Session) -> None:
    """Do what the guide says: install, add, give slots; owners grant to the reader."""
    easeml("segment", "install", "pg_east_admin", "--grant", SERVICE, "--reader", ANNA, "--reader", CAROL)
    easeml("segment", "add", "east", "--service", "pg_east", "--dsn", control.dsn)
    easeml("slot", "add", "1", "--segment", "east", "--dsn", control.dsn)
    node.as_role(BEN).execute(f"GRANT SELECT ON {BEN}.shared TO easeml_reads_{ANNA}")
    memberships = "SELECT pg_has_role(%s, %s, 'MEMBER')"
    assert not any(node.value(memberships, SERVICE, role) for role in (ANNA, BEN, CAROL))


def test_a_node_is_added_and_what_is_planted_there_gains_nothing(
    database: Session, node: Session, coordinator: Coordinator, tmp_path: Path
) -> None:
    facts = conninfo_to_dict(node.dsn)
    by_tcp = make_conninfo(host="127.0.0.1", port=facts["port"], dbname="shop", user=SERVICE, password=PASSWORD)
    with service_file(tmp_path, {"pg_east": by_tcp, "pg_east_admin": node.dsn}):
        add_node(database, node)
        anna, ben = database.as_role(ANNA, "easeml_tenant"), node.as_role(BEN)
        with coordinator(database):
            _refused_until_nothing_is_planted(anna, ben)
            _trained_and_predicted(anna, node)
            _planted_later(anna, ben)
        _told_what_to_revoke(database, node)
        assert set(node.values(f"SELECT role FROM {BEN}.loot")) == {BEN}, "it ran when he planted it, and never again"
        assert node.value("SELECT count(*) FROM pg_class WHERE relnamespace = 'easeml_rows'::regnamespace") == 0
    anna.close()


def _told_what_to_revoke(control: Session, node: Session) -> None:
    """As after an update: the hints of an earlier version said to grant this."""
    node.execute(f"GRANT {ANNA} TO {SERVICE}; GRANT SELECT ON {BEN}.shared TO {SERVICE}")
    node.execute(f"REVOKE easeml_reads_{ANNA} FROM easeml_segment")
    remedies = _remedies(control)
    assert f"REVOKE {ANNA} FROM {SERVICE};" in remedies
    assert f"REVOKE ALL ON {BEN}.shared FROM {SERVICE};" in remedies
    assert f"easeml segment install SERVICE --reader {ANNA}" in remedies
    node.execute(f"REVOKE {ANNA} FROM {SERVICE}; REVOKE ALL ON {BEN}.shared FROM {SERVICE}")
    easeml("segment", "install", "pg_east_admin", "--reader", ANNA)
    assert SERVICE not in _remedies(control)


def _remedies(control: Session) -> str:
    easeml("segment", "check", "east", "--dsn", control.dsn)
    checks = json.loads(CliRunner().invoke(commands, ["doctor", "--json", "--dsn", control.dsn]).stdout)["checks"]
    return "\n".join(check["todo"] for check in checks if check["check"] == "service")


def _refused_until_nothing_is_planted(anna: Session, ben: Session) -> None:
    ben.execute(PLANT)
    with pytest.raises(psycopg.Error, match=f"may call {BEN}.folded.integer., a function of role {BEN}, in index"):
        anna.execute(WAIT, [anna.value(CREATE, SHARED)])
    ben.execute(f"DROP INDEX {BEN}.planted")
    anna.execute(WAIT, [anna.value(CREATE, SHARED)])


def _trained_and_predicted(anna: Session, node: Session) -> None:
    run_id = anna.value(
        "SELECT easeml.select_models('shared', '{mlp}', procedure => 'grid', max_epochs => 2,"
        """ search_space => '{"learning_rate": [0.1, 0.03], "batch_size": 16, "hidden_units": [[8]]}')"""
    )
    anna.execute("CALL easeml.wait(%s)", [run_id])
    assert anna.value("SELECT status FROM easeml.runs WHERE run_id = %s", run_id) == "finished"
    node.as_role(ANNA).execute(f"GRANT USAGE, CREATE ON SCHEMA {ANNA} TO {SERVICE}")
    n_rows = anna.value(f"CALL easeml.predict_on_nodes('shared', %s, '{ANNA}.predicted', key => '{{id}}')", SHARED)
    assert n_rows == 300
    assert node.as_role(ANNA).value(f"SELECT count(*) FROM {ANNA}.predicted WHERE predicted_label IN ('a', 'b')") == 300


def _planted_later(anna: Session, ben: Session) -> None:
    ben.execute(f"CREATE STATISTICS {BEN}.planted ON ({BEN}.folded(1)), x FROM {BEN}.shared")
    with pytest.raises(psycopg.Error, match=f"a function of role {BEN}, in statistics"):
        anna.execute(WAIT, [anna.value("SELECT easeml.refresh_dataset('shared')")])
    for call in (
        f"CALL easeml.predict_on_nodes('shared', %s, '{ANNA}.again', key => '{{id}}')",
        "CALL easeml.drift_on_nodes('shared', %s)",
    ):
        with pytest.raises(psycopg.Error, match=f"a function of role {BEN}, in statistics"):
            anna.execute(call, [SHARED])
    assert anna.value("""SELECT easeml.predict('shared', '{"x": 0.5}')""") in ("a", "b")
