"""A cancel, a timeout and the end of a session take effect soon in every function that a tenant may call.

Each function gets the worst arguments that are legal, under a timeout of 0.2 s. What is measured is the computing time
of the session's own process, which a busy machine does not lengthen. Modules are imported beforehand: an import is not
interrupted, since one that is half done could not be repeated.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

TIMEOUT = "200ms"
ENOUGH_SECONDS = 2.0  # of computing time: it should be 0.3
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
WIDE = """'{"learning_rate": {"low": 1e-6, "high": 1.0}}'"""
ALL = "'{linear,mlp,sgd,perceptron,passive_aggressive}'"

KNOWN = json.dumps(
    {
        "trials": [
            {"architecture": name, "device_kind": "cpu", "n_slots": width, "is_same": True, "scale": 1,
             "epoch_seconds": 9.0 / width, "sd_seconds": 1.0, "n_epochs": 2}
            for name in ("mlp", "linear") for width in (1, 2, 512, 1024)
        ],
        "speedups": None, "curves": {"mlp": [[0.1, 0.2], [0.3, 0.4]]}, "n_partitions": 4, "max_slots": None,
        "data_gb": 1,
    }
)  # fmt: skip
HYPERPARAMETERS = '[{"name": "batch_size", "kind": "integer", "default": 1, "low": 1, "high": 1e6}]'
SEARCH = {"architectures_json": '{"mlp": []}', "search_space_json": None}
STANDING = {
    "dataset": "points", "seed": 0, "device_kind": "cpu", "n_slots": 4, "price_per_hour": 1, "seconds_to_limit": None,
    "allocation": "hopping",
    "arms": [{"name": "mlp", "trials": []}], "knowledge": json.loads(KNOWN) | {"whole": [], "joint": []},
}  # fmt: skip
# By PL/Python function: statements that reach it with much to do.
WORST = {
    "plan_search": (
        f"SELECT count(*) FROM easeml.preview_procedure('random', n_configs => 10000, architectures => {ALL})",
        "SELECT count(*) FROM easeml.preview_procedure('random', n_configs => 10000, architectures => '{mlp}',"
        """ search_space => '{"batch_size": {"low": 1, "high": 10001}}')""",
        "SELECT count(*) FROM easeml.preview_procedure('bohb', 6561, 10000, '{\"n_parallel\": 10000}')",
        f"SELECT count(*) FROM easeml.preview_procedure('pbt', 10000, architectures => {ALL})",
        "SELECT count(*) FROM easeml.preview_procedure('grid', architectures => '{mlp}', search_space =>"
        """ (SELECT jsonb_build_object('learning_rate', jsonb_agg(i / 1e5)) FROM generate_series(1, 9900) i))""",
    ),
    "make_plan": tuple(
        f"SELECT easeml.plan_search_on(easeml.find_dataset('points'), '{search}', 'aws-p3', '{{\"n_points\": 100}}', "
        f"'{KNOWN}')"
        for search in (
            '{"procedure": "hyperband", "max_epochs": 6561, "seed": 0, "architectures": ["mlp", "linear"]}',
            '{"procedure": "random", "n_configs": 10000, "seed": 0, "architectures": ["mlp", "linear"]}',
            '{"procedure": "pbt", "max_epochs": 100, "seed": 0, "architectures": ["mlp", "linear"]}',
            '{"procedure": "asha", "n_configs": 10000, "seed": 0, "architectures": ["mlp"]}',
        )
    ),
    "make_forecast": tuple(
        f"""SELECT easeml.make_forecast('{json.dumps(STANDING | {"search": search})}')"""
        for search in (
            SEARCH | {"procedure": "asha", "n_configs": 10000, "max_epochs": 81},
            SEARCH | {"procedure": "hyperband", "max_epochs": 6561},
        )
    ),
    "begin_search": (
        f"SELECT easeml.select_models('points', {ALL}, procedure => 'random', n_configs => 10000)",
        "SELECT easeml.select_models('points', '{mlp}', procedure => 'bohb', n_configs => 10000, max_epochs => 19683,"
        f" procedure_options => '{{\"n_parallel\": 10000}}', search_space => {WIDE})",
        "SELECT easeml.select_models('points', '{mlp}', procedure => 'tpe', n_configs => 10000,"
        f" procedure_options => '{{\"n_parallel\": 10000}}', search_space => {WIDE})",
    ),
    "pack_begun_dataset": (
        "SELECT easeml.create_dataset('many', 'many', '{x,words}', 'y', n_partitions => 1000, block_rows => 1000000)",
    ),
    "measure_drift": ("SELECT count(*) FROM easeml.drift('points', 'many')",),
    "fitting_architectures": ("SELECT easeml.select_models('points', array_fill('x'::text, ARRAY[2000000]))",),
    "begin_search within memory": (
        "SELECT easeml.select_models('points', '{mlp}', procedure => 'random', n_configs => 9000)",
    ),
    "fitting_architectures with many sizes": (
        "SELECT easeml.create_dataset('sizes', 'images', '{x}', 'y', input_shape => array_fill(1, ARRAY[5000000]))",
    ),
    "near_names": (
        "SELECT easeml.near_names(repeat('ab', 500), array_agg(repeat('a', 500) || i))"
        " FROM generate_series(1, 20000) i",
    ),
    "hyperparameter_importances": (
        "SELECT easeml.hyperparameter_importances((SELECT jsonb_agg(jsonb_build_object('architecture', 'mlp',"
        " 'value', i, 'config', jsonb_build_object('learning_rate', 1 / i::float8))) FROM generate_series(1, 30000) i),"
        " (SELECT jsonb_object_agg(a.architecture, a.hyperparameters) FROM easeml.architectures a"
        " WHERE a.architecture = 'mlp'))",
    ),
    "read_examples": (
        """SELECT easeml.read_examples('{"inputs": [{"column": "input", "type": "real[]", "shape": [2], "text": "",'
        ' "n_values": 2}]}', NULL, (SELECT jsonb_agg('{"input": [1, 2], "output": 1}'::jsonb)::text"""
        " FROM generate_series(1, 400000)))",
    ),
    "describe_program": (
        "SELECT easeml.create_task('deep', 'Input = [' || repeat('9,', 5000) || '9] Output = [2]',"
        " schema => 'mallory')",
        "SELECT easeml.create_task('wide', 'Input = [' || repeat('f :: [2], ', 1500) || 'g :: [2]] Output = [2]',"
        " schema => 'mallory')",
        "SELECT easeml.create_task('long', repeat('Input = {[2], [a, b]} ', 900), schema => 'mallory')",
    ),
    "list_architectures": ("SELECT count(*) FROM easeml.architectures a, generate_series(1, 100000)",),
    "list_metrics": ("SELECT count(*) FROM generate_series(1, 100000), LATERAL (SELECT * FROM easeml.metrics) m",),
}
# Reached through what the tenant's rows say: called by themselves, as the service's functions call them.
BEHIND_THE_DOOR = {
    "choose_portfolio": (
        f"""SELECT easeml.choose_portfolio('[{{"architecture": "mlp", "hyperparameters": {HYPERPARAMETERS}}}]',"""
        " (SELECT jsonb_agg(jsonb_build_object('architecture', 'mlp', 'dataset', i % 2000, 'quality', random(),"
        " 'config', jsonb_build_object('batch_size', i))) FROM generate_series(1, 8000) i))",
    ),
}
# They take no argument, or only names and numbers: a call is over at once.
SHORT = {
    "check_source",
    "specifications",
    "architecture_facts",
    "held_architectures",
    "complete_budget",
    "takes_n_parallel",
    "complete_allocation",
    "planned_allocation",
    "run_reason",
    "add_bytes",
    "begin_count",
    "list_procedures",
    "list_schedulers",
    "list_allocations",
    "needs_gangs",
    "list_policies",
    "list_priors",
    "list_templates",
    "commit_first",
    "rest",
}
# Sessions that predict and replay import torch; what a tenant can make long there is measured where torch is at hand:
# the interrupts of every entry point are one mechanism (tests/unit/plpy/server/test_interrupts.py).
SAME_MECHANISM = {
    "predict_json", "predict_numbers", "predict_bytes", "predict_packed", "write_predictions", "open_serving",
    "check_replay", "replay_units", "class_probabilities", "infer_output", "examine_trial", "compare_trials",
    "import_model", "export_file", "store_import",
}  # fmt: skip
# What only administrators call, and what only the service calls, in a session for which no tenant's statement waits.
NOT_FOR_TENANTS = {
    "check_engine",
    "check_architecture",
    "read_price_list",
    "pack_task",
    "greenplum_script",
    "remove_greenplum_views",
}
# Behind the door the owner's functions call what nobody else may.
REACHABLE = """
SELECT p.proname::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'easeml'::regnamespace AND l.lanname = 'plpython3u'
    AND (has_function_privilege(%s, p.oid, 'EXECUTE')
        OR NOT has_function_privilege('easeml_coordinator', p.oid, 'EXECUTE'))
"""


@pytest.fixture(scope="module")
def mallory(module_database: Session) -> Session:
    """A tenant with a dataset and a large table, whose session has imported what it needs."""
    root = module_database
    root.execute("CREATE TABLE points AS SELECT i * 0.1 AS x, i % 2 AS y FROM generate_series(1, 40) i")
    root.execute(
        "CREATE TABLE many AS SELECT i * 0.1 AS x, repeat(md5(i::text), 3) AS words, i % 5000 AS y"
        " FROM generate_series(1, 100000) i"
    )
    root.execute("CREATE TABLE images AS SELECT ''::bytea AS x, i % 2 AS y FROM generate_series(1, 40) i")
    root.execute("GRANT SELECT ON points, many, images TO PUBLIC")
    tenant = root.as_role("mallory", "easeml_tenant")
    root.execute("CREATE SCHEMA mallory AUTHORIZATION mallory")
    tenant.execute("SELECT easeml.create_dataset('points', 'points', '{x}', 'y')")
    for procedure in ("random", "bohb"):
        tenant.execute("SELECT easeml.select_models('points', '{mlp}', procedure => %s)", [procedure])
    tenant.execute(f"SET statement_timeout = '{TIMEOUT}'")
    return tenant


def computing_seconds(pid: int) -> float:
    """What a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def sqlstate_of(session: Session, statement: str) -> str | None:
    """How a statement ended."""
    try:
        session.execute(statement)  # type: ignore[arg-type]
    except psycopg.Error as error:
        return error.sqlstate
    return "00000"


def test_every_function_that_a_tenant_reaches_has_its_worst_arguments_here(mallory: Session) -> None:
    known = WORST.keys() | BEHIND_THE_DOOR.keys() | SHORT | SAME_MECHANISM | NOT_FOR_TENANTS
    assert set(mallory.values(REACHABLE, "mallory")) - known == set()


@pytest.mark.parametrize("statement", [each for statements in BEHIND_THE_DOOR.values() for each in statements])
def test_a_timeout_ends_what_is_behind_the_door(module_database: Session, statement: str) -> None:
    service = module_database.again()
    service.execute("SELECT easeml.choose_portfolio('[]', NULL)")  # imports it
    service.execute(f"SET statement_timeout = '{TIMEOUT}'")
    before = computing_seconds(service.info.backend_pid)
    assert sqlstate_of(service, statement) == "57014"
    assert computing_seconds(service.info.backend_pid) - before < ENOUGH_SECONDS


ENDLESS_FORECAST = """
DO LANGUAGE plpython3u $$
from easeml_db.decisions.planner import forecast_documents
def endless(state):
    while True:
        pass
forecast_documents.make_forecast = endless
$$
"""


def test_a_forecast_of_the_coordinator_has_no_snapshot_and_can_be_cancelled(module_database: Session) -> None:
    """A snapshot would keep vacuums from removing what is pruned meanwhile."""
    service, ends = module_database.again(), []
    service.execute(ENDLESS_FORECAST)  # in this session alone
    pid = service.info.backend_pid
    call = "CALL easeml.make_forecast_apart('{}', NULL, NULL)"
    forecast = threading.Thread(target=lambda: ends.append(sqlstate_of(service, call)))
    forecast.start()
    module_database.wait_until(
        "SELECT state = 'active' AND backend_xmin IS NULL AND clock_timestamp() - query_start > interval '0.5 s'"
        " FROM pg_stat_activity WHERE pid = %s",
        pid,
    )
    module_database.execute("SELECT pg_cancel_backend(%s)", [pid])
    forecast.join()
    assert ends == ["57014"]


@pytest.mark.parametrize("statement", [each for statements in WORST.values() for each in statements])
def test_a_timeout_ends_it_wherever_it_is(mallory: Session, statement: str) -> None:
    before = computing_seconds(mallory.info.backend_pid)
    assert sqlstate_of(mallory, statement) in ("00000", "57014", "ML001", "ML002")
    assert computing_seconds(mallory.info.backend_pid) - before < ENOUGH_SECONDS
    mallory.execute("SET statement_timeout = 0")
    try:
        assert mallory.value("SELECT count(*) FROM easeml.preview_procedure('random')") == 1
    finally:
        mallory.execute(f"SET statement_timeout = '{TIMEOUT}'")


LONG = """
SELECT count(*) FROM generate_series(1, 1000), LATERAL easeml.preview_procedure('bohb', 6561, 10000,
    '{"n_parallel": 10000}', seed => generate_series)
"""


@pytest.mark.parametrize("end", ["SELECT pg_cancel_backend(%s)", "SELECT pg_terminate_backend(%s)"])
def test_a_cancel_and_the_end_of_the_session_come_as_soon(module_database: Session, mallory: Session, end: str) -> None:
    victim = module_database.as_role("mallory")
    victim.execute("SELECT count(*) FROM easeml.preview_procedure('bohb')")
    pid, ended = victim.info.backend_pid, threading.Event()
    errors: list[Any] = []

    def work() -> None:
        try:
            victim.execute(LONG)
        except psycopg.Error as error:
            errors.append(error)
        ended.set()

    worker = threading.Thread(target=work)
    worker.start()
    while computing_seconds(pid) < 0.5:
        time.sleep(0.05)
    before = computing_seconds(pid)
    module_database.execute(end, [pid])  # type: ignore[arg-type]
    spent = 0.0
    with suppress(FileNotFoundError):  # the process has ended; its client hears of it in a moment
        while not ended.wait(0.05) and spent < ENOUGH_SECONDS:
            spent = computing_seconds(pid) - before
    assert spent < ENOUGH_SECONDS or ended.is_set(), f"it went on for {spent} seconds"
    worker.join()
    assert errors
