"""A database is dumped and restored as any other: rows, predictions, privileges and counters survive."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.local.server import Embedded

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

    Coordinator = Callable[[Session], AbstractContextManager[Any]]

N_SLOTS = 1
# What belongs to a server's life, not to its data.
NOT_DUMPED = {"coordinators", "coordinator_lease", "dumps", "restored_tables"}
PREDICT = "SELECT id, easeml.predict('colours', ARRAY[x]) AS label FROM public.mine ORDER BY id"


def finish(database: Session, run_id: int) -> None:
    database.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = %s", run_id)


@pytest.fixture(scope="module")
def finished(module_coordinated: Session) -> tuple[Session, Session]:
    """A database with a finished run, as its superuser and as its tenant ("Erna O'Dump")."""
    root = module_coordinated
    tenant = root.as_role("Erna O'Dump", "easeml_tenant")
    root.execute(
        "SELECT easeml.create_tenant('Erna O''Dump', weight => 2, deadline => '2100-01-01', max_runs => 5,"
        " max_slots => 2, max_bytes => 1000000000, max_hours => 100)"
    )
    root.execute('GRANT CREATE ON SCHEMA public TO "Erna O\'Dump"')
    tenant.execute(
        "CREATE TABLE public.mine AS SELECT i AS id, i % 2 + sin(i) / 3 AS x, chr(97 + i % 2) AS y FROM"
        " generate_series(1, 90) i"
    )
    tenant.execute("SELECT easeml.create_dataset('colours', 'mine', '{x}', 'y', n_partitions => 2)")
    tenant.execute("SELECT easeml.refresh_dataset('colours')")
    finish(
        root, tenant.value("SELECT easeml.select_models('colours', '{linear,mlp}', n_configs => 3, max_epochs => 2)")
    )
    # One with a state in chunks, which is what answers predictions.
    finish(
        root,
        tenant.value(
            "SELECT easeml.select_models('colours', '{mlp}', procedure => 'grid', max_epochs => 1,"
            " search_space => '{\"hidden_units\": [[1024, 1024]]}')"
        ),
    )
    tenant.execute("SELECT easeml.deploy(max(trial_id)) FROM easeml.leaderboard")
    gone = tenant.value("SELECT easeml.select_models('colours', '{linear}', n_configs => 1, max_epochs => 1)")
    finish(root, gone)
    tenant.execute("SELECT easeml.drop_run(%s, force => true)", [gone])
    tenant.execute("SELECT easeml.grant_use('colours', 'easeml_reader')")
    return root, tenant


@contextmanager
def restored_copy(root: Session, server: Embedded, form: str, name: str) -> Iterator[tuple[Session, Session]]:
    """A database, dumped and restored beside itself, as both roles."""
    root.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dump"
        call("pg_dump", root.dsn, f"--format={form}", *(["--compress=0"] if form == "custom" else []), f"--file={file}")
        target = server.dsn(database=name)
        if form == "plain":
            call("psql", target, "--quiet", "--set=ON_ERROR_STOP=1", f"--file={file}")
        else:
            call("pg_restore", "--exit-on-error", f"--dbname={target}", str(file))
    session = type(root).open(target)
    try:
        yield session, session.as_role("Erna O'Dump")
    finally:
        session.close()
        root.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module", params=["plain", "custom"])
def restored(
    request: pytest.FixtureRequest, finished: tuple[Session, Session], private_server: Embedded
) -> Iterator[tuple[Session, Session]]:
    """The finished database in its restored form, in which nothing is changed."""
    with restored_copy(finished[0], private_server, request.param, f"restored_{request.param}") as sessions:
        yield sessions


def call(program: str, *arguments: str) -> None:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "circular" not in done.stderr, done.stderr


def tables(database: Session) -> list[str]:
    return database.values(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'r' ORDER BY 1"
    )


def test_all_rows_are_there(finished: tuple[Session, Session], restored: tuple[Session, Session]) -> None:
    old, new = finished[0], restored[0]
    assert tables(new) == tables(old)
    for table in set(tables(old)) - NOT_DUMPED:
        # The clock of a tenant's starts is not dumped: it counts on the former server.
        row = "to_jsonb(t) - 'paced_until'" if table == "tenant_roles" else "t"
        rows = f"SELECT ({row})::text FROM easeml.{table} t ORDER BY 1"
        assert new.values(rows) == old.values(rows), table
    assert old.value("SELECT count(*) FROM easeml.checkpoints") > 0
    assert old.value("SELECT count(*) FROM easeml.checkpoint_chunks") > 4
    assert new.value("SELECT count(*) FROM easeml.coordinator_lease") == 1
    assert new.value("SELECT count(*) FROM easeml.coordinators") == 0


def test_predictions_are_the_same(finished: tuple[Session, Session], restored: tuple[Session, Session]) -> None:
    assert restored[1].rows(PREDICT) == finished[1].rows(PREDICT)


def test_views_show_the_same(finished: tuple[Session, Session], restored: tuple[Session, Session]) -> None:
    for view in ("leaderboard", "learning_curves", "training_timeline", "run_events", "run_traffic", "dataset_info"):
        rows = f"SELECT v::text FROM easeml.{view} v ORDER BY 1"
        assert restored[1].values(rows) == finished[1].values(rows), view


PRIVILEGES = """
SELECT c.oid::regclass::text AS object, c.relowner::regrole::text AS tenant, c.relrowsecurity,
    (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(c.relacl) a) AS acl,
    (SELECT array_agg(format('%s %s', attname, a) ORDER BY attnum, a::text) FROM pg_attribute, unnest(attacl) a
        WHERE attrelid = c.oid) AS columns,
    (SELECT array_agg(format('%s %s %s %s %s', polname, polcmd, polroles, pg_get_expr(polqual, polrelid),
        pg_get_expr(polwithcheck, polrelid)) ORDER BY polname)
     FROM pg_policy WHERE polrelid = c.oid) AS policies
FROM pg_class c WHERE c.relnamespace = 'easeml'::regnamespace AND c.relkind IN ('r', 'v', 'S')
UNION ALL
SELECT p.oid::regprocedure::text, p.proowner::regrole::text, p.prosecdef,
    (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(p.proacl) a), p.proconfig, NULL
FROM pg_proc p WHERE p.pronamespace = 'easeml'::regnamespace ORDER BY 1
"""


def test_privileges_are_the_same(finished: tuple[Session, Session], restored: tuple[Session, Session]) -> None:
    assert restored[0].rows(PRIVILEGES) == finished[0].rows(PRIVILEGES)


def test_ids_go_on_counting_and_work_goes_on(
    finished: tuple[Session, Session], private_server: Embedded, coordinator: Coordinator
) -> None:
    with restored_copy(finished[0], private_server, "custom", "restored_and_used") as (root, tenant):
        root.execute("SELECT easeml.set_slots(1)")
        with coordinator(root):
            use(root, tenant)
        leases = [each.value("SELECT lease_number FROM easeml.coordinator_lease") for each in (finished[0], root)]
        assert leases[1] > 1_000_000 + leases[0], "what was written under a lost lease is not taken for this one's"
        tenant.execute("SELECT easeml.drop_dataset('colours', cascade => true)")
        assert root.value("SELECT count(*) FROM easeml.checkpoints") == 0
        assert root.value("SELECT count(*) FROM easeml.checkpoint_chunks") == 0


def use(root: Session, tenant: Session) -> None:
    last = root.rows(
        "SELECT max(run_id) AS run, (SELECT max(dataset_id) FROM easeml.datasets) AS dataset FROM easeml.runs"
    )[0]
    assert tenant.value("SELECT easeml.refresh_dataset('colours')") > last["dataset"]
    run_id = tenant.value("SELECT easeml.select_models('colours', '{linear}', n_configs => 1, max_epochs => 1)")
    assert run_id > last["run"]
    finish(root, run_id)


def test_a_restored_server_with_nodes_gives_out_no_number_that_a_node_may_know(database: Session) -> None:
    """Nodes are not restored with it: they may have rows and states that came after the dump."""
    numbers = "SELECT nextval('easeml.datasets_dataset_id_seq'), nextval('easeml.checkpoints_checkpoint_id_seq')"
    (before,) = database.rows(f"SELECT * FROM ({numbers}) n(dataset, state)")
    database.execute("SELECT easeml.leave_numbers_behind()")
    (alone,) = database.rows(f"SELECT * FROM ({numbers}) n(dataset, state)")
    assert alone["dataset"] < before["dataset"] + 1000
    database.execute("SELECT easeml.add_segment('east', service => 'pg_east')")
    database.execute("SELECT easeml.leave_numbers_behind()")
    (beside,) = database.rows(f"SELECT * FROM ({numbers}) n(dataset, state)")
    assert beside["dataset"] > before["dataset"] + 1_000_000
    assert beside["state"] > before["state"] + 1_000_000_000


def test_a_tenant_beyond_its_limits_comes_back_as_it_was(private_server: Embedded, database: Session) -> None:
    tenant = database.as_role("Erna O'Dump")
    database.execute("SELECT easeml.create_tenant('Erna O''Dump')")
    database.execute('CREATE SCHEMA "Erna O\'Dump" AUTHORIZATION "Erna O\'Dump"')
    tenant.execute("CREATE TABLE mine AS SELECT i % 9 AS x, chr(97 + i % 2) AS y FROM generate_series(1, 90) i")
    tenant.execute("SELECT easeml.create_dataset('colours', 'mine', '{x}', 'y', n_partitions => 2)")
    for _ in range(3):
        tenant.execute("SELECT easeml.select_models('colours', '{linear}', n_configs => 1)")
    database.execute("SELECT easeml.alter_tenant('Erna O''Dump', max_runs => 1, max_bytes => 1, max_hours => 1e-9)")
    database.execute("INSERT INTO easeml.tenant_usage VALUES ('Erna O''Dump', 1000)")
    status = "SELECT max_runs, max_bytes, n_open_runs, used_bytes, used_hours FROM easeml.tenant_status"
    with restored_copy(database, private_server, "custom", "restored_beyond") as (root, again):
        assert root.rows(status) == database.rows(status)
        assert root.value("SELECT n_open_runs FROM easeml.tenant_status") == 3
        with pytest.raises(psycopg.Error, match="max_runs") as refused:
            again.execute("SELECT easeml.select_models('colours', '{linear}', n_configs => 1)")
        assert refused.value.sqlstate == "ML015"


def test_two_databases_of_one_cluster_have_the_extension(private_server: Embedded, database: Session, dsn: str) -> None:
    with type(database).open(dsn) as other:
        other.execute("CREATE EXTENSION easeml CASCADE")
        assert other.value("SELECT easeml.version()") == database.value("SELECT easeml.version()")
        assert other.rows(PRIVILEGES) == database.rows(PRIVILEGES)
        other.execute("DROP EXTENSION easeml")
        assert tables(other) == []
        other.execute("CREATE EXTENSION easeml")
    assert database.value("SELECT count(*) FROM easeml.architectures") >= 8
