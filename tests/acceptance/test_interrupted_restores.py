"""A restore that ends early can be run again, takes nothing of anybody's, and gives no role more than it had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from easeml_db.cli import commands
from easeml_db.errors import InvalidArgument, InvalidData, NotAllowed, NotFound
from easeml_db.local import binaries, restore_places, restores
from easeml_db.local.server import Embedded

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
# In the names are characters that a locale of plain ASCII, or a program that looks for ends of lines, gets wrong.
TENANT, CREW, OTHERS = "r\u00fath\u2028restores", "crew that restores", "others that restore"
GROUPS = """SELECT g.rolname::text FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
    JOIN pg_roles a ON a.oid = m.member WHERE a.rolname = %s ORDER BY 1"""
ROLES = "SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%s)"
DATABASES = "SELECT datname::text FROM pg_database WHERE datname LIKE %s ORDER BY 1"
RIGHTS = """SELECT a.grantor::regrole, a.grantee::regrole, a.privilege_type, a.is_grantable
    FROM pg_database, aclexplode(datacl) a WHERE datname = 'put_there' ORDER BY 1, 2, 3"""
# The process is gone, as after kill -9, when the rows are there and nothing else is.
KILLED = """
import os, signal, sys
from easeml_db.local import restores
restores.{} = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
from easeml_db.cli import commands
commands(sys.argv[1:])
"""
PLAIN_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def easeml(*arguments: object) -> Any:
    """What a command printed as JSON."""
    done = CliRunner().invoke(commands, [*map(str, arguments), "--json"], env={"EASEML_DSN": None})
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def root(module_database: Session) -> Session:
    """A database with a tenant, who is in groups of easeml and in others."""
    for name in (CREW, OTHERS):
        module_database.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
    module_database.execute(sql.SQL("GRANT easeml_reader TO {}").format(sql.Identifier(CREW)))
    module_database.as_role(TENANT, "easeml_tenant", CREW, OTHERS)
    module_database.execute("SELECT easeml.create_tenant(%s)", [TENANT])
    return module_database


@pytest.fixture(scope="module")
def backup(root: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of that database."""
    file = tmp_path_factory.mktemp("interrupted") / "file"
    easeml("backup", file, "--dsn", root.dsn)
    return file


@pytest.fixture
def target(root: Session, private_server: Embedded) -> Iterator[str]:
    """Connection string of a database that is not there yet; what was made of it goes at the end."""
    yield private_server.dsn(database="put_there")
    for each in root.values(DATABASES, "put%"):
        root.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(each)))


def make(root: Session, name: str) -> None:
    root.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))


def test_roles_of_an_interrupted_restore_are_whole_after_the_next(
    backup: Path, own_server: Embedded, open_session: Callable[[str], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **_options: object) -> str:
        raise KeyboardInterrupt

    to = own_server.dsn(database="put_there")
    with open_session(own_server.dsn(database="postgres")) as there:
        # Somebody's group has the name of one of the other server.
        there.execute(sql.SQL("CREATE ROLE {} SUPERUSER").format(sql.Identifier(OTHERS)))
        with monkeypatch.context() as during:
            during.setattr(restores, "load_by_owner", interrupted)
            with pytest.raises(KeyboardInterrupt):
                restores.restore(to, Path(own_server.facts["binaries"]), backup, n_jobs=1)
        assert there.values(DATABASES, "put%") == []
        assert there.values(ROLES, [TENANT, CREW]) == []
        command = [sys.executable, "-c", KILLED.format("_fill"), "restore", str(backup), "--dsn", to]
        assert subprocess.run(command, check=False, cwd="/").returncode == -9
        assert there.values(DATABASES, "put%") == ["put_there_restoring"]
        assert len(there.values(ROLES, [TENANT, CREW])) == 2
        command = [sys.executable, "-m", "easeml_db", "restore", str(backup), "--dsn", to, "--json"]
        done = subprocess.run(command, check=True, cwd="/", env=os.environ | PLAIN_LOCALE, stdout=subprocess.PIPE)
        told = json.loads(done.stdout)
        assert {TENANT, CREW} <= set(told["new_roles"])
        assert told["other_groups"] == [[TENANT, OTHERS]]
        assert there.values(DATABASES, "put%") == ["put_there"]
        assert there.values(GROUPS, TENANT) == [CREW, "easeml_tenant"]
        assert there.values("SELECT FROM pg_shdescription WHERE description LIKE '%easeml restore%'") == []
    with open_session(make_conninfo(to, user=TENANT)) as tenant:
        assert tenant.values("SELECT tenant FROM easeml.tenant_status") == [TENANT]


def test_a_database_that_no_restore_made_is_kept(
    root: Session, backup: Path, target: str, open_session: Callable[[str], Session]
) -> None:
    make(root, "put_there_restoring")
    with open_session(make_conninfo(target, dbname="put_there_restoring")) as session:
        session.execute("CREATE TABLE kept AS SELECT 1 AS x")
    with pytest.raises(NotAllowed, match="which no restore into 'put_there' made"):
        easeml("restore", backup, "--dsn", target)
    with open_session(make_conninfo(target, dbname="put_there_restoring")) as session:
        assert session.value("SELECT x FROM kept") == 1


def test_two_restores_do_not_meet(root: Session, backup: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_places, "LEAVING_SECONDS", 0.0)
    fill = restores._fill
    met = []

    def begin_another(*arguments: Any) -> Any:
        with pytest.raises(NotAllowed, match="another restore is under way") as refused:
            easeml("restore", backup, "--dsn", target)
        met.append(refused)
        return fill(*arguments)

    monkeypatch.setattr(restores, "_fill", begin_another)
    easeml("restore", backup, "--dsn", target)
    assert len(met) == 1
    assert root.values(DATABASES, "put%") == ["put_there"]


def test_long_names_have_places_of_their_own(
    root: Session, backup: Path, target: str, open_session: Callable[[str], Session]
) -> None:
    names = ["put_there" + "\u00fc" * 26 + last for last in "ab"]
    places = [restore_places.place_beside(name) for name in [*names, "short"]]
    assert len(set(places)) == 3
    assert max(len(place.encode()) for place in places) <= 63
    for name in names:
        assert easeml("restore", backup, "--dsn", make_conninfo(target, dbname=name))["database"] == name
    assert root.values(DATABASES, "put%") == names
    with pytest.raises(InvalidArgument, match="at most 63 bytes"):
        easeml("restore", backup, "--dsn", make_conninfo(target, dbname="x" * 64))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("ALTER DATABASE put_there SET work_mem = '5MB'", "settings"),
        ("ALTER DATABASE put_there CONNECTION LIMIT 5", "a connection limit"),
    ],
)
def test_what_a_database_has_of_its_own_is_not_lost(
    change: str, named: str, root: Session, backup: Path, target: str
) -> None:
    make(root, "put_there")
    root.execute(change)
    number = "SELECT oid FROM pg_database WHERE datname = 'put_there'"
    before = root.value(number)
    with pytest.raises(NotAllowed, match=f"has {named}.* of its own") as refused:
        easeml("restore", backup, "--dsn", target)
    assert "Restore into a name that is free" in str(refused.value.hint)
    assert root.value(number) == before


def test_an_empty_database_keeps_its_owner_comment_and_rights(root: Session, backup: Path, target: str) -> None:
    make(root, "put_there")
    root.execute("REVOKE ALL ON DATABASE put_there FROM PUBLIC")
    root.execute("GRANT CONNECT ON DATABASE put_there TO easeml_tenant, easeml_owner WITH GRANT OPTION")
    with root.transaction():  # as a tenant who grants use of a dataset: only easeml_owner can take it back
        root.execute("SET LOCAL ROLE easeml_owner")
        root.execute("GRANT CONNECT ON DATABASE put_there TO easeml_reader")
    root.execute(sql.SQL("ALTER DATABASE put_there OWNER TO {}").format(sql.Identifier(CREW)))
    root.execute("COMMENT ON DATABASE put_there IS 'of the crew'")
    before = root.rows(RIGHTS)
    easeml("restore", backup, "--dsn", target)
    found = """SELECT pg_get_userbyid(datdba)::text AS owner, shobj_description(oid, 'pg_database') AS comment
        FROM pg_database WHERE datname = 'put_there'"""
    assert root.rows(found) == [{"owner": CREW, "comment": "of the crew"}]
    assert root.rows(RIGHTS) == before


@pytest.mark.parametrize("is_new", [True, False])
def test_a_database_of_which_nobody_has_said_more_has_the_rights_of_a_new_one(
    is_new: bool, root: Session, backup: Path, target: str
) -> None:
    if not is_new:
        make(root, "put_there")
    easeml("restore", backup, "--dsn", target)
    public = (
        "SELECT array_agg(right_name ORDER BY right_name) FROM (SELECT privilege_type AS right_name FROM pg_database,"
    )
    public += " aclexplode(coalesce(datacl, acldefault('d', datdba))) WHERE grantee = 0 AND datname = 'put_there') a"
    assert root.value(public) == ["CONNECT", "TEMPORARY"]


def test_a_database_keeps_its_owner_and_rights_when_a_restore_is_killed_after_dropping_it(
    root: Session, backup: Path, target: str
) -> None:
    make(root, "put_there")
    root.execute(sql.SQL("ALTER DATABASE put_there OWNER TO {}").format(sql.Identifier(CREW)))
    root.execute("REVOKE ALL ON DATABASE put_there FROM PUBLIC")
    before = root.rows(RIGHTS)
    command = [sys.executable, "-c", KILLED.format("put_in_place"), "restore", str(backup), "--dsn", target]
    assert subprocess.run(command, check=False, cwd="/").returncode == -9
    assert root.values(DATABASES, "put%") == ["put_there_restoring"]
    easeml("restore", backup, "--dsn", target)
    owner = "SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname LIKE 'put%'"
    assert root.values(owner) == [CREW]
    assert root.rows(RIGHTS) == before


@pytest.mark.parametrize("half_dropped", ["put_there", "put_there_restoring"])
def test_a_restore_that_was_killed_in_the_middle_of_a_drop_can_be_run_again(
    half_dropped: str, root: Session, backup: Path, target: str
) -> None:
    if half_dropped == "put_there":
        make(root, "put_there")
    command = [sys.executable, "-c", KILLED.format("_fill"), "restore", str(backup), "--dsn", target]
    assert subprocess.run(command, check=False, cwd="/").returncode == -9
    # So an interrupted DROP DATABASE leaves it.
    root.execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = %s", [half_dropped])
    easeml("restore", backup, "--dsn", target)
    assert root.values(DATABASES, "put%") == ["put_there"]


def test_secrets_that_arguments_would_show_are_refused(
    backup: Path, target: str, root: Session, tmp_path: Path
) -> None:
    for command in (["restore", backup, "--dsn"], ["backup", tmp_path / "new", "--dsn"]):
        with pytest.raises(InvalidArgument, match="--dsn has sslpassword") as refused:
            easeml(*command, make_conninfo(root.dsn, sslpassword="geheim", dbname=name_of(root.dsn)))
        assert "geheim" not in str(refused.value)


def name_of(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


def test_programs_of_the_servers_version_are_taken(
    root: Session, private_server: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(private_server.facts["binaries"])
    major = root.info.server_version // 10_000
    for version in (major, 99):
        (tmp_path / str(version) / "bin").mkdir(parents=True)
    for name in ("pg_dump", "pg_restore"):
        (tmp_path / str(major) / "bin" / name).symlink_to(own / name)
        (tmp_path / "99" / "bin" / name).write_text("#!/bin/sh\nexit 3\n")
        (tmp_path / "99" / "bin" / name).chmod(0o755)
    monkeypatch.delenv("EASEML_BINDIR", raising=False)
    monkeypatch.setattr(binaries, "PLACES", ((tmp_path, "*/bin"),))
    monkeypatch.setenv("PATH", str(tmp_path / "99" / "bin"))
    easeml("backup", tmp_path / "file", "--dsn", root.dsn)
    (tmp_path / str(major)).rename(tmp_path / "gone")
    monkeypatch.setattr(binaries, "PLACES", ((tmp_path, "99/bin"),))
    with pytest.raises(NotFound, match=f"the server is PostgreSQL {major}, .* of that version: 99"):
        easeml("backup", tmp_path / "another", "--dsn", root.dsn)


def test_names_in_another_encoding_are_refused(
    root: Session, private_server: Embedded, tmp_path: Path, target: str
) -> None:
    file = tmp_path / "other"
    program = Path(private_server.facts["binaries"]) / "pg_dump"
    command = [program, "-Fc", "--encoding=GB18030", f"--file={file}", "--exclude-schema=easeml_tasks", root.dsn]
    subprocess.run(command, check=True)
    with pytest.raises(InvalidData, match="not in UTF-8"):
        easeml("restore", file, "--dsn", target)
