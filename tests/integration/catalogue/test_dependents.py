"""What users have built on easeml's tables stops no update: views are made anew, and all else is named beforehand."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from easeml_db import __version__
from easeml_db.errors import EasemlError, NotAllowed
from easeml_db.local.by_owner import updates
from easeml_db.local.preparation import prepare_database

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded
    from tests.fixtures.sessions import Session

VIEWS = (
    "CREATE VIEW {}.runs WITH (security_invoker) AS SELECT r.run_id, r.status FROM easeml.runs r",
    "CREATE VIEW {}.further AS SELECT count(*) AS n FROM {}.runs",
    "CREATE MATERIALIZED VIEW {}.kept AS SELECT 1 AS x WHERE NOT EXISTS (SELECT FROM {}.further f WHERE f.n < 0)",
    "CREATE UNIQUE INDEX ON {}.kept (x)",
    'CREATE VIEW {}."Lists" AS SELECT * FROM easeml.architectures',
    "COMMENT ON VIEW {}.runs IS 'mine'",
    "GRANT SELECT ON {}.runs TO easeml_reader",
    "CREATE VIEW {}.kinds AS SELECT kind FROM easeml.events",
)
OTHERS = {
    "column": ("CREATE TABLE {}.t (x easeml.runs)", "ALTER TABLE olga.t DROP COLUMN x"),
    "array": ("CREATE TABLE {}.t (x easeml.runs[])", "ALTER TABLE olga.t DROP COLUMN x"),
    "argument": (
        "CREATE FUNCTION {}.f(easeml.trials) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "DROP FUNCTION olga.f(easeml.trials)",
    ),
    "body": (
        "CREATE FUNCTION {}.f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM easeml.runs; END",
        "DROP FUNCTION olga.f()",
    ),
    "rule": (
        "CREATE TABLE {}.t (x bigint); CREATE RULE r AS ON INSERT TO {}.t DO ALSO SELECT count(*) FROM easeml.runs",
        "DROP RULE r on olga.t",
    ),
    "policy": (
        "CREATE TABLE {}.t (x bigint); CREATE POLICY p ON {}.t USING (EXISTS (SELECT FROM easeml.runs))",
        "DROP POLICY p on olga.t",
    ),
    "default": (
        "CREATE TABLE {}.t (x text DEFAULT easeml.batch_key('linear', '{}'))",
        "ALTER TABLE olga.t ALTER COLUMN x DROP DEFAULT",
    ),
    "temporary view": ("CREATE TEMPORARY VIEW v AS SELECT run_id FROM easeml.runs", "DROP VIEW pg_temp"),
}


@pytest.fixture
def former(database: Session, dsn: str) -> Iterator[Session]:
    """A database with the former version, in which Olga has a schema."""
    with type(database).open(dsn) as session:
        session.execute("CREATE EXTENSION easeml VERSION '0.1.0' CASCADE")
        session.as_role("olga", "easeml_tenant")
        session.execute("CREATE SCHEMA olga AUTHORIZATION olga")
        yield session
        for statement in ("DROP OWNED BY olga CASCADE", "DROP ROLE olga"):
            session.execute(statement)


def version(session: Session) -> str:
    return str(session.value("SELECT extversion FROM pg_extension WHERE extname = 'easeml'"))


def test_views_of_users_are_made_anew_as_their_owners(former: Session) -> None:
    olga = former.as_role("olga")
    for statement in VIEWS:
        olga.execute(statement.replace("{}.", "olga."))
    with pytest.raises(psycopg.Error, match=r"5 object\(s\) of others depend on what the update changes") as refused:
        former.execute("ALTER EXTENSION easeml UPDATE")
    told = str(refused.value.diag.message_detail).splitlines()
    assert told[0] == "DROP MATERIALIZED VIEW olga.kept;  -- of olga"
    assert set(told) >= {"DROP VIEW olga.runs;  -- of olga", 'DROP VIEW olga."Lists";  -- of olga'}
    assert "easeml install" in str(refused.value.diag.message_hint)
    assert version(former) == "0.1.0"
    update = prepare_database(former)
    assert len(update.views) == 5
    assert update.left_out == ()
    assert version(former) == __version__
    assert olga.values("SELECT n FROM olga.further") == [0]
    assert olga.value('SELECT count(*) > 5 FROM olga."Lists"')
    assert olga.values("SELECT x FROM olga.kept") == [1]
    kept = """SELECT relowner::regrole::text AS owner, reloptions::text AS options, obj_description(oid) AS comment,
        has_table_privilege('easeml_reader', oid, 'SELECT') AS is_shared
        FROM pg_class WHERE oid = 'olga.runs'::regclass"""
    (view,) = former.rows(kept)
    assert view == {"owner": "olga", "options": "{security_invoker=true}", "comment": "mine", "is_shared": True}
    assert former.values("SELECT rolname FROM pg_roles WHERE rolname LIKE 'easeml_for_owner%'") == []


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_view_is_listed_with_the_statement_that_removes_it(former: Session, kind: str) -> None:
    statement, removal = OTHERS[kind]
    olga = former.as_role("olga")
    olga.execute(statement.replace("{}.", "olga."))
    with pytest.raises(psycopg.Error, match="of others depend on what the update changes") as refused:
        former.execute("ALTER EXTENSION easeml UPDATE")
    told = str(refused.value.diag.message_detail)
    assert told.startswith(removal)
    if kind == "temporary view":  # it goes with its session
        assert len(prepare_database(former).views) == 1
        return
    with pytest.raises(NotAllowed, match="of others depend on what the update changes") as refused_too:
        prepare_database(former)
    assert str(refused_too.value.detail) == told
    assert version(former) == "0.1.0"
    former.execute(told.encode())
    prepare_database(former)
    assert version(former) == __version__


def test_a_view_of_what_is_gone_is_told_and_its_definition_kept(former: Session) -> None:
    former.as_role("olga").execute("CREATE VIEW olga.a AS SELECT accuracy FROM easeml.epoch_metrics")
    update = prepare_database(former)
    (left,) = update.left_out
    assert (left.what, left.owner) == ("VIEW olga.a", "olga")
    assert "does not exist" in left.reason
    assert update.kept is not None
    assert update.kept.stat().st_mode & 0o077 == 0
    update.kept.unlink()


def test_a_view_runs_no_code_of_its_owner_as_the_superuser_who_updates(former: Session) -> None:
    olga = former.as_role("olga")
    olga.execute(
        "CREATE FUNCTION olga.pwn(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM set_config('session_authorization', 'postgres', false); ALTER ROLE olga SUPERUSER; RETURN true;"
        " EXCEPTION WHEN OTHERS THEN RETURN true; END $$"
    )
    olga.execute("CREATE DOMAIN olga.word AS text CHECK (olga.pwn(VALUE))")
    olga.execute("CREATE VIEW olga.v AS SELECT run_id, '{a}'::olga.word[] AS x, 'a'::olga.word AS y FROM easeml.runs")
    assert prepare_database(former).left_out == ()
    assert former.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'olga'") is False


def test_rows_of_easeml_are_no_types_for_others(database: Session) -> None:
    database.execute("CREATE SCHEMA AUTHORIZATION easeml_reader")
    with database.transaction(force_rollback=True):
        database.execute("SET LOCAL ROLE easeml_reader")
        for statement in (
            "CREATE TABLE easeml_reader.t (x easeml.runs)", "CREATE TABLE easeml_reader.t (x easeml.leaderboard[])",
            "CREATE FUNCTION easeml_reader.f(easeml.runs) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE VIEW easeml_reader.v AS SELECT r FROM easeml.runs r",
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege), database.transaction():
                database.execute(statement)


def test_a_server_that_takes_no_passwords_refuses_before_anything_is_changed(
    own_server: Embedded,
    open_session: Callable[[str], Session],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with open_session(own_server.dsn(database="postgres")) as root:
        root.execute("CREATE DATABASE there")
        with open_session(own_server.dsn(database="there")) as there:
            there.execute("CREATE EXTENSION easeml VERSION '0.1.0' CASCADE")
            there.as_role("olga", "easeml_tenant")
            there.execute("CREATE SCHEMA olga AUTHORIZATION olga")
            there.as_role("olga").execute("CREATE VIEW olga.v AS SELECT run_id FROM easeml.runs")
            (own_server.cluster / "pg_hba.conf").write_text("local all postgres trust\nlocal all all peer\n")
            root.execute("SELECT pg_reload_conf()")
            with pytest.raises(NotAllowed, match="takes no password"):
                prepare_database(there)
            assert version(there) == "0.1.0"
            assert there.value("SELECT to_regclass('olga.v')") is not None
    assert list(tmp_path.iterdir()) == []


def test_an_error_after_the_update_names_the_file_with_the_views(
    former: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionResetError

    former.as_role("olga").execute("CREATE VIEW olga.v AS SELECT run_id FROM easeml.runs")
    monkeypatch.setattr(updates, "load_live", fail)
    with pytest.raises(EasemlError, match="the extension is updated, but the views") as told:
        prepare_database(former)
    found = re.search(r"All of them are in (\S+):", str(told.value.hint))
    assert found is not None
    kept = Path(found[1])
    assert kept.read_bytes().startswith(b"PGDMP")
    kept.unlink()
    assert version(former) == __version__
