"""A dump comes back whole by every way that PostgreSQL's own programs offer; what cannot come back is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from easeml_db.errors import InvalidData
from easeml_db.local.by_owner.archive import read_archive
from easeml_db.local.server import Embedded

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from stored_rows.catalogue_rows import TINY, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

# What belongs to a server's life or to the restore itself. Roles have other numbers on another server.
NOT_COMPARED = {"coordinators", "coordinator_lease", "dumps", "restored_tables", "tenant_roles", "lock_holders"}
NEWER = "UPDATE pg_extension SET extversion = '99.0.0' WHERE extname = 'easeml'"
ENDED = """SELECT count(*) = 0 FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'pg_restore' AND datname = current_database()) ended"""
SECTIONS = ("pre-data", "data", "post-data")


def call(*arguments: str, is_fine: bool = True) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == is_fine, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def filled(module_database: Session) -> Session:
    for i in range(1, TINY.n_tenants + 1):
        module_database.as_role(f"tenant_{i}").close()
    fill(module_database, TINY)
    module_database.execute("INSERT INTO easeml.segments (segment_name) VALUES ('east')")
    module_database.execute("INSERT INTO easeml.price_lists (price_list) VALUES ('mine')")
    return module_database


@pytest.fixture(scope="module")
def dumps(filled: Session, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Dumps by name; those of sections and of rows only need the others."""
    folder = tmp_path_factory.mktemp("dumps")
    kinds = {
        "custom": ["-Fc"], "directory": ["-Fd", "-j2"], "plain": ["-Fp"], "inserts": ["-Fp", "--inserts"],
        "rows": ["-Fp", "--data-only"], "untriggered": ["-Fc", "--data-only"],
    }  # fmt: skip
    for name, options in kinds.items():
        call("pg_dump", filled.dsn, *options, f"--file={folder / name}")
    return {name: str(folder / name) for name in kinds}


@pytest.fixture
def target(filled: Session, private_server: Embedded, dsn: str) -> Iterator[Session]:
    """An empty database beside the filled one."""
    with type(filled).open(dsn) as session:
        yield session


def tables(database: Session) -> list[str]:
    return database.values(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'r' ORDER BY 1"
    )


def contents(database: Session) -> dict[str, Any]:
    """Of every table the number of rows and a hash over all of them; of sequences the next number."""
    found = {
        table: database.rows(
            "SELECT count(*) AS n, md5(string_agg(t::text, ';' ORDER BY t::text)) AS hash FROM easeml." + table + " t"
        )
        for table in set(tables(database)) - NOT_COMPARED
    }
    sequences = "SELECT sequencename::text, last_value FROM pg_sequences WHERE schemaname = 'easeml' ORDER BY 1"
    return found | {"sequences": database.rows(sequences)}


def assert_whole(restored: Session, filled: Session) -> None:
    assert contents(restored) == contents(filled)
    restored.execute("DELETE FROM easeml.slots WHERE slot_id = 1")  # who uses the database before does not matter
    assert "all foreign keys hold" in restored.value("SELECT easeml.finish_restore()")
    assert restored.value("SELECT count(*) FROM easeml.restored_tables") == 0
    # Foreign keys are checked again, in the session of a restore as in others.
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        restored.execute("INSERT INTO easeml.events (tenant, run_id, kind, message) VALUES ('x', -1, '', '')")


WAYS: dict[str, Callable[[str, dict[str, str]], list[list[str]]]] = {
    "one job": lambda to, dumps: [["pg_restore", "-e", "-j1", "-d", to, dumps["custom"]]],
    "four jobs": lambda to, dumps: [["pg_restore", "-e", "-j4", "-d", to, dumps["custom"]]],
    "four jobs of a directory": lambda to, dumps: [["pg_restore", "-e", "-j4", "-d", to, dumps["directory"]]],
    "one transaction": lambda to, dumps: [["pg_restore", "-e", "-1", "-d", to, dumps["custom"]]],
    "sections": lambda to, dumps: [
        ["pg_restore", "-e", "-j2", f"--section={section}", "-d", to, dumps["custom"]] for section in SECTIONS
    ],
    "plain": lambda to, dumps: [["psql", to, "-q", "-v", "ON_ERROR_STOP=1", "-f", dumps["plain"]]],
    "inserts": lambda to, dumps: [["psql", to, "-q", "-v", "ON_ERROR_STOP=1", "-f", dumps["inserts"]]],
    "rows only": lambda to, dumps: [
        ["psql", to, "-q", "-c", "CREATE EXTENSION easeml CASCADE"],
        ["psql", to, "-q", "-v", "ON_ERROR_STOP=1", "-f", dumps["rows"]],
    ],
    "no owners": lambda to, dumps: [["pg_restore", "-e", "-j4", "-O", "-x", "-d", to, dumps["custom"]]],
}


def test_the_contents_of_a_dump_are_those_that_pg_restore_lists(dumps: dict[str, str]) -> None:
    for form in ("custom", "directory"):
        listed = [line for line in call_out("pg_restore", "-l", dumps[form]).splitlines() if not line.startswith(";")]
        entries = read_archive(Path(dumps[form]))
        assert (
            len(entries) == len(listed) + 4
        )  # the database, and what it sets: encoding, syntax of strings, search path
        shown = {entry.number: entry for entry in entries}
        for line in listed:
            entry = shown[int(line.split(";")[0])]
            assert f" {entry.kind} {entry.schema or '-'} {entry.tag} {entry.owner}".rstrip() in line
    with pytest.raises(InvalidData, match="no table of contents that this version can read"):
        read_archive(Path(dumps["plain"]))


@pytest.mark.parametrize("way", WAYS)
def test_a_dump_comes_back_whole(way: str, filled: Session, dumps: dict[str, str], target: Session) -> None:
    for arguments in WAYS[way](target.dsn, dumps):
        call(*arguments)
    assert_whole(target, filled)


def test_a_dump_without_triggers_comes_back_whole(filled: Session, dumps: dict[str, str], target: Session) -> None:
    target.execute("CREATE EXTENSION easeml CASCADE")
    call("pg_restore", "-e", "-j4", "--disable-triggers", "-d", target.dsn, dumps["untriggered"])
    assert contents(target) == contents(filled)
    assert target.value("SELECT easeml.broken_references()") is None


def test_where_roles_are_missing_rows_wait_for_them(
    filled: Session, dumps: dict[str, str], own_server: Embedded
) -> None:
    with type(filled).open(own_server.dsn(database="postgres")) as session:
        session.execute("CREATE DATABASE restored TEMPLATE template0")
    with type(filled).open(own_server.dsn(database="restored")) as restored:
        call("pg_restore", "-e", "-j4", "-d", restored.dsn, dumps["custom"])
        assert_whole(restored, filled)
        assert restored.value("SELECT count(*) FROM easeml.tenant_roles WHERE role IS NULL") == TINY.n_tenants
        restored.execute("CREATE ROLE someone")
        restored.execute("SELECT easeml.adopt_tenant('tenant_1', 'someone')")


def test_an_interrupted_restore_can_be_run_again(filled: Session, dumps: dict[str, str], target: Session) -> None:
    # Somebody holds a table that comes in the middle, so that the restore stands still and is killed there.
    call("pg_restore", "-e", "--section=pre-data", "-d", target.dsn, dumps["custom"])
    with type(filled).open(target.dsn) as other, other.transaction():
        other.execute("LOCK TABLE easeml.training_units IN EXCLUSIVE MODE")
        half = subprocess.Popen(["pg_restore", "--section=data", "-d", target.dsn, dumps["custom"]])
        target.wait_until("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        half.kill()
        half.wait()
        target.wait_until(ENDED)
    with pytest.raises(psycopg.Error, match="restored in part only") as refused:
        target.execute("SELECT easeml.finish_restore()")
    assert refused.value.sqlstate == "ML004"
    target.close()
    call("pg_restore", "-e", "-j4", "--clean", "--if-exists", "-d", target.dsn, dumps["custom"])
    with type(filled).open(target.dsn) as again:
        assert_whole(again, filled)


def test_a_coordinator_does_not_begin_on_half_a_restore(
    filled: Session, dumps: dict[str, str], target: Session
) -> None:
    listed = call_out("pg_restore", "-l", dumps["custom"])
    kept = [line for line in listed.splitlines() if "TABLE DATA easeml trials " not in line]
    (Path(dumps["custom"] + ".list")).write_text("\n".join(kept))
    call("pg_restore", "-e", "-j4", "-L", dumps["custom"] + ".list", "-d", target.dsn, dumps["custom"])
    target.execute("GRANT easeml_coordinator TO easeml_service")
    said = call(
        sys.executable, "-m", "easeml_db", "coordinator", "--dsn", f"{target.dsn} user=easeml_service", is_fine=False
    )
    assert "restored in part only" in said
    for table in ("checkpoints", "training_units", "evaluations", "epoch_metrics"):
        assert f"row(s) of easeml.{table} name rows of easeml.trials that are not there" in said
    assert len(said.splitlines()) == 3  # that it is up, the error, its hint


def call_out(*arguments: str) -> str:
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


def test_tables_that_were_left_out_are_accepted_only_when_somebody_says_so(
    filled: Session, target: Session, tmp_path: Path
) -> None:
    file = str(tmp_path / "partial")
    call("pg_dump", filled.dsn, "-Fc", "--exclude-table-data=easeml.events", f"--file={file}")
    call("pg_restore", "-e", "-d", target.dsn, file)
    with pytest.raises(psycopg.Error, match=r"easeml\.events got 0 of 36 row\(s\)"):
        target.execute("SELECT easeml.finish_restore()")
    assert target.value("SELECT easeml.finish_restore(allow_missing => true)") == "all foreign keys hold"


def test_a_restore_over_a_database_with_rows_is_refused(
    filled: Session, dumps: dict[str, str], target: Session
) -> None:
    call("pg_restore", "-e", "-d", target.dsn, dumps["custom"])
    before = contents(target)
    said = call("pg_restore", "-e", "--section=data", "-d", target.dsn, dumps["custom"], is_fine=False)
    assert "has rows already: a dump is restored into a database without any" in said
    assert "HINT:  Restore into a new database" in said
    assert contents(target) == before


def test_the_dump_of_a_newer_version_is_refused(filled: Session, target: Session, tmp_path: Path) -> None:
    file = str(tmp_path / "newer")
    filled.execute(NEWER)
    try:
        call("pg_dump", filled.dsn, "-Fc", f"--file={file}")
    finally:
        filled.execute(
            NEWER.replace(
                "99.0.0", filled.value("SELECT default_version FROM pg_available_extensions WHERE name = 'easeml'")
            )
        )
    said = call("pg_restore", "-e", "-d", target.dsn, file, is_fine=False)
    assert "the dump was made with easeml 99.0.0, and this server has" in said
    assert "HINT:  Install easeml-db 99.0.0 or newer here" in said


def test_what_functions_insert_in_such_a_session_is_no_restore(target: Session) -> None:
    target.execute("CREATE EXTENSION easeml CASCADE")
    for name, value in (("search_path", ""), ("row_security", "off"), ("check_function_bodies", "off")):
        target.execute("SELECT set_config(%s, %s, false)", [name, value])
    target.execute("SELECT easeml.create_tenant('tenant_1')")
    assert target.value("SELECT count(*) FROM easeml.restored_tables") == 0
    target.execute("INSERT INTO easeml.tenant_usage VALUES ('tenant_1', 1)")
    assert target.values("SELECT table_name::text FROM easeml.restored_tables") == ["tenant_usage"]
    assert target.value("SELECT current_setting('session_replication_role')") == "origin"
