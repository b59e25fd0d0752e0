"""A user at the shell writes a database into a file, and has it again on another server, with tasks and examples."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from psycopg import sql
from psycopg.conninfo import make_conninfo

from easeml_db import __version__
from easeml_db.cli import commands
from easeml_db.errors import EasemlError, InvalidData, NotAllowed, VersionMismatch
from easeml_db.local import restore_places
from easeml_db.local.database_contents import contents_of
from easeml_db.local.preparation import prepare_database
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator
from easeml_db.postgres.connection import connect_now

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from stored_rows.catalogue_rows import TINY, fill

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
PROGRAM = "{input: {[Tensor[2]],[]}, output: {[Tensor[2]],[]}}"
QUICK = json.dumps({"architectures": ["linear"], "max_epochs": 1, "n_configs": 1})
ASKED = "SELECT easeml.infer('heaps', '{0.9,0.2}'::real[])"
DATABASES = "SELECT datname::text FROM pg_database WHERE datname LIKE %s ORDER BY 1"
LET_IN = """SELECT format('%s: %s', a.grantee::regrole, a.privilege_type) FROM pg_database, aclexplode(datacl) a
    WHERE datname = current_database()"""
NEWEST = "UPDATE pg_extension SET extversion = %s WHERE extname = 'easeml'"


def easeml(*arguments: object, is_fine: bool = True) -> Any:
    """What a command printed as JSON, or the error that it ended with."""
    done = CliRunner().invoke(commands, [*map(str, arguments), "--json"], env={"EASEML_DSN": None})
    if is_fine:
        assert done.exit_code == 0, done.output or (done.exception, getattr(done.exception, "detail", None))
        return json.loads(done.stdout)
    assert isinstance(done.exception, EasemlError), done.output or done.exception
    return done.exception


@pytest.fixture(scope="module")
def root(module_coordinated: Session) -> Session:
    """A database in which a tenant has a task with a model."""
    rita = module_coordinated.as_role("rita backs", "easeml_tenant")
    module_coordinated.execute('CREATE SCHEMA cellar AUTHORIZATION "rita backs"')
    rita.execute("SELECT easeml.create_task('heaps', %s, 'cellar', run_options => %s)", [PROGRAM, QUICK])
    for k in range(80):
        # The classes lie apart.
        rita.execute("SELECT easeml.feed('heaps', ARRAY[%s, 0.5]::real[], %s)", [k / 80, str(int(k > 40))])
    rita.execute("UPDATE cellar.heaps_refine SET is_on = false WHERE example_id = 3")
    rita.execute("SELECT easeml.run_task('heaps')")
    module_coordinated.wait_until("SELECT count(*) > 0 FROM easeml.runs WHERE status = 'finished'")
    return module_coordinated


@pytest.fixture(scope="module")
def backup(root: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of that database."""
    file = tmp_path_factory.mktemp("backups") / "heaps.backup"
    made = easeml("backup", file, "--dsn", root.dsn)
    assert made["version"] == __version__
    assert made["n_rows"] > 0
    assert made["n_bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o077 == 0
    return file


@pytest.fixture
def target(root: Session, private_server: Embedded, request: pytest.FixtureRequest) -> Iterator[str]:
    """Connection string of a database that is not there yet; what was made of it goes at the end."""
    name = "into_" + request.node.name.split("[")[0][5:40]
    yield private_server.dsn(database=name)
    for each in root.values(DATABASES, name + "%"):
        root.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(each)))


def test_a_private_server_goes_on_where_another_was(
    root: Session, backup: Path, own_server: Embedded, open_session: Callable[[str], Session]
) -> None:
    own_server.prepare(n_slots=1)
    own_server.start_coordinator()
    wait_for_coordinator(own_server)
    before = root.as_role("rita backs")
    with open_session(own_server.dsn()) as there:
        there.execute("CREATE ROLE stranger LOGIN")  # let in by nobody, and not by the restore
        let_in = there.values(LET_IN)
    done = easeml("restore", backup, "--data", own_server.folder)
    with open_session(own_server.dsn()) as there:
        new = {each for each in there.values(LET_IN) if each not in let_in}
        assert {each.replace('"', "") for each in new} <= {f"{role}: CONNECT" for role in done["new_roles"]}
        assert set(let_in) <= set(there.values(LET_IN))
        assert not there.value("SELECT has_database_privilege('stranger', current_database(), 'CONNECT')")
    assert "all foreign keys hold" in done["check"]
    assert "rita backs" in done["new_roles"]
    assert own_server.coordinator_pid() is not None
    with open_session(make_conninfo(own_server.dsn(), user="rita backs")) as rita:
        assert rita.value(ASKED) == before.value(ASKED)
        report = "SELECT event FROM easeml.task_report('heaps') ORDER BY at, event"
        assert rita.values(report) == before.values(report)
        assert rita.values("SELECT example_id FROM cellar.heaps_refine WHERE NOT is_on") == [3]
        rita.execute("SELECT easeml.feed('heaps', '{0.1,0.5}'::real[], '0')")
        assert rita.value("SELECT max(example_id) FROM cellar.heaps_refine") == 81
    coordinator = own_server.coordinator_pid()
    refused = easeml("restore", backup, "--data", own_server.folder, is_fine=False)
    assert isinstance(refused, NotAllowed)
    assert own_server.coordinator_pid() == coordinator
    assert "has 1 run(s)" in str(refused)


def test_a_database_that_is_not_there_is_made(
    backup: Path, target: str, open_session: Callable[[str], Session]
) -> None:
    assert easeml("restore", backup, "--dsn", target, "--jobs", 2)["new_roles"] == []
    with open_session(target) as restored:
        assert restored.as_role("rita backs").value(ASKED)["label"] in ("0", "1")


def test_a_database_that_holds_something_is_left_alone(
    root: Session, backup: Path, target: str, open_session: Callable[[str], Session]
) -> None:
    easeml("restore", backup, "--dsn", target)
    with open_session(target) as restored:
        restored.execute("CREATE TABLE public.kept AS SELECT 1 AS x")
    refused = easeml("restore", backup, "--dsn", target, is_fine=False)
    assert isinstance(refused, NotAllowed)
    assert "has 1 run(s)" in str(refused)
    assert "table(s)" in str(refused)
    with open_session(target) as restored:
        assert restored.value("SELECT x FROM public.kept") == 1


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("CREATE SEQUENCE public.numbers", "1 sequence(s)"),
        ("CREATE FUNCTION public.one() RETURNS integer LANGUAGE sql AS 'SELECT 1'", "1 function(s) or procedure(s)"),
        ("CREATE PROCEDURE public.one() LANGUAGE sql AS 'SELECT 1'", "1 function(s) or procedure(s)"),
        ("CREATE TYPE public.colour AS ENUM ('red')", "1 type(s) or domain(s)"),
        ("CREATE TYPE public.pair AS (x integer, y integer)", "1 type(s) or domain(s)"),
        ("CREATE TYPE public.span AS RANGE (subtype = integer)", "1 type(s) or domain(s)"),
        ("CREATE DOMAIN public.age AS integer", "1 type(s) or domain(s)"),
        ("SELECT lo_create(0)", "1 large object(s)"),
        ("CREATE EXTENSION easeml_segment CASCADE", "1 extension(s) (easeml_segment)"),
    ],
)
def test_a_database_that_holds_anything_but_tables_is_left_alone(
    backup: Path, dsn: str, statement: str, told: str, open_session: Callable[[str], Session]
) -> None:
    with open_session(dsn) as session:
        session.execute(statement)
    refused = easeml("restore", backup, "--dsn", dsn, is_fine=False)
    assert isinstance(refused, NotAllowed)
    assert f"it has {told}, and a backup" in str(refused)


def test_a_database_with_nothing_but_the_extension_is_empty(dsn: str) -> None:
    with connect_now(dsn) as session:
        prepare_database(session, n_slots=1)
        assert contents_of(session) == []


def test_a_role_without_rights_gets_an_error_in_a_line(
    root: Session, backup: Path, dsn: str, private_server: Embedded
) -> None:
    with connect_now(dsn) as session:
        session.execute("CREATE ROLE restoring_nobody LOGIN")
    try:
        refused = easeml("restore", backup, "--dsn", make_conninfo(dsn, user="restoring_nobody"), is_fine=False)
        assert "permission denied" in str(refused)
    finally:
        with connect_now(dsn) as session:
            session.execute("DROP ROLE restoring_nobody")


def test_a_database_in_which_somebody_works_is_left_alone(
    backup: Path, dsn: str, open_session: Callable[[str], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_places, "LEAVING_SECONDS", 0.0)
    with open_session(dsn):
        assert "1 session(s) use database" in str(easeml("restore", backup, "--dsn", dsn, is_fine=False))


def conninfo(dsn: str) -> str:
    """The name of the database."""
    return dict(part.split("=", 1) for part in dsn.replace("'", "").split())["dbname"]


def test_a_newer_version_is_refused_with_the_way_out(root: Session, target: str, tmp_path: Path) -> None:
    file = tmp_path / "newer"
    root.execute(NEWEST, ["99.0.0"])
    try:
        easeml("backup", file, "--dsn", root.dsn)
    finally:
        root.execute(NEWEST, [__version__])
    refused = easeml("restore", file, "--dsn", target, is_fine=False)
    assert isinstance(refused, VersionMismatch)
    assert "made with easeml 99.0.0" in str(refused)
    assert "pip install 'easeml-db>=99.0.0'" in str(refused.hint)
    assert root.values(DATABASES, conninfo(target) + "%") == []


def test_the_former_version_is_brought_to_this_one(
    root: Session, dsn: str, target: str, tmp_path: Path, open_session: Callable[[str], Session]
) -> None:
    with open_session(dsn) as former:
        former.execute("CREATE EXTENSION easeml VERSION '0.1.0' CASCADE")
        fill(former, TINY)
    file = tmp_path / "former"
    assert easeml("backup", file, "--dsn", dsn)["version"] == "0.1.0"
    easeml("restore", file, "--dsn", target)
    with open_session(target) as restored:
        assert restored.value("SELECT easeml.version()") == __version__
        assert restored.value("SELECT count(*) FROM easeml.runs") == TINY.n_runs
        assert restored.value("SELECT easeml.broken_references()") is None


@pytest.mark.parametrize("content", [b"", b"-- PostgreSQL database dump\n", b"PGDMP\x01\x0e"])
def test_a_file_that_is_no_backup_is_refused(content: bytes, target: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    refused = easeml("restore", file, "--dsn", target, is_fine=False)
    assert isinstance(refused, InvalidData)
    assert "no backup that pg_restore can read" in str(refused)


def test_the_dump_of_a_database_without_easeml_is_refused(
    target: str, dsn: str, tmp_path: Path, private_server: Embedded
) -> None:
    file = str(tmp_path / "other")
    assert "no extension easeml" in str(easeml("backup", file, "--dsn", dsn, is_fine=False))
    subprocess.run([Path(private_server.facts["binaries"]) / "pg_dump", "-Fc", f"--file={file}", dsn], check=True)
    assert "without easeml" in str(easeml("restore", file, "--dsn", target, is_fine=False))


def test_a_file_that_is_there_is_kept(root: Session, tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("mine")
    assert "is there already" in str(easeml("backup", file, "--dsn", root.dsn, is_fine=False))
    assert file.read_text() == "mine"
    easeml("backup", file, "--dsn", root.dsn, "--overwrite")
    assert file.read_bytes()[:5] == b"PGDMP"
    assert list(tmp_path.iterdir()) == [file]


def test_a_pipe_is_refused_and_a_link_is_followed(root: Session, tmp_path: Path) -> None:
    pipe, link, far = tmp_path / "pipe", tmp_path / "link", tmp_path / "far"
    os.mkfifo(pipe)
    refused = easeml("backup", pipe, "--overwrite", "--dsn", root.dsn, is_fine=False)
    assert "is a device, a pipe or a folder" in str(refused)
    assert pipe.is_fifo()
    far.mkdir()
    link.symlink_to(far / "mine")
    easeml("backup", link, "--dsn", root.dsn)
    easeml("backup", link, "--overwrite", "--dsn", root.dsn)
    assert link.is_symlink()
    assert (far / "mine").read_bytes()[:5] == b"PGDMP"
    assert list(far.iterdir()) == [far / "mine"]


def test_a_backup_that_is_ended_leaves_no_file_and_no_program(root: Session, tmp_path: Path) -> None:
    programs, out = tmp_path / "bin", tmp_path / "out"
    programs.mkdir()
    out.mkdir()
    note = f"echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid"
    (programs / "pg_dump").write_text(f"#!/bin/sh\n{note}\nexec sleep 600\n")
    (programs / "pg_dump").chmod(0o755)
    command = [sys.executable, "-m", "easeml_db", "backup", out / "file", "--dsn", root.dsn]
    process = subprocess.Popen(command, cwd="/", env={**os.environ, "EASEML_BINDIR": str(programs)})
    while not (tmp_path / "pid").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert list(out.iterdir()) == []
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
