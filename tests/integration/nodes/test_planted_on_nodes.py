"""Functions that a table's owner has planted on a node do not run as the service, nor read what others have there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.fixtures.databases import temporary_database
from tests.fixtures.sessions import Session
from tests.nodes import NODE_ROLE, let_read, prepare_node

if TYPE_CHECKING:
    from easeml_db.local.server import Embedded

OWNER, ASKER, OTHER = "planting_owner", "planting_asker", "planting_other"
READER = f"easeml_reads_{ASKER}"
# What it can do is written down where everybody may write; what fails is, too. A statement that fails ends alone.
HOSTILE = f"""
CREATE TABLE {OWNER}.loot (role text, login text, what text, outcome text);
GRANT INSERT ON {OWNER}.loot TO PUBLIC;
GRANT USAGE, CREATE ON SCHEMA {OWNER} TO PUBLIC;
CREATE FUNCTION {OWNER}.reach(what text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE found text;
BEGIN
    EXECUTE what;
    INSERT INTO {OWNER}.loot VALUES (current_user, session_user, what, 'done');
    RETURN 1;
EXCEPTION WHEN OTHERS THEN
    INSERT INTO {OWNER}.loot VALUES (current_user, session_user, what, SQLERRM);
    RETURN 1;
END $$;
CREATE FUNCTION {OWNER}.volatile_one() RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE attempt text;
BEGIN
    FOREACH attempt IN ARRAY ARRAY['SELECT 1', 'RESET ROLE', 'SET ROLE NONE', 'SET ROLE {NODE_ROLE}',
        'SELECT set_config(''role'', ''none'', false)', 'SET SESSION AUTHORIZATION {NODE_ROLE}',
        'SELECT count(*) FROM easeml_segment.version_blocks', 'SELECT count(*) FROM easeml_segment.checkpoint_chunks',
        'SELECT count(*) FROM {OTHER}.secrets', 'DECLARE held CURSOR WITH HOLD FOR SELECT {OWNER}.reach(''SELECT 2'')',
        'PREPARE later AS SELECT 1', 'CREATE TEMPORARY TABLE left_behind (x integer)',
        'INSERT INTO {OWNER}.deferred VALUES (1)']
    LOOP
        PERFORM {OWNER}.reach(attempt);
    END LOOP;
    RETURN 1;
END $$;
CREATE TABLE {OWNER}.deferred (x integer);
GRANT INSERT ON {OWNER}.deferred TO PUBLIC;
CREATE FUNCTION {OWNER}.afterwards() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM {OWNER}.reach('SELECT count(*) FROM easeml_segment.version_blocks'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON {OWNER}.deferred DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION {OWNER}.afterwards();
CREATE TABLE {OWNER}.shared AS SELECT i AS x, chr(97 + i % 3) AS kind FROM generate_series(1, 90) i;
"""
PRETENDER = """
CREATE FUNCTION {schema}.pretends_immutable(x integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN RETURN {owner}.volatile_one(); END $$
"""
PLACES = {
    "index expression": "CREATE INDEX ON {table} (({function}(1)))",
    "index predicate": "CREATE INDEX ON {table} (x) WHERE {function}(1) = 1",
    "index operator": "CREATE INDEX ON {table} ((x {operator} 1))",
    "statistics": "CREATE STATISTICS {owner}.planted ON ({function}(1)), x FROM {table}",
    "check": "ALTER TABLE {table} ADD CHECK (x > 0 OR {function}(x) = 1)",
    "domain": "CREATE INDEX ON {table} ((1::{owner}.checked))",
}


@pytest.fixture
def node(private_server: Embedded) -> Iterator[Session]:
    """A node with a shared table of one role, a tenant who may read it, and secrets of another tenant."""
    with temporary_database(private_server) as dsn, Session.open(dsn) as node:
        prepare_node(node)
        node.execute(f"REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT easeml_segment TO {NODE_ROLE}")
        for role in (OWNER, ASKER, OTHER):
            node.as_role(role).close()
            node.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
        node.execute(f"CREATE TABLE {OTHER}.secrets AS SELECT 'of another tenant'::text AS secret")
        let_read(node, f"{OTHER}.secrets", OTHER)
        owner = node.as_role(OWNER)
        for statement in (HOSTILE, PRETENDER.format(schema=OWNER, owner=OWNER)):
            owner.execute(statement)
        owner.execute(f"GRANT SELECT ON {OWNER}.shared TO {ASKER}")
        let_read(node, f"{OWNER}.shared", ASKER)
        yield node
    with Session.open(private_server.dsn(database="postgres")) as session:
        session.execute(f"DROP ROLE {OWNER}, {ASKER}, {OTHER}, {READER}, easeml_reads_{OTHER}")


def plant(node: Session, place: str, function: str) -> None:
    """Have the owner plant a function; that is quiet until somebody reads."""
    with node.as_role(OWNER) as owner:
        owner.execute(
            f"CREATE OPERATOR {OWNER}.### (LEFTARG = integer, RIGHTARG = integer, FUNCTION = {OWNER}.compared)"
            if place == "index operator"
            else "SELECT"
        )
        names = {"table": f"{OWNER}.shared", "function": function, "owner": OWNER, "operator": f"OPERATOR({OWNER}.###)"}
        owner.execute(PLACES[place].format(**names))
        owner.execute(f"TRUNCATE {OWNER}.loot")


def pack(node: Session) -> None:
    """Have the service pack the shared table for the tenant, and commit."""
    told = {
        "inputs": ["x"], "target": "kind", "tables": [f"{OWNER}.shared"], "role": ASKER, "seed": 0, "dataset_id": 1,
        "n_partitions": 1, "validation_fraction": 0.2, "test_fraction": 0.1, "shuffle": "within",
    }  # fmt: skip
    with node.as_role(NODE_ROLE) as service, service.transaction():
        service.execute("SELECT easeml_segment.pack_on_node('source', %s)", [Jsonb(told)])


def loot(node: Session) -> list[dict[str, str]]:
    return node.rows(f"SELECT * FROM {OWNER}.loot")


@pytest.mark.parametrize("place", PLACES)
def test_what_an_owner_has_planted_is_refused_before_it_runs(node: Session, place: str) -> None:
    with node.as_role(OWNER) as owner:
        owner.execute(
            f"CREATE FUNCTION {OWNER}.compared(integer, integer) RETURNS integer LANGUAGE sql IMMUTABLE"
            f" AS 'SELECT {OWNER}.pretends_immutable($1)'"
        )
        owner.execute(f"CREATE DOMAIN {OWNER}.checked AS integer CHECK ({OWNER}.pretends_immutable(VALUE) = 1)")
    plant(node, place, f"{OWNER}.pretends_immutable")
    with pytest.raises(psycopg.Error, match=f"a function of role {OWNER}, in "):
        pack(node)
    assert loot(node) == []


@pytest.mark.parametrize("place", ["index expression", "index predicate", "statistics"])
def test_what_runs_nevertheless_runs_as_a_role_that_has_nothing_else_to_read(node: Session, place: str) -> None:
    """As if it had been planted after the check: the function belongs to the tenant who asks, which is allowed."""
    node.execute(f"GRANT USAGE ON SCHEMA {ASKER} TO PUBLIC")
    node.as_role(ASKER).execute(PRETENDER.format(schema=ASKER, owner=OWNER))
    plant(node, place, f"{ASKER}.pretends_immutable")
    pack(node)
    found = loot(node)
    assert {row["role"] for row in found} == {READER}
    done = {row["what"] for row in found if row["outcome"] == "done"}
    assert done == {"SELECT 1"}, found
    assert "deferred" in str([row["outcome"] for row in found if "deferred" in row["what"]])


@pytest.mark.parametrize("given_to", [READER, "easeml_rows"])
def test_what_makes_something_as_the_reader_undoes_the_packing(node: Session, given_to: str) -> None:
    node.execute(f"GRANT USAGE ON SCHEMA {ASKER} TO PUBLIC")
    node.as_role(ASKER).execute(
        f"CREATE FUNCTION {ASKER}.makes(x integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM"
        f" {OWNER}.reach('CREATE FUNCTION {OWNER}.kept() RETURNS integer LANGUAGE sql SECURITY DEFINER"
        f" AS ''SELECT 1'''), {OWNER}.reach('ALTER FUNCTION {OWNER}.kept() OWNER TO {given_to}'); RETURN 1; END $$"
    )
    plant(node, "index expression", f"{ASKER}.makes")
    node.execute(f"DROP FUNCTION {OWNER}.kept()")
    with pytest.raises(psycopg.Error, match="made something"):
        pack(node)
    assert node.value("SELECT to_regproc(%s)", f"{OWNER}.kept") is None


def test_a_reader_that_has_more_than_rows_to_read_is_refused(node: Session) -> None:
    node.execute(f"GRANT {OTHER} TO {READER}")
    with pytest.raises(psycopg.Error, match="has further rights: it is only to read rows"):
        pack(node)
    node.execute(f"REVOKE {OTHER} FROM {READER}")
    pack(node)
    node.execute(f"REVOKE SELECT ON {OWNER}.shared FROM {READER}")
    with pytest.raises(psycopg.Error, match=f"role {READER} may not read {OWNER}.shared") as refused:
        pack(node)
    assert f"GRANT SELECT ON {OWNER}.shared TO {READER}" in str(refused.value.diag.message_hint)
