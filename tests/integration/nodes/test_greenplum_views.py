"""Users of a Greenplum cluster start runs and read leaderboards from inside.

Where EASEML_TEST_GREENPLUM names the coordinator of a real cluster, all of this happens there; else in a database of
its own that has nothing of easeml. Roles are made where they are missing: their names are of this file alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict

from easeml_db.cli import commands
from tests.fixtures.databases import temporary_database
from tests.fixtures.sessions import Session
from tests.greenplum import DSN, real
from tests.nodes import service_file

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

    Inside = Callable[[str], Session]

N_SLOTS = 1
ANN, BOB, STRANGER = "insider_ann", "insider_bob", "insider_stranger"
# PostgreSQL 9.4 knows := only.
SELECT = "SELECT easeml.select_models('pairs', architectures := '{{linear}}', n_configs := 2, max_epochs := {})"
VIEWS = """
SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'easeml' AND c.relkind = 'v' ORDER BY 1
"""
OBJECTS = "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'easeml'"
LEADERBOARD = "SELECT run_id, rank, trial_id, architecture, validation_metric FROM {} ORDER BY rank, trial_id"
ASKING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'easeml_inside' AND datname = %s"


@pytest.fixture(scope="module")
def tenants(module_coordinated: Session) -> dict[str, Session]:
    """Ann and Bob on the control server, and a table of Ann's there."""
    sessions = {name: module_coordinated.as_role(name, "easeml_tenant") for name in (ANN, BOB)}
    module_coordinated.execute("CREATE TABLE pairs AS SELECT i AS x, i % 2 = 0 AS y FROM generate_series(1, 40) i")
    module_coordinated.execute(f"ALTER TABLE pairs OWNER TO {ANN}")
    return sessions


@pytest.fixture(scope="module")
def cluster(private_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A superuser's session in a database of the cluster, by the service pg_inside."""
    with ExitStack() as stack:
        if DSN in os.environ:
            database = stack.enter_context(real(os.environ[DSN]))
        else:
            database = stack.enter_context(Session.open(stack.enter_context(temporary_database(private_server))))
        stack.enter_context(service_file(tmp_path_factory.mktemp("services"), {"pg_inside": database.dsn}))
        yield database


@pytest.fixture
def asked(module_database: Session) -> Callable[..., str]:
    """`asked(option, ...)` gives easeml segment views; returns what it said, as one line."""
    place = conninfo_to_dict(module_database.dsn)
    start = ["segment", "views", "pg_inside", "--dsn", module_database.dsn]

    def ask(*options: str) -> str:
        given = options or ("--host", str(place["host"]))
        done = CliRunner().invoke(commands, [*start, *given])
        told = [done.output, *map(str, [done.exception] if done.exception else [])]
        hint = getattr(done.exception, "hint", None)
        return " ".join(" ".join([*told, hint or ""]).split())

    return ask


@pytest.fixture
def inside(cluster: Session, tenants: dict[str, Session], asked: Callable[..., str]) -> Inside:
    """`inside(role)`: a session of an ordinary role in the database of the cluster, which has the views."""
    assert "schema easeml is there now" in asked()
    return cluster.as_role


def failed(session: Session, statement: str) -> psycopg.errors.Diagnostic:
    """What a statement is refused with."""
    with pytest.raises(psycopg.Error) as refused:
        session.rows(statement)
    return refused.value.diag


def test_a_user_of_the_cluster_packs_trains_waits_and_reads_from_inside(
    inside: Inside, tenants: dict[str, Session]
) -> None:
    ann, bob = inside(ANN), inside(BOB)
    dataset = ann.value("SELECT easeml.create_dataset('pairs', 'public.pairs', '{x}', 'y', n_partitions := 2)")
    assert tenants[ANN].values("SELECT dataset_id FROM easeml.datasets WHERE dataset_name = 'pairs'") == [dataset]
    run_id = ann.value(SELECT.format(2))
    assert ann.value("SELECT easeml.wait(%s::bigint)", run_id) == "finished"
    assert ann.value("SELECT status FROM easeml.run_status WHERE run_id = %s", run_id) == "finished"
    ann.execute("SET extra_float_digits TO 3")  # PostgreSQL 9.4 shows 15 digits
    there = tenants[ANN].rows(LEADERBOARD.format("easeml.leaderboard"))
    assert len(there) == 2
    assert ann.rows(LEADERBOARD.format("easeml.leaderboard")) == there
    assert ann.rows(LEADERBOARD.format(f"easeml.leaderboard({run_id})")) == there
    assert ann.rows(LEADERBOARD.format(f"easeml.leaderboard({run_id + 1})")) == []
    # Everybody has their own rows, and nobody ends what is another's.
    assert bob.rows(LEADERBOARD.format("easeml.leaderboard")) == []
    assert "no run" in (failed(bob, f"SELECT easeml.drop_run({run_id})").message_primary or "")
    # An error there is the same error here.
    refused = failed(ann, SELECT.format(0))
    assert (refused.sqlstate, refused.message_primary) == ("ML001", "max_epochs: expected 1 to 1000000, got 0")
    # What is asked for exactly is what arrives.
    max_seconds = "max_seconds := 0.30000000000000004"
    other = ann.value(SELECT.format(1).replace("max_epochs := 1", max_seconds))
    assert tenants[ANN].value("SELECT max_seconds FROM easeml.runs WHERE run_id = %s", other) == 0.1 + 0.2
    ann.execute("SELECT easeml.wait(%s::bigint), easeml.drop_run(%s, force := true)", [other, other])
    ann.execute("SELECT easeml.drop_run(%s, force := true)", [run_id])
    assert ann.rows(LEADERBOARD.format("easeml.leaderboard")) == []
    ann.execute("SELECT easeml.drop_dataset('pairs')")


def test_rows_of_the_cluster_meet_those_of_the_control_server(inside: Inside, cluster: Session) -> None:
    end = "DISTRIBUTED BY (name)" if DSN in os.environ else ""
    cluster.execute(f"CREATE TABLE public.known AS SELECT 'linear'::text AS name, 7 AS n {end}")
    cluster.execute("GRANT SELECT ON public.known TO PUBLIC")
    ann = inside(ANN)
    assert ann.values("SELECT n FROM public.known k JOIN easeml.architectures a ON a.architecture = k.name") == [7]
    assert ann.values("SELECT count(*) FROM easeml.slot_status") == [1]


def test_every_view_of_the_control_server_can_be_read_inside(inside: Inside, tenants: dict[str, Session]) -> None:
    ann = inside(ANN)
    views = ann.values(VIEWS)
    assert {"leaderboard", "run_status", "dataset_info", "training_timeline"} <= set(views)
    for view in views:
        here, there = (session.execute(f"SELECT * FROM easeml.{view} LIMIT 0") for session in (ann, tenants[ANN]))
        assert [column.name for column in here.description or ()] == [column.name for column in there.description or ()]
        ann.rows(f"SELECT * FROM easeml.{view}")


def test_a_wait_inside_can_be_ended_and_leaves_nothing_on_the_control_server(
    inside: Inside, tenants: dict[str, Session], module_database: Session
) -> None:
    ann = inside(ANN)
    ann.execute("SELECT easeml.create_dataset('endless', 'public.pairs', '{x}', 'y', n_partitions := 2)")
    run_id = ann.value(SELECT.format(100_000).replace("pairs", "endless"))
    ann.execute("SET statement_timeout TO '2s'")
    assert failed(ann, f"SELECT easeml.wait({run_id})").sqlstate == "57014"
    ann.execute("RESET statement_timeout")
    module_database.wait_until(
        ASKING.replace("count(*)", "count(*) = 0"), module_database.value("SELECT current_database()")
    )
    # The session goes on.
    ann.execute("SELECT easeml.cancel(%s)", [run_id])
    assert ann.value("SELECT easeml.wait(%s::bigint)", run_id) == "cancelled"
    ann.execute("SELECT easeml.drop_dataset('endless', cascade := true)")


def test_who_is_nobody_on_the_control_server_is_told_so(inside: Inside, cluster: Session) -> None:
    stranger = inside(STRANGER)
    if DSN not in os.environ:  # the roles of this server are those of the control server
        cluster.execute(f"ALTER ROLE {STRANGER} NOLOGIN")
    refused = failed(stranger, "SELECT * FROM easeml.leaderboard")
    assert refused.sqlstate == "ML012"
    assert refused.message_primary == f"the control server of easeml cannot be reached as role {STRANGER}"
    assert STRANGER in (refused.message_detail or "")
    assert ".pgpass" in (refused.message_hint or "")
    # A superuser's session does things for others: no function in one is believed to be its own.
    assert "nobody on the control server" in (failed(cluster, "SELECT * FROM easeml.leaderboard").message_primary or "")


def test_nobody_asks_the_control_server_for_anything_but_these_views_and_functions(
    inside: Inside, cluster: Session
) -> None:
    ann = inside(ANN)
    assert failed(ann, "SELECT * FROM easeml.asked('SELECT 1', 'a int') AS t (a int)").sqlstate == "42501"
    for name in ("nothing", "leaderboard; DROP TABLE pairs"):
        nothing = failed(ann, f"SELECT * FROM easeml.rows_of('{name}', NULL) AS t (a int)")
        assert nothing.message_primary == f"schema easeml has no view '{name}'"
    assert failed(ann, "SELECT easeml.drop_dataset('it''s'::text)").sqlstate == "ML003"
    if DSN in os.environ:
        cluster.execute("CREATE TABLE public.numbers AS SELECT 1::bigint AS i DISTRIBUTED BY (i)")
        cluster.execute("GRANT SELECT ON public.numbers TO PUBLIC")
        there = failed(ann, "SELECT easeml.cancel(i) FROM public.numbers")
        assert "cannot run on segments" in (there.message_primary or "")


def test_the_schema_is_made_anew_and_removed_and_nobody_loses_anything(
    inside: Inside, cluster: Session, asked: Callable[..., str]
) -> None:
    cluster.execute("CREATE VIEW public.best AS SELECT * FROM easeml.leaderboard WHERE rank = 1")
    before = cluster.values(VIEWS), cluster.value(OBJECTS)
    # What an older version had goes, and what it lacked comes.
    cluster.execute("CREATE FUNCTION easeml.select_models(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'")
    cluster.execute("CREATE VIEW easeml.of_old AS SELECT 1 AS one; DROP FUNCTION easeml.cancel(bigint)")
    assert "schema easeml is there now" in asked()
    assert (cluster.values(VIEWS), cluster.value(OBJECTS)) == before
    assert inside(ANN).values("SELECT architecture FROM easeml.architectures WHERE architecture = 'mlp'") == ["mlp"]
    said = asked("--remove")
    assert "other objects depend" in said
    assert cluster.values(VIEWS) == before[0]
    cluster.execute("DROP VIEW public.best")
    for _ in range(2):
        assert "schema easeml is removed there" in asked("--remove")
        assert cluster.values("SELECT 1 FROM pg_namespace WHERE nspname = 'easeml'") == []
    # A schema of that name is somebody's own.
    cluster.execute("CREATE SCHEMA easeml")
    for options in ((), ("--remove",)):
        assert "easeml.install_greenplum_views has not made" in asked(*options)
    cluster.execute("DROP SCHEMA easeml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "expected service or host"),
        ("service => 'pg_control', host => 'control'", "expected service or host"),
        ("service => 'host=control password=secret'", "service: expected the name of a libpq service"),
        ("host => 'control password=secret'", "host: expected the name or address"),
        ("service => 'pg_control', port => 5432", "port, dbname: expected NULL with a service"),
        ("host => 'control', port => 0", "port: expected 1 to 65535, got 0"),
    ],
)
def test_an_address_is_a_service_or_a_host_and_has_no_secret(
    module_database: Session, arguments: str, words: str
) -> None:
    refused = failed(module_database, f"SELECT easeml.install_greenplum_views({arguments})")
    assert refused.sqlstate == "ML001"
    assert words in (refused.message_primary or "")
    assert "secret" not in f"{refused.message_primary} {refused.message_detail} {refused.message_hint}"


def test_only_administrators_ask_for_the_script(tenants: dict[str, Session], module_database: Session) -> None:
    for call in ("install_greenplum_views(host => 'control')", "remove_greenplum_views()"):
        assert failed(tenants[BOB], f"SELECT easeml.{call}").sqlstate == "42501"
    script: Any = module_database.value("SELECT easeml.install_greenplum_views(service => 'pg_control')")
    assert "service=''pg_control''" in script
