"""Segments that are other servers: who may add them, what is refused, and that no table learns a password."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from psycopg.types.json import Jsonb

from easeml_db.cli import commands
from easeml_db.errors import InvalidArgument, NotAllowed, NotFound, NotReady, ServerUnavailable, VersionMismatch
from easeml_db.local.lock_rights import close_locks, open_rights
from easeml_db.local.server import Embedded
from easeml_db.postgres.nodes.engines import engine_of
from easeml_db.postgres.nodes.nodes import Node, check_facts, look_at, node_error
from tests.citus import GROUPS, make_lookalike
from tests.fixtures.databases import temporary_database
from tests.fixtures.sessions import Session
from tests.nodes import section, two_nodes

if TYPE_CHECKING:
    from click.testing import Result

N_SLOTS = 1
FACTS = {
    "identity": "a", "extension": "0.2.0", "package": "0.2.0",
    "packages": {"torch": {"version": "2", "fault": None}, "numpy": {"version": "1", "fault": None}},
}  # fmt: skip


@pytest.fixture(scope="module")
def services(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Session]]:
    """Two nodes, databases of the private server, with further services: one bare, one away, one that is east again."""
    folder = tmp_path_factory.mktemp("services")
    with two_nodes(private_server, folder) as nodes, temporary_database(private_server) as bare:
        with (folder / "pg_service.conf").open("a") as file:
            file.write(section("pg_bare", bare) + section("pg_again", nodes["east"].dsn))
            file.write("[pg_away]\nhost=127.0.0.1\nport=1\npassword=hunter2\n")
        yield {f"pg_{name}": node for name, node in nodes.items()}


def easeml(database: Session, *arguments: str) -> Result:
    return CliRunner().invoke(commands, [*arguments, "--dsn", database.dsn])


def test_a_server_is_added_with_what_it_says_of_itself(control: Session, services: dict[str, Session]) -> None:
    done = easeml(control, "segment", "add", "east", "--service", "pg_east")
    assert done.exit_code == 0, done.output
    facts = control.value("SELECT easeml.segment_facts('east')")
    assert facts["identity"] == services["pg_east"].value("SELECT identity FROM easeml_segment.node")
    assert facts["packages"]["torch"]["version"]
    assert facts["devices"][0] == "cpu"
    assert control.rows("SELECT service, engine, refusal FROM easeml.segment_status WHERE segment_name = 'east'") == [
        {"service": "pg_east", "engine": "postgres", "refusal": None}
    ]
    same = easeml(control, "segment", "add", "again", "--service", "pg_again")
    assert isinstance(same.exception, NotAllowed)
    assert "the same server as segment 'east'" in str(same.exception)
    assert control.values("SELECT segment_name FROM easeml.segments ORDER BY 1") == ["east", "local"]


def test_a_server_serves_one_control_server(control: Session, database: Session, services: dict[str, Session]) -> None:
    assert easeml(control, "segment", "add", "west", "--service", "pg_west").exit_code == 0
    other = easeml(database, "segment", "add", "west", "--service", "pg_west")
    assert isinstance(other.exception, NotAllowed)
    assert "service pg_west: this node serves another segment already" in str(other.exception)
    services["pg_west"].execute("SELECT easeml_segment.release()")
    assert easeml(database, "segment", "add", "west", "--service", "pg_west").exit_code == 0


@pytest.mark.parametrize(
    ("service", "error", "words"),
    [
        ("pg_nowhere", InvalidArgument, "there is no service of that name"),
        ("pg_bare", NotReady, "has no extension easeml_segment"),
        ("pg_away", Exception, "the server cannot be reached"),
    ],
)
def test_a_server_that_does_not_fit_is_refused_before_anything_is_written(
    control: Session, services: dict[str, Session], service: str, error: type[Exception], words: str
) -> None:
    refused = easeml(control, "segment", "add", "north", "--service", service)
    assert isinstance(refused.exception, error)
    assert f"service {service}: " in str(refused.exception)
    assert words in str(refused.exception)
    assert "hunter2" not in str(refused.exception) + refused.output
    assert control.values("SELECT segment_name FROM easeml.segments WHERE segment_name = 'north'") == []


def test_a_role_without_rights_on_the_node_is_told_what_it_lacks(services: dict[str, Session]) -> None:
    services["pg_east"].as_role("stranger").close()
    path = Path(os.environ["PGSERVICEFILE"])
    dsn = psycopg.conninfo.make_conninfo(services["pg_east"].dsn, user="stranger")
    path.write_text(path.read_text() + section("pg_stranger", dsn))
    with pytest.raises(NotAllowed, match="may not use easeml_segment"):
        look_at(Node(2, "stranger", "pg_stranger", "token"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('connection to server at "10.0.0.7", port 5432 failed: Connection refused', "the server cannot be reached"),
        ('at "10.0.0.7" failed: FATAL: password authentication failed for user "u"', "refuses the connection"),
        ('at "10.0.0.7" failed: FATAL: database "nodb" does not exist', "refuses the connection"),
        ('at "10.0.0.7" failed: fe_sendauth: no password supplied', "refuses the connection"),
    ],
)
def test_a_server_that_lets_nobody_in_is_told_apart_from_one_that_is_away(text: str, words: str) -> None:
    found = node_error("pg_east", psycopg.OperationalError(text))
    assert isinstance(found, ServerUnavailable)
    assert words in found.message
    assert "10.0.0.7" not in found.message
    assert "pg_service.conf" in (found.hint or "")


@pytest.mark.usefixtures("services")
def test_installing_needs_a_superuser_and_a_role_before_anything_is_written(private_server: Embedded) -> None:
    with temporary_database(private_server) as dsn, Session.open(dsn) as fresh:
        fresh.as_role("no_superuser").close()
        path = Path(os.environ["PGSERVICEFILE"])
        mean = psycopg.conninfo.make_conninfo(dsn, user="no_superuser")
        path.write_text(path.read_text() + section("pg_fresh", dsn) + section("pg_mean", mean))
        refused = CliRunner().invoke(commands, ["segment", "install", "pg_mean"])
        assert isinstance(refused.exception, NotAllowed)
        assert str(refused.exception) == "service pg_mean: its role no_superuser is no superuser there"
        refused = CliRunner().invoke(commands, ["segment", "install", "pg_fresh", "--grant", "nobody_there"])
        assert isinstance(refused.exception, NotFound)
        assert str(refused.exception) == "service pg_fresh: there is no role nobody_there on that server"
        assert fresh.rows("SELECT FROM pg_extension WHERE extname = 'easeml_segment'") == []
        fresh.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(fresh.info.dbname)))
        done = CliRunner().invoke(commands, ["segment", "install", "pg_fresh", "--grant", "no_superuser"])
        assert done.exit_code == 0, done.output
        assert "works there as role no_superuser" in done.output
        with Session.open(mean) as service:  # packing does
            service.execute("CREATE TEMPORARY TABLE t ()")


@pytest.mark.usefixtures("services")
def test_a_node_keeps_temporary_tables_where_everybody_else_loses_them(private_server: Embedded) -> None:
    with temporary_database(private_server) as dsn, Session.open(dsn) as both:
        for extension in ("easeml", "easeml_segment"):
            both.execute(f"CREATE EXTENSION {extension} CASCADE")
        service, other = both.as_role("of_node", "easeml_segment"), both.as_role("of_nobody")
        close_locks(both)
        assert open_rights(both) == []
        service.execute("CREATE TEMPORARY TABLE t ()")
        with pytest.raises(psycopg.Error, match="permission denied"):
            other.execute("CREATE TEMPORARY TABLE t ()")


@pytest.mark.usefixtures("services")
def test_installing_says_of_an_extension_of_another_version_what_to_do(private_server: Embedded) -> None:
    with temporary_database(private_server) as dsn, Session.open(dsn) as old:
        path = Path(os.environ["PGSERVICEFILE"])
        path.write_text(path.read_text() + section("pg_old", dsn))
        old.execute("CREATE EXTENSION easeml_segment CASCADE")
        for version, words in (("0.0.1", "from which no way leads to"), ("99.0.0", "this package is")):
            old.execute("UPDATE pg_extension SET extversion = %s WHERE extname = 'easeml_segment'", [version])
            refused = CliRunner().invoke(commands, ["segment", "install", "pg_old"])
            assert isinstance(refused.exception, VersionMismatch)
            assert f"service pg_old: the database has extension easeml_segment {version}" in str(refused.exception)
            assert words in str(refused.exception)


@pytest.mark.parametrize("facts", [None, {"holder": "another segment's"}])
def test_a_server_that_never_fitted_is_given_no_rows(control: Session, facts: dict[str, str] | None) -> None:
    control.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots ORDER BY slot_id")
    for name, service in (("near", None), ("odd", "pg_odd")):
        control.execute("SELECT easeml.add_segment(%s, service => %s)", [name, service])
        control.execute("SELECT easeml.add_slots(1, %s)", [name])
    note = "SELECT easeml.note_segment(segment_id, %s, 'service pg_odd: no') FROM easeml.segments"
    control.execute(f"{note} WHERE segment_name = 'odd'", [Jsonb(facts) if facts else None])
    rows = "SELECT g AS x, g % 2 AS y FROM generate_series(1, 400) g"
    control.execute(f"CREATE TABLE IF NOT EXISTS rows_of_segments AS {rows}")
    control.execute(
        "SELECT easeml.create_dataset('rows', 'rows_of_segments', '{x}', 'y', n_partitions => 4, placement => 'bound')"
    )
    holders = "SELECT DISTINCT holders FROM easeml.partition_status WHERE dataset_name = 'rows'"
    assert control.values(holders) == [["near"]]
    with pytest.raises(psycopg.Error, match=r"source: segment 'odd' is refused: service pg_odd: no"):
        control.execute("SELECT easeml.create_dataset('far', '{\"odd\": \"public.t\"}', '{x}', 'y')")
    control.execute("SELECT easeml.drop_dataset('rows')")
    control.execute("SELECT easeml.remove_slot(slot_id, force => true) FROM easeml.slots")
    control.execute("SELECT easeml.remove_segment(name) FROM unnest(ARRAY['near', 'odd']) name")
    control.execute("SELECT easeml.set_slots(1)")


def test_a_node_of_another_version_or_without_torch_is_refused_by_name() -> None:
    check_facts("pg_east", FACTS, engine_of("postgres", None))
    for name in ("extension", "package"):
        with pytest.raises(VersionMismatch, match=rf"service pg_east: its {name} easeml_\w+ is 0\.1\.9"):
            check_facts("pg_east", FACTS | {name: "0.1.9"}, engine_of("postgres", None))
    lacking = FACTS | {
        "packages": {"torch": {"version": None, "fault": "ModuleNotFoundError: No module named 'torch'"}}
    }
    with pytest.raises(NotReady, match="cannot import torch"):
        check_facts("pg_east", lacking, engine_of("postgres", None))


def test_a_worker_of_citus_is_one_of_a_cluster_and_of_a_version_that_is_known() -> None:
    citus = {"version": "12.1-1", "group": 1, "name": "127.0.0.1", "port": 9701}
    check_facts("pg_w1", FACTS | {"citus": citus}, engine_of("citus", None))
    with pytest.raises(NotReady, match="service pg_w1: its database has no extension citus"):
        check_facts("pg_w1", FACTS, engine_of("citus", None))
    with pytest.raises(VersionMismatch, match=r"service pg_w1: its Citus is 11\.3-1, expected 12 or newer"):
        check_facts("pg_w1", FACTS | {"citus": citus | {"version": "11.3-1"}}, engine_of("citus", None))
    with pytest.raises(NotReady, match="service pg_w1: its Citus knows no cluster that it belongs to"):
        check_facts("pg_w1", FACTS | {"citus": citus | {"name": None}}, engine_of("citus", None))


def test_a_worker_is_added_with_what_citus_says_of_it(control: Session, services: dict[str, Session]) -> None:
    refused = easeml(control, "segment", "add", "w1", "--service", "pg_west", "--engine", "citus")
    assert isinstance(refused.exception, NotReady)
    services["pg_west"].execute("SELECT easeml_segment.release()")
    make_lookalike(services["pg_west"], GROUPS["west"])
    done = easeml(control, "segment", "add", "w1", "--service", "pg_west", "--engine", "citus")
    assert done.exit_code == 0, done.output
    facts = control.value("SELECT easeml.segment_facts('w1')")
    assert facts["citus"] == {"version": "12.1-1", "group": 2, "name": "127.0.0.1", "port": 9702}
    services["pg_west"].execute("SELECT easeml_segment.release()")


@pytest.mark.parametrize(
    "words",
    ['could not open extension control file "/usr/share/postgresql/15/extension/plpython3u.control"',
     'required extension "plpython3u" is not installed', 'could not load library "plpython3.so"'],
)  # fmt: skip
def test_a_node_without_plpython_is_told_what_it_lacks(words: str) -> None:
    found = node_error("pg_east", psycopg.errors.FeatureNotSupported(words))
    assert isinstance(found, NotReady)
    assert str(found) == "service pg_east: its server has no PL/Python (plpython3u)"


def test_a_connection_string_is_no_service_and_no_error_repeats_it(control: Session) -> None:
    with pytest.raises(psycopg.Error, match="expected the name of a libpq service") as refused:
        control.execute("SELECT easeml.add_segment('north', service => %s)", ["host=h password=hunter2"])
    assert refused.value.sqlstate == "ML001"
    assert "hunter2" not in str(refused.value)


def test_tenants_neither_add_servers_nor_read_what_they_say(control: Session) -> None:
    tenant = control.as_role("tenant_of_segments", "easeml_tenant")
    for statement in (
        "SELECT easeml.add_segment('mine', service => 'pg_east')",
        "SELECT easeml.segment_facts('local')",
        "SELECT easeml.note_segment(1, '{}', NULL)",
        "SELECT token FROM easeml.segments",
        "SELECT facts FROM easeml.segments",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            tenant.execute(statement)
    assert tenant.value("SELECT count(*) FROM easeml.segment_status") >= 1


def test_nobody_but_its_members_works_on_a_node(services: dict[str, Session]) -> None:
    stranger = services["pg_east"].as_role("stranger")
    for statement in (
        "SELECT easeml_segment.node_facts()",
        "TABLE easeml_segment.version_blocks",
        "CALL easeml_segment.train_on_node('{}', '{}')",
        "SELECT easeml_segment.release()",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(statement)


@pytest.fixture
def control(module_database: Session) -> Iterator[Session]:
    """`module_database`, without the segments that a test has added."""
    yield module_database
    module_database.execute("DELETE FROM easeml.segments WHERE segment_id > 1")
