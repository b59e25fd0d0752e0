"""Tenants who say that they are somebody else, or that something is what it is not, at the door and around it."""

from __future__ import annotations

import json
import reprlib
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

RUN = "SELECT easeml.select_models('d', '{linear}', n_configs => 1, max_epochs => 1000)"
BEGIN = "SELECT easeml.request('begin_dataset', %s::jsonb)::bigint"
BLOCK = "INSERT INTO easeml.blocks (dataset_id, split, partition_number, block_number, n_rows, inputs, targets) VALUES "
FINISH = "SELECT easeml.request('finish_dataset', %s::jsonb)"
WANTED = {
    "name": "by hand", "source": "public.points", "inputs": ["x"], "target": "y", "n_partitions": 1,
    "validation_fraction": 0.2, "test_fraction": 0.2, "seed": 0, "placement": "shared",
}  # fmt: skip
FOUND: dict[str, Any] = {
    "task": "classification", "input_shape": [1], "n_outputs": 2, "block_rows": 64, "n_skipped_rows": 0,
    "packing_seconds": 1, "encoder": {}, "checksums": [0],
}  # fmt: skip

INVENTED = """
SELECT (jsonb_populate_record(d, jsonb_build_object('dataset_id', a.dataset_id, 'tenant', 'ann',
    'placement', 'bound'))).*
FROM easeml.datasets d, (SELECT %s::bigint AS dataset_id) a WHERE d.dataset_name = 'd'
"""
PREVIEW = f"""
SELECT count(*) FROM ({INVENTED}) v,
    easeml.preview_search(v::easeml.datasets, 'random', 2, 2, NULL, '{{lightgbm}}', NULL, 0)
"""
PLAN = f"""
SELECT jsonb_array_length(easeml.plan_search_on(v::easeml.datasets, '{{"architectures": ["lightgbm"],
    "procedure": "random", "n_configs": 2, "max_epochs": 2, "seed": 0}}', 'local', '{{"n_points": 2}}',
    easeml.known_times(v::easeml.datasets, 'random'))) FROM ({INVENTED}) v
"""


@pytest.fixture(scope="module")
def tenants(module_database: Session) -> dict[str, Session]:
    """ann and mallory, each with a dataset of the same name, and ann with an open run; nothing trains."""
    root = module_database
    root.execute("CREATE TABLE points AS SELECT i * 0.1 AS x, i % 2 AS y FROM generate_series(1, 40) i")
    root.execute("GRANT SELECT ON points TO PUBLIC; GRANT CREATE ON SCHEMA public TO PUBLIC")
    sessions = {name: root.as_role(name, "easeml_tenant") for name in ("ann", "mallory")}
    for session in sessions.values():
        session.execute("SELECT easeml.create_dataset('d', 'points', '{x}', 'y', n_partitions => 2)")
    return sessions


@pytest.fixture
def mallory(tenants: dict[str, Session]) -> Session:
    return tenants["mallory"]


def refused(session: Session, sqlstate: str, statement: str, *values: Any) -> str:
    """The message with which a statement is refused; nothing of it stays."""
    with pytest.raises(psycopg.Error) as caught, session.transaction():
        session.execute(statement.encode(), values or None)
    assert caught.value.sqlstate == sqlstate, caught.value
    return str(caught.value)


def test_nobody_acts_on_the_runs_of_others_at_the_door_itself(tenants: dict[str, Session], mallory: Session) -> None:
    arguments = json.dumps({"run_id": tenants["ann"].value(RUN)})
    for action in ("cancel", "drop_run", "resume"):
        refused(mallory, "ML003", "INSERT INTO easeml.requests (action, arguments) VALUES (%s, %s)", action, arguments)
    refused(mallory, "ML001", "INSERT INTO easeml.requests (action, arguments) VALUES ('anything', %s)", arguments)


def test_a_view_over_the_door_with_another_default_is_seen_through(
    tenants: dict[str, Session], mallory: Session
) -> None:
    run_id = tenants["ann"].value(RUN)
    arguments = json.dumps({"run_id": run_id})
    mallory.execute("CREATE VIEW public.front AS SELECT caller, action, arguments, result FROM easeml.requests")
    mallory.execute("ALTER VIEW public.front ALTER caller SET DEFAULT 'ann'")
    refused(mallory, "ML003", "INSERT INTO public.front (action, arguments) VALUES ('cancel', %s)", arguments)
    refused(
        mallory, "42501", "INSERT INTO easeml.requests (caller, action, arguments) VALUES ('ann', 'cancel', %s)",
        arguments,
    )  # fmt: skip


def test_a_view_over_the_door_lets_nobody_in(module_database: Session, mallory: Session) -> None:
    gatecrasher = module_database.as_role("gatecrasher")
    mallory.execute("CREATE VIEW public.gate AS SELECT action, arguments, result FROM easeml.requests")
    mallory.execute("GRANT INSERT ON public.gate TO gatecrasher")
    statement = "INSERT INTO public.gate (action, arguments) VALUES ('undeploy', '{\"dataset\": \"d\"}')"
    assert "is no tenant" in refused(gatecrasher, "ML004", statement)


def test_another_s_definer_function_asks_as_its_owner(tenants: dict[str, Session], mallory: Session) -> None:
    run_id = tenants["ann"].value(RUN)
    mallory.execute(
        f"CREATE FUNCTION public.lure() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'SELECT easeml.cancel({run_id})'"
    )
    refused(tenants["ann"], "ML003", "SELECT public.lure()")


def test_a_request_takes_no_more_than_it_names(module_database: Session, mallory: Session) -> None:
    forged = {
        "dataset": "d", "max_epochs": 3, "seed": 0, "procedure": "random", "scheduler": "auto", "visit_order": "cyclic",
        "allocation": "hopping", "architectures": ["linear"], "run_id": 77, "tenant": "ann", "status": "finished",
        "search": {"architectures": 3}, "is_higher_better": False, "planned_scheduler": "x", "created_at": "infinity",
    }  # fmt: skip
    run_id = mallory.value("SELECT easeml.request('select_models', %s)", json.dumps(forged))
    (row,) = module_database.rows("SELECT * FROM easeml.runs WHERE run_id = %s", run_id)
    assert run_id != 77
    found = (row["tenant"], row["status"], row["search"], row["is_higher_better"], row["planned_scheduler"])
    assert found == ("mallory", "queued", None, True, None)


@pytest.mark.parametrize("arguments", ["null", "[]", "3", '"x"', "true", None])
def test_arguments_that_are_no_object_are_refused_in_one_line(mallory: Session, arguments: str | None) -> None:
    for action in ("begin_dataset", "finish_dataset", "select_models", "cancel", "anything"):
        said = refused(mallory, "ML001", "SELECT easeml.request(%s, %s)", action, arguments)
        assert said.startswith("arguments: expected a json object, got ")


def test_a_relation_that_there_is_not_is_refused_in_one_line(mallory: Session) -> None:
    for relation in ("4294967295", "0", "NULL"):
        said = refused(
            mallory, "ML003", f"SELECT easeml.raise_failure(w.failure)"
            f" FROM easeml.write_predictions('d', {relation}, 'predicted', NULL, 'refuse', NULL, false) w",
        )  # fmt: skip
        assert said.startswith("source: there is no table or view with the number")


def test_an_invented_dataset_tells_nothing_of_where_another_s_partitions_are(
    tenants: dict[str, Session], mallory: Session
) -> None:
    """Those of ann lie on no segment: units over all of them would be refused to her, were they bound to segments."""
    dataset_id = tenants["ann"].value("SELECT dataset_id FROM easeml.datasets WHERE dataset_name = 'd'")
    assert mallory.value(PREVIEW, dataset_id) > 0
    with pytest.raises(psycopg.Error, match="nothing is known of how long lightgbm takes"):
        mallory.execute(PLAN, [dataset_id])


@pytest.mark.parametrize("asked", ["preview_procedure('random', dataset => 'd', ", "plan('d', ", "plan_frontier('d', "])
def test_partitions_of_one_s_own_that_lie_apart_are_looked_up_before_a_run(
    module_database: Session, mallory: Session, asked: str
) -> None:
    with module_database.transaction(force_rollback=True):
        module_database.execute("UPDATE easeml.datasets SET placement = 'bound'")
        module_database.execute("SET LOCAL ROLE mallory")
        with pytest.raises(psycopg.Error, match="lightgbm takes all partitions at once, and no segment holds all"):
            module_database.execute(f"SELECT * FROM easeml.{asked}architectures => '{{lightgbm}}')")


def test_ids_and_sequences_are_not_the_tenants(module_database: Session, mallory: Session) -> None:
    for sequence in module_database.values(
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'S'"
    ):
        refused(mallory, "42501", f"SELECT nextval('{sequence}')")
    dataset_id = mallory.value("SELECT dataset_id FROM easeml.datasets")
    with_id = "INSERT INTO easeml.runs (run_id, dataset_id) OVERRIDING SYSTEM VALUE VALUES (9, {})"
    refused(mallory, "42501", with_id.format(dataset_id))


# Packing by hand: mallory may pack what she likes, as long as it is a dataset of hers and holds together


def test_blocks_are_added_in_the_transaction_that_packs_and_in_no_other(
    tenants: dict[str, Session], mallory: Session
) -> None:
    own = mallory.value("SELECT dataset_id FROM easeml.datasets")
    others = tenants["ann"].value("SELECT dataset_id FROM easeml.datasets")
    for dataset_id in (own, others):
        refused(mallory, "42501", f"{BLOCK} ({dataset_id}, 'train', 0, 99, 1, '', '')")
        refused(mallory, "ML003", "SELECT easeml.raise_failure(failure) FROM easeml.pack_begun_dataset(%s)", dataset_id)
        refused(mallory, "ML003", FINISH, json.dumps({**FOUND, "dataset_id": dataset_id}))


def test_a_dataset_that_is_begun_and_not_packed_cannot_be_committed(mallory: Session) -> None:
    assert "begun and not packed" in refused(mallory, "ML004", BEGIN, json.dumps(WANTED))


FORGED: list[tuple[dict[str, Any], str, str]] = [
    ({"input_shape": [1_000_000]}, "ML004", "input_shape"),
    ({"input_shape": [2147483647, 2147483647]}, "ML004", "input_shape"),
    ({"input_shape": []}, "ML004", "input_shape"),
    ({"input_shape": [-5]}, "ML004", "input_shape"),
    ({"n_outputs": 0}, "23514", "n_outputs"),
    ({"task": "poetry"}, "23514", "task"),
    ({"block_rows": 2147483647}, "23514", "block_rows"),
    ({"packing_seconds": "NaN"}, "23514", "packing_seconds"),
    ({"packing_seconds": "-Infinity"}, "23514", "packing_seconds"),
    ({"n_skipped_rows": 2**62}, "23514", "n_skipped_rows"),
    ({"encoder": {"x": 10**400}}, "ML001", "encoder"),
    ({"encoder": {"x": [[[[[[[[[[]]]]]]]]]]}}, "ML001", "encoder"),
    ({"encoder": {"x": "x" * (1 << 25)}}, "ML001", "encoder"),
    ({"encoder": None}, "23502", "encoder"),
    ({"checksums": None}, "23502", "checksum"),
]


@pytest.mark.parametrize(("forged", "sqlstate", "about"), FORGED, ids=[reprlib.repr(f)[:40] for f, _, _ in FORGED])
def test_what_packing_tells_is_checked(mallory: Session, forged: dict[str, Any], sqlstate: str, about: str) -> None:
    with mallory.transaction(force_rollback=True):
        begun = mallory.value(BEGIN, json.dumps(WANTED))
        mallory.execute(f"{BLOCK} ({begun}, 'train', 0, 0, 8, %s, %s)".encode(), [b"x" * 64, b"y" * 32])
        assert about in refused(mallory, sqlstate, FINISH, json.dumps({**FOUND, "dataset_id": begun, **forged}))


def test_partitions_are_complete_and_counted_by_the_server(module_database: Session, mallory: Session) -> None:
    for partition in (1, 9999):
        with mallory.transaction(force_rollback=True):
            begun = mallory.value(BEGIN, json.dumps(WANTED))
            mallory.execute(f"{BLOCK} ({begun}, 'train', {partition}, 0, 8, 'x', 'y')".encode())
            refused(mallory, "23502", FINISH, json.dumps({**FOUND, "dataset_id": begun}))
            finish = json.dumps({**FOUND, "dataset_id": begun, "checksums": [0] * 10000})
            assert "expected 1 partitions" in refused(mallory, "ML004", FINISH, finish)


JSON = [
    "repeat('[', 100) || repeat(']', 100)",
    "'{\"learning_rate\": 1' || repeat('0', 5001) || '}'",
    "'{\"learning_rate\": \"' || repeat('x', 1000001) || '\"}'",
]


@pytest.mark.parametrize("value", JSON)
def test_json_is_bounded_where_it_enters(mallory: Session, value: str) -> None:
    for argument in ("search_space", "procedure_options"):
        refused(mallory, "ML001", f"SELECT easeml.select_models('d', {argument} => ({value})::jsonb)")
        refused(mallory, "ML001", f"SELECT easeml.preview_procedure('tpe', {argument} => ({value})::jsonb)")


def test_cancelling_and_resuming_in_turn_fills_no_table(module_database: Session, mallory: Session) -> None:
    run_id = mallory.value(RUN)
    # As if it had been so for long: each further start is delayed.
    module_database.execute(
        "INSERT INTO easeml.events (tenant, run_id, kind, message) SELECT 'mallory', %s, kind, 'before'"
        " FROM generate_series(1, 98), unnest('{cancelled,resumed}'::text[]) kind", [run_id]
    )  # fmt: skip
    mallory.execute(
        f"DO 'BEGIN FOR i IN 1..5 LOOP PERFORM easeml.cancel({run_id}), easeml.resume({run_id}); END LOOP; END'"
    )
    messages = module_database.values("SELECT message FROM easeml.events WHERE run_id = %s ORDER BY event_id", run_id)
    assert messages == ["before"] * 190 + ["cancelled by mallory", "resumed by mallory"] * 5
