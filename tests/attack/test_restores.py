"""A superuser's restore runs what owners have planted in their objects with the rights of those owners."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from easeml_db.errors import EasemlError, NotAllowed
from easeml_db.local.backups import back_up
from easeml_db.local.by_owner import loading
from easeml_db.local.by_owner.loading import LeftOut
from easeml_db.local.restores import restore
from easeml_db.local.server import Embedded

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

# It tells the log who runs it, and takes what it can: a superuser's rights, if need be by going back to the role that
# has logged in, and a program.
PWN = """CREATE FUNCTION mallory.pwn(place text) RETURNS boolean LANGUAGE plpgsql {} AS $$
BEGIN
    RAISE LOG 'planted: % runs as %', place, current_user;
    BEGIN
        PERFORM set_config('session_authorization', 'postgres', false);
        RAISE LOG 'planted: % runs as %', place, current_user;
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    BEGIN
        PERFORM set_config('role', 'none', false);
        EXECUTE 'ALTER ROLE mallory SUPERUSER';
        EXECUTE 'COPY (SELECT 1) TO PROGRAM ''touch {file}''';
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    BEGIN
        EXECUTE 'CREATE TABLE public.planted ()';
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    BEGIN
        PERFORM set_config('role', 'mallory', false);  -- so that the rest is made as if nothing had been tried
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    RETURN true;
END
$$"""
# While a place is prepared, the function is harmless; so is what calls it as IMMUTABLE for the planner.
PLACES = {
    "check": ["CREATE TABLE mallory.t1 (x int CHECK (mallory.pwn('check')))", "INSERT INTO mallory.t1 VALUES (1)"],
    "late check": [
        "CREATE TABLE mallory.t2 (x int)", "INSERT INTO mallory.t2 VALUES (1)",
        "CREATE FUNCTION mallory.row_check(mallory.t2) RETURNS boolean LANGUAGE sql AS"
        " 'SELECT mallory.pwn(''late check'')'",
        "ALTER TABLE mallory.t2 ADD CHECK (mallory.row_check(t2))",
    ],
    "generated": [
        "CREATE TABLE mallory.t3 (x int, y boolean GENERATED ALWAYS AS (mallory.calm('generated')) STORED)",
        "INSERT INTO mallory.t3 VALUES (1)",
    ],
    "domain": [
        "CREATE DOMAIN mallory.word AS text CHECK (mallory.pwn('domain'))", "CREATE TABLE mallory.t4 (x mallory.word)",
        "INSERT INTO mallory.t4 VALUES ('a')",
    ],
    "literal": [
        "CREATE DOMAIN mallory.letter AS text CHECK (mallory.pwn('literal'))",
        "CREATE VIEW mallory.v5 AS SELECT '{a}'::mallory.letter[] AS x",
        "CREATE TABLE mallory.t5 (x mallory.letter[] DEFAULT '{a}'::mallory.letter[])",
    ],
    "aggregate": [
        "CREATE DOMAIN mallory.total AS int CHECK (mallory.pwn('aggregate'))",
        "CREATE FUNCTION mallory.add(mallory.total, int) RETURNS mallory.total LANGUAGE sql AS 'SELECT 1'",
        "CREATE AGGREGATE mallory.sums(int) (sfunc = mallory.add, stype = mallory.total, initcond = '0')",
    ],
    "bound": [
        "CREATE DOMAIN mallory.bound AS int CHECK (mallory.pwn('bound'))",
        "CREATE TABLE mallory.t6 (x mallory.bound) PARTITION BY RANGE (x)",
        "CREATE TABLE mallory.t6_1 PARTITION OF mallory.t6 FOR VALUES FROM (0) TO (9)",
        "INSERT INTO mallory.t6 VALUES (1)",
    ],
    "partition key": [
        "CREATE TABLE mallory.t7 (x int) PARTITION BY LIST ((mallory.calm('partition key', x)))",
        "CREATE TABLE mallory.t7_1 PARTITION OF mallory.t7 FOR VALUES IN (true)",
        "INSERT INTO mallory.t7 VALUES (1)",
    ],
    "index": [
        "CREATE TABLE mallory.t8 (x int)", "INSERT INTO mallory.t8 VALUES (1)",
        "CREATE INDEX ON mallory.t8 (mallory.calm('index'), x) WHERE mallory.calm('index')",
    ],
    "exclusion": [
        "CREATE TABLE mallory.t9 (x int)", "INSERT INTO mallory.t9 VALUES (1)",
        "ALTER TABLE mallory.t9 ADD EXCLUDE ((mallory.calm('exclusion')::int) WITH =)",
    ],
    "statistics": [
        "CREATE TABLE mallory.t10 (x int)", "INSERT INTO mallory.t10 VALUES (1)",
        "CREATE STATISTICS mallory.st ON (mallory.calm('statistics')), x FROM mallory.t10",
    ],
    "materialized view": ["CREATE MATERIALIZED VIEW mallory.m11 AS SELECT mallory.pwn('materialized view') AS x"],
    "trigger and rule": [
        "CREATE TABLE mallory.t12 (x int)", "INSERT INTO mallory.t12 VALUES (1)",
        "CREATE FUNCTION mallory.fires() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM mallory.pwn(''trigger''); RETURN new; END'",
        "CREATE TRIGGER fires BEFORE INSERT ON mallory.t12 FOR EACH ROW EXECUTE FUNCTION mallory.fires()",
        "CREATE RULE also AS ON INSERT TO mallory.t12 DO ALSO SELECT mallory.pwn('rule')",
    ],
    "cast of a foreign key": [
        "CREATE TYPE mallory.mood AS ENUM ('ok')",
        "CREATE FUNCTION mallory.spoken(mallory.mood) RETURNS int LANGUAGE sql AS"
        " 'SELECT CASE WHEN mallory.pwn(''cast'') THEN 1 END'",
        "CREATE CAST (mallory.mood AS int) WITH FUNCTION mallory.spoken(mallory.mood) AS IMPLICIT",
        "CREATE TABLE mallory.t13 (x int PRIMARY KEY)", "INSERT INTO mallory.t13 VALUES (1)",
        "CREATE TABLE mallory.t14 (x mallory.mood REFERENCES mallory.t13)", "INSERT INTO mallory.t14 VALUES ('ok')",
    ],
    "policy": [
        "CREATE TABLE mallory.t15 (x int)", "INSERT INTO mallory.t15 VALUES (1)",
        "CREATE POLICY p ON mallory.t15 USING (mallory.pwn('policy'))",
        "ALTER TABLE mallory.t15 ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    ],
    "default and identity": [
        "CREATE TABLE mallory.t16 (x boolean DEFAULT mallory.pwn('default'), y int GENERATED ALWAYS AS IDENTITY)",
        "INSERT INTO mallory.t16 VALUES (true)",
    ],
    "a superuser's gift": [],  # a table in a schema where mallory may create nothing
}  # fmt: skip
RUN = re.compile(r"planted: (.+?) runs as (\S+)")


def prepare(root: Session, file: Path) -> None:
    """Plant everything as a plain tenant with a schema of its own."""
    mallory = root.as_role("mallory", "easeml_tenant")
    root.execute("CREATE SCHEMA mallory AUTHORIZATION mallory")
    mallory.execute("CREATE FUNCTION mallory.pwn(place text) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
    mallory.execute(
        "CREATE FUNCTION mallory.calm(place text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN RETURN mallory.pwn(place); END'"
    )
    mallory.execute(
        "CREATE FUNCTION mallory.calm(place text, x int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN RETURN mallory.pwn(place); END'"
    )
    for statements in PLACES.values():
        for statement in statements:
            mallory.execute(statement)
    root.execute("CREATE TABLE public.gift (x int CHECK (mallory.pwn('gift')))")
    root.execute("INSERT INTO public.gift VALUES (1)")
    root.execute("ALTER TABLE public.gift OWNER TO mallory")
    mallory.execute("CREATE OR REPLACE " + PWN.removeprefix("CREATE ").format("", file=file))


@pytest.fixture
def restored(
    database: Session,
    private_server: Embedded,
    own_server: Embedded,
    tmp_path: Path,
    open_session: Callable[[str], Session],
) -> Iterator[tuple[Session, str, tuple[LeftOut, ...], Path]]:
    """The database of another server after a restore, what its log says, what was left out, a file of mallory's."""
    file = Path(own_server.folder) / "taken"
    try:
        prepare(database, file)
        programs = Path(own_server.facts["binaries"])
        back_up(database.dsn, programs, tmp_path / "backup")
        assert RUN.search((private_server.folder / "server.log").read_text()) is None  # pg_dump calls nothing
        assert not database.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'")
        to = own_server.dsn(database="there")
        done = restore(to, programs, tmp_path / "backup", n_jobs=2, allow_missing=True)
        with open_session(to) as there:
            yield there, (own_server.folder / "server.log").read_text(), done.left_out, file
    finally:
        for statement in ("DROP OWNED BY mallory CASCADE", "DROP ROLE mallory"):
            database.execute(statement)


def test_nothing_planted_runs_as_anybody_else(restored: tuple[Session, str, tuple[LeftOut, ...], Path]) -> None:
    there, log, left_out, file = restored
    runs = {found.groups() for found in RUN.finditer(log)}
    assert {user for _, user in runs} == {"mallory"}
    assert {place for place, _ in runs} >= {
        "check", "late check", "generated", "domain", "literal", "aggregate", "bound", "index", "materialized view",
        "cast", "gift",
    }  # fmt: skip
    assert not there.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'")
    assert not file.exists()
    assert there.value("SELECT to_regclass('public.planted')") is None
    # Everything is there, and nothing of how it came there.
    assert left_out == ()
    assert there.value("SELECT count(*) FROM mallory.t1, mallory.t3, mallory.t6, mallory.m11, public.gift") == 1
    owners = (
        "SELECT DISTINCT pg_get_userbyid(relowner)::text FROM pg_class WHERE relnamespace = 'mallory'::regnamespace"
    )
    assert there.values(owners) == ["mallory"]
    assert (
        there.value("SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'public.gift'::regclass") == "mallory"
    )
    assert not there.value("SELECT has_schema_privilege('mallory', 'public', 'CREATE')")
    assert there.values("SELECT rolname FROM pg_roles WHERE rolname LIKE 'easeml_for_owner%'") == []
    assert there.values("SELECT evtname FROM pg_event_trigger") == []
    assert there.value("SELECT has_database_privilege('mallory', current_database(), 'CONNECT')")


SOCKETS_TRUST_NOBODY = "local all postgres trust\nlocal all all peer\n"
LOOPBACK = "host all all 127.0.0.1/32 scram-sha-256\n"


@pytest.fixture
def small(database: Session, tmp_path: Path, private_server: Embedded) -> Iterator[Path]:
    """A backup with tables of two owners, one of whom ends each session in which a CHECK of his is evaluated."""
    try:
        for name in ("mallory", "victor"):
            session = database.as_role(name)
            database.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")
            session.execute(f"CREATE FUNCTION {name}.f() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
            session.execute(f"CREATE TABLE {name}.t (x int CHECK ({name}.f()))")
            session.execute(f"INSERT INTO {name}.t VALUES (1)")
            session.execute(f"CREATE VIEW {name}.v AS SELECT * FROM {name}.t")
        database.execute(
            "CREATE OR REPLACE FUNCTION mallory.f() RETURNS boolean LANGUAGE sql"
            " AS 'SELECT set_config(''role'', ''none'', false) IS NOT NULL AND pg_terminate_backend(pg_backend_pid())'"
        )
        back_up(database.dsn, Path(private_server.facts["binaries"]), tmp_path / "small")
        yield tmp_path / "small"
    finally:
        for name in ("mallory", "victor"):
            database.execute(f"DROP OWNED BY {name} CASCADE")
            database.execute(f"DROP ROLE {name}")


def allow(server: Embedded, root: Session, lines: str) -> None:
    """Write the server's rules of who may log in."""
    (server.cluster / "pg_hba.conf").write_text(lines)
    root.execute("SELECT pg_reload_conf()")


def test_owners_sessions_need_no_trust_and_an_owner_who_ends_them_harms_nobody_else(
    small: Path, own_server: Embedded, open_session: Callable[[str], Session]
) -> None:
    to, programs = own_server.dsn(database="there"), Path(own_server.facts["binaries"])
    left = "SELECT rolname FROM pg_roles WHERE rolname ~ '^easeml_for_owner|^victor|^mallory'"
    with open_session(own_server.dsn(database="postgres")) as root:
        allow(own_server, root, SOCKETS_TRUST_NOBODY)
        with pytest.raises(NotAllowed, match="takes no password") as refused:
            restore(to, programs, small, n_jobs=1)
        assert "pg_hba.conf" in str(refused.value.hint)
        assert root.values(left) == []
        allow(own_server, root, SOCKETS_TRUST_NOBODY + LOOPBACK)
        with pytest.raises(EasemlError, match="could not be restored with the rights of their owners") as told:
            restore(to, programs, small, n_jobs=1)
        assert "TABLE DATA mallory.t of mallory: " in str(told.value.detail)
        assert "victor" not in str(told.value.detail)
        assert root.values(left) == []
        done = restore(to, programs, small, n_jobs=1, allow_missing=True)
        assert {each.owner for each in done.left_out} == {"mallory"}
        assert sorted(root.values(left)) == ["mallory", "victor"]
    with open_session(to) as there:
        assert there.values("SELECT x FROM victor.v") == [1]
        assert there.values("SELECT x FROM mallory.v") == []


def test_an_owner_with_the_name_of_a_superuser_of_the_other_server_is_refused(
    small: Path, own_server: Embedded, open_session: Callable[[str], Session]
) -> None:
    with open_session(own_server.dsn(database="postgres")) as root:
        root.execute("CREATE ROLE mallory SUPERUSER")
        with pytest.raises(NotAllowed, match="superusers here, and none where the dump was made: mallory"):
            restore(own_server.dsn(database="there"), Path(own_server.facts["binaries"]), small, n_jobs=1)
        assert root.values("SELECT datname FROM pg_database WHERE datname LIKE 'there%'") == []


def test_nobody_is_in_the_database_before_it_is_complete(
    small: Path, own_server: Embedded, open_session: Callable[[str], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roles that a right by name lets into the database neither change it meanwhile nor keep it from getting its name,
    even if a superuser lets one in.
    """
    to, beside = (own_server.dsn(database=name) for name in ("there", "there_restoring"))
    load, met = loading._Loading.load, []
    with open_session(own_server.dsn(database="postgres")) as root:
        root.execute("CREATE ROLE mallory LOGIN")
        for statement in ("CREATE DATABASE there OWNER mallory", "GRANT CONNECT ON DATABASE there TO mallory"):
            root.execute(statement)

        def meet(itself: loading._Loading, batch: loading.Batch) -> None:
            load(itself, batch)
            with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
                psycopg.connect(make_conninfo(beside, user="mallory"))
            if itself.connection.execute("SELECT to_regnamespace('mallory') AS made").fetchall()[0]["made"] is None:
                return
            root.execute("GRANT CONNECT ON DATABASE there_restoring TO mallory")
            met.append(psycopg.connect(make_conninfo(beside, user="mallory"), autocommit=True))
            root.execute("REVOKE CONNECT ON DATABASE there_restoring FROM mallory")
            with pytest.raises(psycopg.Error, match="only pg_restore changes objects during a restore"):
                met[-1].execute("CREATE TABLE mallory.planted ()")

        monkeypatch.setattr(loading._Loading, "load", meet)
        restore(to, Path(own_server.facts["binaries"]), small, n_jobs=1, allow_missing=True)
        assert met, "nobody was there"
        assert root.value("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'there'") == "mallory"
    for session in met:
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    psycopg.connect(make_conninfo(to, user="mallory")).close()
