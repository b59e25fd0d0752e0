"""Bad input is refused with an SQLSTATE of class ML, a message that says what was wrong, and nothing written."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

SETUP = """
CREATE TABLE t AS SELECT i AS x, i * 0.5 AS z, ARRAY[i, -i]::real[] AS pair, chr(97 + i % 3) AS y, i % 5 AS n,
    i * 0.1 AS value,
    decode(lpad(to_hex(i), 8, '0'), 'hex') AS image, 'one' AS constant, NULL::text AS nothing, 2.5::float8 AS flat,
    CASE i WHEN 7 THEN ARRAY[1, 2, 3] ELSE ARRAY[1, 2] END AS ragged, ARRAY[]::int[] AS hollow, NULL::real[] AS absent,
    substr('\\x010203'::bytea, 1, 1 + i % 2) AS uneven, CASE i WHEN 3 THEN NULL ELSE '\\x01'::bytea END AS gap,
    CASE i WHEN 4 THEN 'NaN'::float8 ELSE i END AS broken, point(i, i) AS place, i * interval '1 day' AS span,
    jsonb_build_object('a', i) AS document, i::text AS many
FROM generate_series(0, 99) i;
CREATE TABLE empty (x integer, y text);
CREATE TABLE few AS SELECT * FROM t LIMIT 5;
CREATE TABLE crowd AS SELECT i AS x, 'label ' || i AS y FROM generate_series(1, 10001) i;
CREATE INDEX t_x ON t (x);
CREATE SEQUENCE numbers;
SELECT easeml.create_dataset('labels', 't', '{x,z}', 'y');
SELECT easeml.create_dataset('numbers', 't', '{x,z}', 'value');
SELECT easeml.create_dataset('images', 't', '{image}', 'y', input_shape => '{2,2}');
"""


@pytest.fixture(scope="module")
def prepared(module_database: Session) -> Session:
    """A database with a table of everything, three datasets, and a run that nobody trains."""
    for statement in SETUP.strip().split(";\n"):
        module_database.execute(statement)
    module_database.execute("SELECT easeml.select_models('labels', '{linear}', n_configs => 2, max_epochs => 1)")
    return module_database


@pytest.fixture
def unchanged(prepared: Session) -> Iterator[Session]:
    """The database; after the test no row of easeml may have come or gone, and no table have been made."""
    before = footprint(prepared)
    yield prepared
    assert footprint(prepared) == before


def footprint(database: Session) -> dict[str, Any]:
    """Rows of every table of easeml, and the tables of everybody else."""
    tables = database.values(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = 'r'"
    )
    counts: dict[str, Any] = {name: database.value(f"SELECT count(*) FROM easeml.{name}") for name in tables}
    counts["others"] = database.values(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'v') AND relnamespace >= 16384 ORDER BY 1"
    )
    counts["public"] = database.values(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    return counts


def refused(database: Session, statement: str, sqlstate: str, message: str, hint: str = "") -> psycopg.Error:
    """The error of a statement, which must be of that SQLSTATE and match; a class in front of the message is a"
    " fault."""
    with pytest.raises(psycopg.Error) as caught:
        database.execute(statement)  # type: ignore[arg-type]
    error = caught.value
    primary = error.diag.message_primary or ""
    assert error.sqlstate == sqlstate, f"{error.sqlstate}: {primary}"
    assert re.search(message, primary), primary
    assert re.search(hint, error.diag.message_hint or ""), error.diag.message_hint
    assert not re.match(r"[\w.]*(Error|Argument|Data|Mismatch|NotFound|NotReady):? ", primary), primary
    return error


# create_dataset

BAD_DATASETS = {
    # source
    "'d', 'nowhere', '{x}', 'y'": ("ML003", "no table or view 'nowhere'"),
    "'d', 'nowhere.t', '{x}', 'y'": ("ML003", "no table or view"),
    "'d', 'T', '{x}', 'y'": None,  # folded, as in SQL: fine
    "'d', '\"T\"', '{x}', 'y'": ("ML003", "no table or view"),
    "'d', 'SELECT * FROM t', '{x}', 'y'": ("ML001", "expected the name of a table or view, got a query", "CREATE VIEW"),
    "'d', 't; DROP TABLE t', '{x}', 'y'": ("ML003", "no table or view"),
    "'d', '(SELECT * FROM t)', '{x}', 'y'": ("ML001", "expected the name of a table or view, got a query"),
    "'d', 'a.b.c', '{x}', 'y'": ("ML003", "no table or view"),
    "'d', 'a.b.c.d', '{x}', 'y'": ("ML003", "no table or view"),
    "'d', '', '{x}', 'y'": ("ML003", "no table or view"),
    "'d', NULL, '{x}', 'y'": ("ML003", "no table or view NULL"),
    "'d', 't_x', '{x}', 'x'": ("ML003", "no table or view"),
    "'d', 'numbers', '{last_value}', 'log_cnt'": ("ML003", "no table or view"),
    "'d', 'empty', '{x}', 'y'": ("ML002", "empty has no rows"),
    "'d', 'few', '{x}', 'y', n_partitions => 6": ("ML002", "5 rows are too few for 6 partitions"),
    "'d', 'few', '{x}', 'y', n_partitions => 1, validation_fraction => 0.01": (
        "ML002",
        "validation_fraction.*no validation",
    ),
    "'d', 'few', '{x}', 'y', n_partitions => 1, test_fraction => 0.01": ("ML002", "test_fraction.*no test row"),
    # name
    "NULL, 't', '{x}', 'y'": ("ML001", "name: expected 1 to 200 characters, got NULL"),
    "'', 't', '{x}', 'y'": ("ML001", "name: expected 1 to 200 characters, got ''"),
    "' ', 't', '{x}', 'y'": ("ML001", "name: expected 1 to 200 characters"),
    "repeat('x', 201), 't', '{x}', 'y'": ("ML001", "name: expected 1 to 200 characters"),
    "'labels', 't', '{x}', 'y'": ("ML001", "have a dataset 'labels' already"),
    # columns
    "'d', 't', '{wrong}', 'y'": ("ML001", "inputs: public.t has no column 'wrong'"),
    "'d', 't', '{x,X}', 'y'": ("ML001", "no column 'X'"),
    "'d', 't', '{ctid}', 'y'": ("ML001", "no column 'ctid'"),
    "'d', 't', '{}', 'y'": ("ML001", "inputs: expected at least one column"),
    "'d', 't', '{NULL}', 'y'": ("ML001", "no column NULL"),
    "'d', 't', '{{x,z},{x,z}}', 'y'": ("ML001", "inputs: expected a list of columns"),
    "'d', 't', '{x,x}', 'y'": ("ML001", "named twice"),
    "'d', 't', '{\"x; DROP TABLE t\"}', 'y'": ("ML001", "no column 'x; DROP TABLE t'"),
    "'d', 't', '{x}', 'wrong'": ("ML001", "target: public.t has no column 'wrong'"),
    "'d', 't', '{x}', NULL": ("ML001", "target: expected a column, got NULL"),
    "'d', 't', '{x,y}', 'y'": ("ML001", "'y' is among the inputs"),
    "'d', 't', '{place}', 'y'": ("ML001", "column 'place' has type point"),
    "'d', 't', '{span}', 'y'": ("ML001", "column 'span' has type interval"),
    # values
    "'d', 't', '{ragged}', 'y'": ("ML002", "'ragged' holds ragged arrays"),
    "'d', 't', '{hollow}', 'y'": ("ML002", "'hollow' holds empty arrays"),
    "'d', 't', '{absent}', 'y'": ("ML002", "'absent' holds empty arrays or NULL"),
    "'d', 't', '{uneven}', 'y'": ("ML002", "'uneven' holds values of different lengths"),
    "'d', 't', '{gap}', 'y'": ("ML002", "'gap' is NULL in some rows"),
    # target
    "'d', 't', '{x}', 'constant'": ("ML002", "'constant' has one class only, 'one'"),
    "'d', 't', '{x}', 'nothing'": ("ML002", "'nothing' is NULL in all 100 rows"),
    "'d', 't', '{x}', 'flat'": ("ML002", "'flat' has the same value in every row"),
    "'d', 't', '{x}', 'broken'": ("ML002", "'broken' is NaN, infinite or beyond 1e\\+150 in 1 rows?"),
    "'d', 't', '{x}', 'pair'": ("ML001", "'pair' has type real"),
    "'d', 't', '{x}', 'place'": ("ML001", "'place' has type point"),
    "'d', 't', '{x}', 'document'": ("ML001", "'document' has type jsonb"),
    "'d', 't', '{x}', 'y', task => 'regression'": ("ML001", "'y' has type text, regression needs a number"),
    "'d', 't', '{x}', 'y', task => 'ranking'": ("ML001", "task: expected classification, regression.*got 'ranking'"),
    "'d', 't', '{z}', 'n'": None,
    "'d', 't', '{z}', 'many'": ("ML002", "'many' has another value in each of 100 rows"),
    "'d', 'crowd', '{x}', 'y'": ("ML002", "more than 10000 classes"),
    # options
    "'d', 't', '{x}', 'y', n_partitions => 0": ("ML001", "n_partitions: expected 1 to 10000, got 0"),
    "'d', 't', '{x}', 'y', n_partitions => 10001": ("ML001", "n_partitions: expected 1 to 10000, got 10001"),
    **{
        f"'d', 't', '{{x}}', 'y', {option} => {value}": ("ML001", f"{option}: expected a number between 0 and 1")
        for option in ("validation_fraction", "test_fraction")
        for value in ("0", "1", "-0.1", "1.5", "'NaN'", "'Infinity'")
    },
    "'d', 't', '{x}', 'y', test_fraction => NULL": ("ML001", "test_fraction: expected a number between 0 and 1"),
    "'d', 't', '{x}', 'y', validation_fraction => 0.5, test_fraction => 0.5": ("ML001", "leave nothing to train on"),
    "'d', 't', '{x}', 'y', block_rows => 0": ("ML001", "block_rows: expected 1 to 1000000, got 0"),
    "'d', 't', '{x}', 'y', seed => NULL": ("ML001", "seed: expected a whole number, got NULL"),
    # input_shape
    "'d', 't', '{image}', 'y'": ("ML001", "input_shape: column 'image' is bytea of 4 bytes"),
    "'d', 't', '{image}', 'y', input_shape => '{2,3}'": ("ML001", r"input_shape: \[2, 3\] makes 6 values.* holds 4"),
    "'d', 't', '{pair}', 'y', input_shape => '{3}'": ("ML001", r"input_shape: \[3\] makes 3 values.* holds 2"),
    "'d', 't', '{image}', 'y', input_shape => '{}'": ("ML001", "input_shape: expected sizes of 1 or more"),
    "'d', 't', '{image}', 'y', input_shape => '{-2,-2}'": ("ML001", "input_shape: expected sizes of 1 or more"),
    "'d', 't', '{image}', 'y', input_shape => '{NULL,4}'": ("ML001", "input_shape: expected sizes of 1 or more"),
    "'d', 't', '{image}', 'y', input_shape => '{{2,2},{1,1}}'": ("ML001", "input_shape: expected"),
    "'d', 't', '{x}', 'y', input_shape => '{1}'": ("ML001", "input_shape: expected exactly one array or bytea"),
    "'d', 't', '{image}', 'y', input_shape => '{2147483647,2147483647,2147483647}'": ("ML001", "input_shape: "),
}


@pytest.mark.parametrize("arguments", [key for key, answer in BAD_DATASETS.items() if answer])
def test_create_dataset_refuses(unchanged: Session, arguments: str) -> None:
    answer = BAD_DATASETS[arguments]
    assert answer is not None
    refused(unchanged, f"SELECT easeml.create_dataset({arguments})", *answer)


@pytest.mark.parametrize("arguments", [key for key, answer in BAD_DATASETS.items() if not answer])
def test_create_dataset_accepts(unchanged: Session, arguments: str) -> None:
    with unchanged.transaction(force_rollback=True):
        assert unchanged.value(f"SELECT easeml.create_dataset({arguments})") > 0


def test_wrong_names_are_answered_with_those_there_are(unchanged: Session) -> None:
    refused(unchanged, "SELECT easeml.create_dataset('d', 'empty', '{wrong}', 'y')", "ML001", "wrong", "x, y")
    refused(
        unchanged, "SELECT easeml.select_models('label')", "ML003", "'label'", "mean 'labels'.*images, labels, numbers"
    )
    refused(unchanged, "SELECT easeml.select_models('labels', '{lineal}')", "ML001", "lineal", "linear")
    refused(unchanged, "SELECT easeml.select_models('labels', metric => 'acuracy')", "ML001", "acuracy", "accuracy")


def test_source_that_one_may_not_read_is_refused(unchanged: Session) -> None:
    stranger = unchanged.as_role("stranger", "easeml_tenant")
    refused(stranger, "SELECT easeml.create_dataset('d', 't', '{x}', 'y')", "42501", "permission denied for table t")


def test_no_temporary_rights_or_leftovers_stand_in_the_way(unchanged: Session) -> None:
    with unchanged.transaction(force_rollback=True):
        for _ in range(2):
            with pytest.raises(psycopg.Error), unchanged.transaction():
                unchanged.execute("SELECT easeml.create_dataset('d', 't', '{ragged}', 'y')")
        unchanged.execute("SELECT easeml.create_dataset('d', 't', '{x}', 'y')")


# select_models

BAD_RUNS = {
    "'nothing'": ("ML003", "no dataset 'nothing'"),
    "NULL": ("ML003", "no dataset NULL"),
    "'labels', '{wrong}'": ("ML001", "architectures: there is no architecture .?wrong"),
    "'labels', '{mpl}'": ("ML001", "architectures: there is no architecture 'mpl'", "Did you mean 'mlp'"),
    "'labels', '{}'": ("ML001", "architectures: expected at least one name"),
    "'labels', '{NULL}'": ("ML001", "architectures: there is no architecture NULL"),
    "'labels', '{lenet}'": ("ML001", "architectures: lenet does not fit dataset 'labels'"),
    "'numbers', '{gaussian_nb}'": ("ML001", "gaussian_nb does .*not regression"),
    "'labels', metric => 'wrong'": ("ML001", "metric: there is no classification metric 'wrong'"),
    "'labels', metric => 'rmse'": ("ML001", "metric: there is no classification metric 'rmse'"),
    "'numbers', metric => 'accuracy'": ("ML001", "metric: there is no regression metric 'accuracy'"),
    "'labels', procedure => 'wrong'": ("ML001", 'procedure: expected a procedure, got "wrong"'),
    "'labels', n_configs => 0": ("ML001", "n_configs: expected 1 to 10000, got 0"),
    "'labels', n_configs => -5": ("ML001", "n_configs: expected 1 to 10000, got -5"),
    "'labels', n_configs => 10001": ("ML001", "n_configs: expected 1 to 10000"),
    "'labels', max_epochs => 0": ("ML001", "max_epochs: expected 1 to 1000000, got 0"),
    "'labels', max_epochs => 1000001": ("ML001", "max_epochs: expected 1 to 1000000"),
    "'labels', scheduler => 'fifo'": ("ML001", "scheduler: there is no scheduler 'fifo'", "longest_remaining"),
    "'labels', scheduler => NULL": ("ML001", "scheduler: there is no scheduler NULL"),
    "'labels', scheduler => 'milp'": ("ML001", "milp chooses the partitions, so it needs the visit order free"),
    "'labels', allocation => 'sideways'": ("ML001", "allocation: there is no allocation 'sideways'", "data_parallel"),
    "'labels', visit_order => 'zigzag'": ("ML001", "visit_order: expected cyclic or free, got 'zigzag'"),
    "'labels', visit_order => NULL": ("ML001", "visit_order: expected cyclic or free, got NULL"),
    "'labels', max_seconds => 0": ("ML001", "max_seconds: expected a positive number, got 0"),
    "'labels', max_seconds => -1": ("ML001", "max_seconds: expected a positive number, got -1"),
    "'labels', max_seconds => 'NaN'": ("ML001", "max_seconds: expected a positive number, got NaN"),
    "'labels', max_seconds => 'Infinity'": ("ML001", "max_seconds: expected a positive number, got Infinity"),
    "'labels', seed => NULL": ("ML001", "seed: expected a whole number"),
    "'labels', '{linear}', procedure => 'grid', n_configs => 1, search_space => '{\"batch_size\": [1, 2]}'": (
        "ML001", "n_configs: expected at least 2",
    ),
}  # fmt: skip

BAD_SEARCH_SPACES = {
    '{"wrong": 1}': "search_space.wrong: expected a hyperparameter",
    '{"mlp": {"wrong": 1}}': "search_space.mlp",
    '{"linear": {"wrong": 1}}': "search_space.linear.wrong: expected a hyperparameter of linear",
    '{"linear": 1}': "search_space.linear: expected an object",
    '"learning_rate"': "search_space: expected an object",
    "[1, 2]": "search_space: expected an object",
    "null": None,
    '{"learning_rate": "fast"}': "search_space.learning_rate: expected .*number, got .*fast",
    '{"learning_rate": true}': "search_space.learning_rate: expected .*number, got true",
    '{"learning_rate": null}': "search_space.learning_rate: expected .*number, got null",
    '{"learning_rate": -1}': "search_space.learning_rate: expected .*got -1",
    '{"learning_rate": []}': "search_space.learning_rate: expected a list of choices, got an empty list",
    '{"learning_rate": [0.1, "x"]}': r"search_space.learning_rate\[1\]: expected .*got \"x\"",
    '{"learning_rate": [0.1, 0.1]}': r"search_space.learning_rate\[1\]: expected different choices",
    '{"learning_rate": {"low": 1}}': "search_space.learning_rate: expected a range with low and high",
    '{"learning_rate": {"low": 1, "high": 0.1}}': "search_space.learning_rate.low: expected low at most high",
    '{"learning_rate": {"low": 0.1, "high": "x"}}': "search_space.learning_rate.high: expected",
    '{"learning_rate": {"low": 0.1, "high": 1, "steps": 3}}': "search_space.learning_rate.steps: expected a key"
    " of a range",
    '{"learning_rate": {"type": "integer", "low": 1, "high": 2}}': "search_space.learning_rate.type: expected",
    '{"learning_rate": {"low": 0.1, "high": 1, "log":'
    ' "yes"}}': "search_space.learning_rate.log: expected true or false",
    '{"batch_size": 1.5}': "search_space.batch_size: expected .*whole number.*got 1.5",
    '{"batch_size": 0}': "search_space.batch_size: expected .*got 0",
    '{"optimizer": "adagrad"}': "search_space.optimizer: expected one of .*got .adagrad",
    '{"optimizer": {"low": 1, "high": 2}}': "search_space.optimizer: expected choices",
    '{"x\'; DROP TABLE t; --": 1}': "search_space.x'; DROP TABLE t; --: expected",
}


@pytest.mark.parametrize("arguments", BAD_RUNS)
def test_select_models_refuses(unchanged: Session, arguments: str) -> None:
    refused(unchanged, f"SELECT easeml.select_models({arguments})", *BAD_RUNS[arguments])


def test_a_rollback_needs_a_trial_that_has_answered(unchanged: Session) -> None:
    refused(unchanged, "SELECT easeml.rollback('labels')", "ML004", "nothing to go back to: no trial has answered yet")


@pytest.mark.parametrize("space", [key for key, answer in BAD_SEARCH_SPACES.items() if answer])
def test_select_models_refuses_search_space(unchanged: Session, space: str) -> None:
    literal = sql.Literal(space).as_string(unchanged)
    message = BAD_SEARCH_SPACES[space]
    assert message is not None
    refused(unchanged, f"SELECT easeml.select_models('labels', '{{linear}}', {literal}::jsonb)", "ML001", message)


@pytest.mark.parametrize(
    "arguments",
    [
        "'labels', 'linear'", "'labels', n_configs => 'many'", "'labels', max_epochs => 1.5", "'labels', wrong => 1",
        "'labels', search_space => '{'", "ARRAY['labels']", "'labels', seed => '1e3'",
    ],
)  # fmt: skip
def test_values_of_another_sql_type_never_reach_the_function(unchanged: Session, arguments: str) -> None:
    with pytest.raises((psycopg.DataError, psycopg.ProgrammingError)):
        unchanged.execute(f"SELECT easeml.select_models({arguments})")  # type: ignore[arg-type]


# Runs


def test_runs_that_are_not_there_are_refused(unchanged: Session) -> None:
    for call in (
        "SELECT easeml.cancel({})",
        "SELECT easeml.resume({})",
        "SELECT easeml.drop_run({})",
        "CALL easeml.wait({})",
    ):
        refused(unchanged, call.format(999), "ML003", "no run 999")
        refused(unchanged, call.format("NULL"), "ML003", "no run NULL")


def test_only_an_open_run_is_cancelled_and_only_a_stopped_one_resumed(prepared: Session) -> None:
    run_id = prepared.value("SELECT easeml.select_models('labels', '{linear}', n_configs => 1)")
    refused(prepared, f"SELECT easeml.resume({run_id})", "ML004", "queued: only a cancelled or failed", "coordinator")
    prepared.execute("SELECT easeml.cancel(%s)", [run_id])
    refused(prepared, f"SELECT easeml.cancel({run_id})", "ML004", "cancelled: only a queued or running run")
    prepared.execute("SELECT easeml.resume(%s)", [run_id])
    prepared.execute("UPDATE easeml.runs SET status = 'running' WHERE run_id = %s", [run_id])
    prepared.execute("UPDATE easeml.runs SET status = 'finished' WHERE run_id = %s", [run_id])
    refused(prepared, f"SELECT easeml.cancel({run_id})", "ML004", "finished: only a queued or running run")
    refused(prepared, f"SELECT easeml.resume({run_id})", "ML004", "finished: only a cancelled or failed run")
    refused(prepared, f"UPDATE easeml.runs SET status = 'queued' WHERE run_id = {run_id}", "ML004", "cannot go from")


def test_wait_refuses_to_block_where_it_could_never_see_progress(unchanged: Session) -> None:
    (run_id,) = unchanged.values("SELECT min(run_id) FROM easeml.runs")
    with unchanged.transaction(force_rollback=True):
        unchanged.execute("SELECT pg_sleep(0.05)")
        with pytest.raises(psycopg.Error) as caught:
            unchanged.execute(f"CALL easeml.wait({run_id})")
    assert caught.value.sqlstate == "ML004"
    assert "Commit first" in (caught.value.diag.message_hint or "")
    refused(unchanged, f"CALL easeml.wait({run_id}, timeout_seconds => 0)", "ML001", "timeout_seconds: expected")
    refused(unchanged, f"CALL easeml.wait({run_id}, timeout_seconds => 'NaN')", "ML001", "timeout_seconds: expected")
    refused(unchanged, f"CALL easeml.wait({run_id}, timeout_seconds => 0.1)", "ML010", f"run {run_id} is still queued")


# Prediction


def test_predicting_before_there_is_a_trial_is_not_ready(unchanged: Session) -> None:
    for call in (
        "predict('labels', '{1,2}'::int[])",
        "predict('images', '\\x00000000'::bytea)",
        "predict('numbers', '{}'::jsonb)",
    ):
        refused(unchanged, f"SELECT easeml.{call}", "ML010", "has no trained trial yet", "select_models")
    refused(unchanged, "SELECT easeml.predict_table('labels', 't', 'out')", "ML010", "no trained trial yet")
    refused(unchanged, "SELECT easeml.deploy((SELECT min(trial_id) FROM easeml.trials))", "ML010", "no measured epoch")


def test_predicting_with_what_is_not_there_is_refused(unchanged: Session) -> None:
    refused(unchanged, "SELECT easeml.predict('nothing', '{1,2}'::int[])", "ML003", "no dataset 'nothing'")
    refused(unchanged, "SELECT easeml.predict(NULL, '{1,2}'::int[])", "ML003", "no dataset NULL")
    refused(unchanged, "SELECT easeml.predict('labels', '{1,2}'::int[], 999)", "ML003", "has no trial 999")
    refused(unchanged, "SELECT easeml.predict_table('labels', 'nowhere', 'out')", "ML003", "no table or view 'nowhere'")
    refused(unchanged, "SELECT easeml.deploy(999)", "ML003", "no trial 999")
    refused(unchanged, "SELECT easeml.deploy(NULL)", "ML003", "no trial NULL")
    refused(unchanged, "SELECT easeml.undeploy('labels')", "ML003", "no trial of dataset 'labels' is deployed")


# Datasets and slots


def test_dataset_calls_on_what_is_not_there_are_refused(unchanged: Session) -> None:
    for call in ("refresh_dataset('x')", "drop_dataset('x')", "grant_use('x', 'postgres')"):
        refused(unchanged, f"SELECT easeml.{call}", "ML003", "no dataset 'x'")
    refused(unchanged, "SELECT easeml.grant_use('labels', 'no such role')", "ML003", "no role 'no such role'")
    refused(unchanged, "SELECT easeml.grant_use('labels', NULL)", "ML003", "no role NULL")
    refused(unchanged, "SELECT easeml.revoke_use('labels', 'postgres')", "ML003", "has no use of a dataset 'labels'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("0", "n: expected 1 to 1000 slots, got 0"),
        ("NULL", "n: expected 1 to 1000 slots, got NULL"),
        ("1001", "n: expected 1 to 1000 slots, got 1001"),
        ("1, n_threads => 0", "n_threads: expected 1 to 1024, got 0"),
        ("1, device => 'gpu'", "device: expected cpu, cpu:N or cuda:N, got 'gpu'"),
        ("1, device => NULL", "device: expected cpu, cpu:N or cuda:N, got NULL"),
        ("1, memory_limit_bytes => 1", "memory_limit_bytes: expected at least 256 MB"),
    ],
)
def test_set_slots_refuses(unchanged: Session, arguments: str, message: str) -> None:
    refused(unchanged, f"SELECT easeml.set_slots({arguments})", "ML001", message)


def test_wait_accepts_a_driver_that_prepares_its_statement(unchanged: Session) -> None:
    (run_id,) = unchanged.values("SELECT min(run_id) FROM easeml.runs")
    with pytest.raises(psycopg.Error, match=r"after 0\.2 seconds") as caught:
        unchanged.execute("CALL easeml.wait(%s, 0.2)", [run_id])
    assert caught.value.sqlstate == "ML010"


def test_a_session_that_waits_lets_dead_rows_be_removed(unchanged: Session) -> None:
    (run_id,) = unchanged.values("SELECT min(run_id) FROM easeml.runs")
    waiting = unchanged.again()
    snapshot = "SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = %s AND query LIKE 'CALL%%'"
    with ThreadPoolExecutor(1) as thread:
        waited = thread.submit(waiting.execute, "CALL easeml.wait(%s, 3)", [run_id])
        found: list[bool] = []
        while not waited.done():
            found += unchanged.values(snapshot, waiting.info.backend_pid)
            time.sleep(0.01)
    assert waited.exception() is not None, "nobody trains that run"
    assert median(found), "it sleeps with a snapshot"
