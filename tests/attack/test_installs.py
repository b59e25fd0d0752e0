"""A superuser installs and updates easeml beside a user who has planted functions and operators for it to find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from easeml_db import __version__
from easeml_db.local.preparation import prepare_database
from easeml_db.postgres.connection import connect_now

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

PWN = """CREATE FUNCTION public.taken() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('is_superuser') = 'on' THEN
        CREATE TABLE IF NOT EXISTS public.taken_over ();
    END IF;
    RETURN true;
END
$$"""
# Exact types, so that they win against those of pg_catalog, which take text or anyelement.
FUNCTIONS = {
    "format": ("text, regclass", "text"), "to_regclass": ("name", "regclass"), "quote_ident": ("name", "text"),
    "set_config": ("text, name, boolean", "text"), "concat": ("name", "text"), "pg_get_userbyid": ("regrole", "name"),
    "array_length": ("name[], integer", "integer"),
}  # fmt: skip
OPERATORS = {
    "=": [("name", "text"), ("regclass", "text"), ("regrole", "text"), ("\"char\"", "text"), ("oid", "regclass")],
    "||": [("name", "text"), ("text", "integer"), ("text", "regclass")],
    "<>": [("name", "text"), ("regrole", "text")],
    "~": [("name", "name")],
}  # fmt: skip


@pytest.fixture
def planted(database: Session, dsn: str) -> Iterator[Session]:
    """A database whose schema public belongs to mallory, who has filled it; it comes first for everybody."""
    with type(database).open(dsn) as session:
        mallory = session.as_role("mallory")
        session.execute("ALTER SCHEMA public OWNER TO mallory")
        yield session
        mallory.close()
        session.execute("DROP OWNED BY mallory CASCADE")
        session.execute("DROP ROLE mallory")


def plant(session: Session) -> None:
    mallory = session.as_role("mallory")
    mallory.execute(PWN)
    for name, (arguments, kind) in FUNCTIONS.items():
        mallory.execute(
            f"CREATE FUNCTION public.{name}({arguments}) RETURNS {kind} LANGUAGE sql"
            f" AS 'SELECT CASE WHEN public.taken() THEN NULL::{kind} END'"
        )
    for symbol, sides in OPERATORS.items():
        kind = "text" if symbol == "||" else "boolean"
        for n, (left, right) in enumerate(sides):
            function = f'public."{symbol}{n}"'
            mallory.execute(
                f"CREATE FUNCTION {function}({left}, {right}) RETURNS {kind} LANGUAGE sql"
                f" AS 'SELECT CASE WHEN public.taken() THEN NULL::{kind} END'"
            )
            mallory.execute(
                f"CREATE OPERATOR public.{symbol} (function = {function}, leftarg = {left}, rightarg = {right})"
            )


@pytest.mark.parametrize("former", ["", "0.1.0"])
def test_neither_install_nor_update_finds_what_others_have_planted(planted: Session, former: str) -> None:
    if former:
        planted.execute(f"CREATE EXTENSION easeml VERSION '{former}' CASCADE")
    plant(planted)
    planted.execute("SET search_path = public, pg_catalog")  # as careless as it can be
    planted.execute("ALTER EXTENSION easeml UPDATE" if former else "CREATE EXTENSION easeml CASCADE")
    with connect_now(planted.dsn) as session:
        prepare_database(session)
        assert session.execute("SELECT easeml.version()").fetchall() == [{"version": __version__}]
        assert session.execute("SELECT to_regclass('public.taken_over') AS made").fetchall() == [{"made": None}]
