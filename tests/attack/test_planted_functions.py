"""Functions planted wherever PostgreSQL may call one: no entry of ours runs them with the rights of another.

Each place is proven to run its function by a plain statement, so that this could fail.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.planted_functions import GRANT, OUT, READ, SETUP, SUPERUSERS_ONLY, TABLE, WRITE, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fixtures.sessions import Session

N_SLOTS = 1
ROWS = """
CREATE TABLE {0}.rows AS SELECT i AS id, sin(i) AS x, (ARRAY['no', 'yes'])[1 + i % 2] AS y
FROM generate_series(1, 120) i
"""
OWN = "SELECT easeml.create_dataset('own', '{}.rows', '{{x}}', 'y', n_partitions => 1)"
# What takes a relation, or reads one that was named before. {s}: the source, {a}: the schema of the actor, {d}: a
# dataset that answers the actor.
READING = {
    "create_dataset": "SELECT easeml.create_dataset('new', '{s}', '{{x}}', 'y', n_partitions => 1)",
    "create_dataset by default": "SELECT easeml.create_dataset('new', '{s}', target => 'y')",
    "create_dataset with keys": "SELECT easeml.create_dataset('new', '{s}', '{{x}}', 'y', key_columns => '{{id,x}}')",
    "create_dataset with odd keys": "SELECT easeml.create_dataset('new', '{s}', '{{x}}', 'y', key_columns => '{{p}}')",
    "create_dataset with a time": "SELECT easeml.create_dataset('new', '{s}', '{{x}}', 'y', time_column => 'id')",
    "create_dataset with categories": "SELECT easeml.create_dataset('new', '{s}', '{{y,m}}', 'x', n_partitions => 1)",
    "create_dataset of places": "SELECT easeml.create_dataset('new', '{s}', '{{x}}', 'y', shuffle => 'across')",
    "refresh_dataset": "SELECT easeml.refresh_dataset('own')",
    "set_refresh": "SELECT easeml.set_refresh('own', '1 day')",
    "advance_refresh": "SELECT easeml.advance_refresh('own')",
    "drift": "SELECT count(*) FROM easeml.drift('own', '{s}')",
    "drift of the source": "SELECT count(*) FROM easeml.drift('own')",
    "predict_table": "SELECT easeml.predict_table('{d}', '{s}', '{a}.out')",
    "predict_table with odd keys": "SELECT easeml.predict_table('{d}', '{s}', '{a}.out', key => '{{m,p}}')",
    "predict_table again": "SELECT easeml.predict_table('{d}', '{s}', '{a}.known', if_exists => 'append',"
    " key => '{{id}}')",
    "predict_table with odd keys again": "SELECT easeml.predict_table('{d}', '{s}', '{a}.odd', key => '{{p}}',"
    " if_exists => 'update')",
    "row_numbers": "SELECT easeml.row_numbers('{s}', '{{id}}')",
    "is_small_table": "SELECT easeml.is_small_table('{s}', '{{x}}')",
    "default_inputs": "SELECT easeml.default_inputs('{s}', '{{}}')",
    "measure_drift": "SELECT easeml.measure_drift((SELECT max(dataset_id) FROM easeml.datasets WHERE dataset_name"
    " = 'own'), '{s}'::regclass, '{{\"every_seconds\": 1, \"n_rows\": 100, \"time_column\": null}}')",
    "write_predictions": "SELECT easeml.write_predictions('{d}', '{s}'::regclass, '{a}.out', NULL, 'refuse',"
    " NULL, false)",
    "places": "SELECT easeml.places_of('{s}', '{s}'), easeml.foreign_places('{s}'), easeml.cluster_places('{s}')",
    "ask_for_packing": 'SELECT easeml.ask_for_packing(\'{{"inputs": ["x"], "target": "y"}}\', \'{s}\')',
    "check_source": "SELECT easeml.refuse_foreign_code('{s}'), easeml.check_source('{s}'::regclass, '{{anna}}')",
    "drift_on_nodes": "CALL easeml.drift_on_nodes('own', '{s}')",
    "predict_on_nodes": "CALL easeml.predict_on_nodes('{d}', '{s}', '{a}.out')",
}
WRITING = {
    mode: f"SELECT easeml.predict_table('{{d}}', '{{a}}.rows', '{{s}}', if_exists => '{mode}', key => '{{{{id}}}}')"
    for mode in ("append", "update")
}
READ_NOTHING = {"examples_bytes", "find_source", "find_output", "qualified_name", "listed_places", "drift_options"}
OTHER_WORDS = {"feed", "list_templates"}
"""Functions with such an argument for something else."""
ELSEWHERE = {"create_dataset of places", "ask_for_packing", "drift_on_nodes", "predict_on_nodes"}
"""Entries for rows on nodes, of which there are none here."""
DUE = "UPDATE easeml.refresh_rules SET next_at = now(), source_kind = (easeml.kind_of_source(%s)).kind"
ACTORS = {"anna": "easeml_tenant", "ada": "easeml_admin", "rita": "easeml_reader"}
ANSWERING = {"anna": "anna.own", "ada": "ada.own", "rita": "anna.own", "root": "postgres.own"}


@pytest.fixture(scope="module")
def roles(module_coordinated: Session) -> dict[str, Session]:
    """Sessions by role, where every actor has a dataset and a trial of its own, or may ask that of anna."""
    root = module_coordinated
    roles = {"root": root, "mallory": root.as_role("mallory", "easeml_tenant")}
    roles |= {role: root.as_role(role, group) for role, group in ACTORS.items()}
    for role, session in roles.items():
        root.execute(f"CREATE SCHEMA {role} AUTHORIZATION {'CURRENT_USER' if role == 'root' else role}")  # type: ignore[arg-type]
        session.execute(ROWS.format(role))  # type: ignore[arg-type]
    root.execute("CREATE EXTENSION postgres_fdw; GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO mallory")
    roles["mallory"].execute(SETUP)  # type: ignore[arg-type]
    for role, session in roles.items():
        for table in ("known (id int", "odd (p mallory.pair"):
            session.execute(f"CREATE TABLE {role}.{table}, predicted_label text, probability float8)")  # type: ignore[arg-type]
        with suppress(psycopg.errors.InsufficientPrivilege):  # a reader has no dataset
            session.execute(OWN.format(role))  # type: ignore[arg-type]
    for role in ("anna", "ada", "root"):
        roles[role].execute("SELECT easeml.select_models('own', '{sgd}', n_configs => 1, max_epochs => 1)")
    roles["anna"].execute("SELECT easeml.grant_use('own', 'rita')")
    root.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    roles["anna"].execute("SELECT easeml.set_refresh('own', '1 day')")
    return roles


def n_ran(root: Session) -> int:
    """Return how often a planted function has run as anybody but mallory."""
    return int(root.value("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM mallory.ran"))


def forget(root: Session) -> None:
    """Have all sessions forget what they have evaluated of relations."""
    root.execute("CREATE PUBLICATION everything FOR ALL TABLES; DROP PUBLICATION everything")


def planted(roles: dict[str, Session], place: Place, table: str) -> str:
    """Plant the function, prove that a plain statement of another runs it, and return the name of the table."""
    server = roles["root"].info
    words = {"t": table, "host": server.host, "port": server.port, "db": server.dbname}
    roles["mallory"].execute((place.table + place.plant).format(**words))  # type: ignore[arg-type]
    roles["mallory"].execute(GRANT)
    before = n_ran(roles["root"])
    forget(roles["root"])
    roles[place.reader].execute(place.control.format(t=table))  # type: ignore[arg-type]
    roles["anna"].execute("RESET constraint_exclusion")
    assert n_ran(roles["root"]) > before, "the control did not run the function"
    return f"mallory.{table}"


def those_that_ran(
    roles: dict[str, Session], source: str, entries: dict[str, str], actors: Sequence[str] = (*ACTORS, "root")
) -> list[tuple[str, str]]:
    """Call all entries as all actors; return those in which the function ran."""
    root, ran = roles["root"], []
    root.execute("UPDATE easeml.datasets SET source = %s WHERE dataset_name = 'own'", [source])
    root.execute(DUE, [source])
    forget(root)
    before = n_ran(root)
    for actor in actors:
        for entry, statement in entries.items():
            called(roles[actor], actor, source, statement)
            if n_ran(root) > before:
                ran.append((actor, entry))
                before = n_ran(root)
                forget(root)
    return ran


def called(session: Session, actor: str, source: str, statement: str) -> str:
    """Call an entry, and return its error."""
    try:
        with undone(session, statement):
            session.execute(statement.format(s=source, a=actor, d=ANSWERING[actor]))  # type: ignore[arg-type]
    except psycopg.Error as error:
        return str(error).splitlines()[0]
    return ""


def undone(session: Session, statement: str) -> AbstractContextManager[object]:
    """A transaction that is rolled back; what commits by itself can have none."""
    return nullcontext() if "CALL" in statement else session.transaction(force_rollback=True)


@pytest.mark.parametrize("name", READ)
def test_no_function_in_a_relation_runs_as_who_reads_it(roles: dict[str, Session], name: str) -> None:
    source = planted(roles, READ[name], f"r{list(READ).index(name)}")
    assert those_that_ran(roles, source, READING) == []


@pytest.mark.parametrize("name", WRITE)
def test_no_function_in_a_table_runs_as_who_writes_predictions_to_it(roles: dict[str, Session], name: str) -> None:
    source = planted(roles, WRITE[name], f"w{list(WRITE).index(name)}")
    assert those_that_ran(roles, source, WRITING) == []


def test_a_view_of_ones_own_does_not_hide_a_table_of_another(roles: dict[str, Session]) -> None:
    planted(roles, READ["index expression"], "hidden")
    for actor in (*ACTORS, "root"):
        roles[actor].execute(f"CREATE VIEW {actor}.hiding AS SELECT * FROM mallory.hidden")  # type: ignore[arg-type]
    assert [found for actor in (*ACTORS, "root") for found in those_that_ran(roles, f"{actor}.hiding", READING)] == []


def test_the_entries_read_a_table_whose_types_have_casts(roles: dict[str, Session]) -> None:
    root = roles["root"]
    source = planted(roles, READ["casts"], "types")
    root.execute("UPDATE easeml.datasets SET source = %s WHERE dataset_name = 'own'", [source])
    root.execute(DUE, [source])
    errors = {entry: called(roles["anna"], "anna", source, statement) for entry, statement in READING.items()}
    # Implicit casts leave open what "=" means.
    assert errors.pop("predict_table with odd keys again").startswith("operator is not unique: ")
    assert {entry for entry, error in errors.items() if error} == ELSEWHERE, errors


def test_the_entries_write_into_a_plain_table_of_another(roles: dict[str, Session]) -> None:
    roles["mallory"].execute((OUT + GRANT).format(t="plain"))  # type: ignore[arg-type]
    for actor in (*ACTORS, "root"):
        errors = [called(roles[actor], actor, "mallory.plain", statement) for statement in WRITING.values()]
        assert errors == ["", ""], actor


@pytest.mark.parametrize("kind", ["ROLE", "SESSION AUTHORIZATION"])
def test_a_superuser_who_acts_as_a_tenant_runs_no_code_of_the_tenant(roles: dict[str, Session], kind: str) -> None:
    source = planted(roles, READ["index expression"], f"acting_{kind[0]}".lower())
    with roles["root"].transaction(force_rollback=True):
        roles["root"].execute(f"SET LOCAL {kind} mallory")  # type: ignore[arg-type]
        with pytest.raises(psycopg.Error, match=r"got function mallory\.f"):  # it could go back to being a superuser
            roles["root"].execute("SELECT easeml.create_dataset('new', %s, '{x}', 'y')", [source])


def test_an_administrator_who_acts_as_a_tenant_runs_no_code_of_the_tenant(roles: dict[str, Session]) -> None:
    source = planted(roles, READ["index expression"], "acting_admin")
    roles["mallory"].execute((TABLE + GRANT).format(t="plain_rows"))  # type: ignore[arg-type]
    roles["root"].execute("GRANT mallory TO ada")
    with roles["ada"].transaction(force_rollback=True):
        roles["ada"].execute("SET LOCAL ROLE mallory")
        roles["ada"].execute("SELECT easeml.create_dataset('new', 'mallory.plain_rows', '{x}', 'y')")
        with pytest.raises(psycopg.Error, match=r"got function mallory\.f"):  # it could go back to being ada
            roles["ada"].execute("SELECT easeml.create_dataset('newer', %s, '{x}', 'y')", [source])
    roles["root"].execute("REVOKE mallory FROM ada")


def test_a_transaction_that_sees_old_catalogs_reads_no_table_of_another(roles: dict[str, Session]) -> None:
    roles["mallory"].execute((TABLE + GRANT).format(t="old"))  # type: ignore[arg-type]
    with roles["anna"].transaction(force_rollback=True):
        roles["anna"].execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        roles["anna"].execute("SELECT easeml.create_dataset('new', 'anna.rows', '{x}', 'y')")
        with pytest.raises(psycopg.Error, match="expected isolation level read committed, got repeatable read"):
            roles["anna"].execute("SELECT easeml.create_dataset('newer', 'mallory.old', '{x}', 'y')")


def test_a_function_with_the_rights_of_its_owner_reads_what_its_owner_may(roles: dict[str, Session]) -> None:
    source = planted(roles, READ["index expression"], "defined")
    roles["mallory"].execute(
        "CREATE FUNCTION mallory.make() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS"
        f" $$ SELECT easeml.create_dataset('defined', '{source}', '{{x}}', 'y') $$"  # type: ignore[arg-type]
    )
    assert roles["anna"].value("SELECT mallory.make()")


def test_what_is_added_while_a_table_is_read_is_seen_before_the_next_look(roles: dict[str, Session]) -> None:
    roles["mallory"].execute((TABLE + GRANT).format(t="late"))  # type: ignore[arg-type]
    with roles["anna"].transaction(force_rollback=True):
        roles["anna"].execute("SELECT easeml.create_dataset('new', 'mallory.late', '{x}', 'y')")
        roles["mallory"].execute("CREATE INDEX ON mallory.late ((mallory.f(1)))")
        with pytest.raises(psycopg.Error, match=r"got function mallory\.f"):
            roles["anna"].execute("SELECT easeml.refresh_dataset('new')")


@pytest.mark.parametrize("name", SUPERUSERS_ONLY)
def test_only_a_superuser_plants_functions_in_other_places(roles: dict[str, Session], name: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        roles["mallory"].execute(SUPERUSERS_ONLY[name])  # type: ignore[arg-type]


def test_every_function_that_takes_a_relation_is_called(roles: dict[str, Session]) -> None:
    found = roles["root"].values(
        "SELECT DISTINCT p.proname FROM pg_proc p WHERE p.pronamespace = 'easeml'::regnamespace AND (p.proargnames"
        " && %s OR 'regclass'::regtype::oid = ANY (p.proargtypes::oid[])) AND (has_function_privilege('anna', p.oid,"
        " 'EXECUTE') OR has_function_privilege('rita', p.oid, 'EXECUTE'))",
        ["relation", "source", "output"],
    )
    called = " ".join([*READING.values(), *WRITING.values()])
    assert {name for name in found if f"easeml.{name}(" not in called} - READ_NOTHING - OTHER_WORDS == set()
