"""What users of the guide do wrong, and what they are told: one line of what was expected and what was got, and what to
do. Neither lines of CONTEXT of our functions nor a traceback comes with it, as psql and psycopg show it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
SETUP = """
CREATE TABLE flowers AS SELECT i AS id, i * 0.5 AS width, CASE WHEN i % 2 = 0 THEN 'oak' ELSE 'elm' END AS kind,
    CASE WHEN i % 3 = 0 THEN 'a' ELSE 'b' END AS species, i * 1.5 AS price FROM generate_series(1, 90) i;
ALTER TABLE flowers ADD PRIMARY KEY (id);
CREATE TABLE odd AS SELECT i AS x, i::text AS label, gen_random_uuid() AS code, i * interval '1 day' AS span,
    ARRAY[i]::real[] AS parts, decode(lpad(to_hex(i), 8, '0'), 'hex') AS image, NULL::text AS nothing,
    'one' AS constant, CASE i WHEN 3 THEN 'Infinity'::float8 ELSE i END AS endless FROM generate_series(1, 90) i;
CREATE TABLE empty (x integer, y text);
CREATE TABLE passing AS SELECT * FROM flowers;
CREATE VIEW bare AS SELECT width, kind FROM flowers;
CREATE VIEW texts AS SELECT id, width::text AS width, kind FROM flowers;
CREATE VIEW parts AS SELECT id, ARRAY[width]::real[] AS width, kind FROM flowers;
CREATE TABLE taken (x integer);
SELECT easeml.create_dataset('flowers', 'flowers', '{width,kind}', 'species', n_partitions => 1);
SELECT easeml.create_dataset('widths', 'flowers', '{width}', 'species', n_partitions => 1);
SELECT easeml.create_dataset('passing', 'passing', '{width}', 'species', n_partitions => 1);
DROP TABLE passing;
"""


class Slip(NamedTuple):
    """A statement, and patterns of the message and of the hint that answer it."""

    statement: str
    message: str
    hint: str


SOURCE = "SELECT easeml.create_dataset('d', {})"
RUN = "SELECT easeml.select_models('flowers', {})"
SLIPS = [
    # datasets
    Slip(SOURCE.format("'SELECT * FROM flowers', '{width}', 'species'"), "source: .* got a query", "CREATE VIEW"),
    Slip(SOURCE.format("'flower', '{width}', 'species'"), "no table or view 'flower'", "schema and name"),
    Slip(SOURCE.format("'analytics.flowers', '{width}', 'species'"), "no table or view", "schema and name"),
    Slip(SOURCE.format("'flowers', '{widht}', 'species'"), "no column 'widht'", "mean 'width'. It has: id, width"),
    Slip(SOURCE.format("'odd', '{x}', 'label'"), "'label' has another value in each of 90 rows", "again and again"),
    Slip(SOURCE.format("'flowers', '{width}', 'spezies'"), "target: .*no column 'spezies'", "It has: id"),
    Slip(SOURCE.format("'flowers', '{width,species}', 'species'"), "'species' is among the inputs", "inputs"),
    Slip(SOURCE.format("'flowers', '{}', 'species'"), "inputs: expected at least one column", "has: id"),
    Slip(SOURCE.format("'flowers', '{width}', NULL"), "target: expected a column, got NULL", "column to predict"),
    Slip(SOURCE.format("'odd', '{code}', 'label'"), "'code' is a uuid", "Leave it out"),
    Slip(SOURCE.format("'odd', '{span}', 'label'"), "'span' has type interval", "cast it in a view"),
    Slip(SOURCE.format("'odd', '{x}', 'parts'"), r"'parts' has type real\[\]", "cast it in a view"),
    Slip(SOURCE.format("'odd', '{x}', 'nothing'"), "'nothing' is NULL in all 90 rows", "name another"),
    Slip(SOURCE.format("'odd', '{x}', 'constant'"), "one class only, 'one'", "nothing to tell apart"),
    Slip(SOURCE.format("'odd', '{endless}', 'x'"), "'endless' has infinite values", "NULL in a view"),
    Slip(SOURCE.format("'odd', '{image}', 'x'"), "input_shape: column 'image' is bytea", "input_shape =>"),
    Slip(SOURCE.format("'odd', '{image}', 'x', input_shape => '{2,3}'"), "makes 6 values, .* holds 4", "product is 4"),
    Slip(SOURCE.format("'empty', '{x}', 'y'"), "empty has no rows", "rows"),
    Slip(SOURCE.format("'flowers', '{width}', 'species', task => 'classify'"), "task: .* got 'classify'", "task"),
    Slip(SOURCE.format("'flowers', '{width}', 'species', task => 'regression'"), "needs a number", "Leave the task"),
    Slip(
        SOURCE.format("'flowers', '{width}', 'species', validation_fraction => 15"), "between 0 and 1, got 15", "0.15"
    ),
    Slip(SOURCE.format("'flowers', '{width}', 'species', test_fraction => 0.9"), "leave nothing to train on", "0.15"),
    Slip(SOURCE.format("'flowers', '{width}', 'species', n_partitions => 0"), "1 to 10000, got 0", "slots"),
    Slip(
        SOURCE.format("'flowers', '{width}', 'species', n_partitions => 500"), "too few for 500 partitions", "artitions"
    ),
    Slip(SOURCE.format("'flowers', '{width}', 'species', placement => 'local'"), "shared or bound, got", "bound:"),
    Slip(
        "SELECT easeml.create_dataset('flowers', 'flowers', '{width}', 'species')",
        "'flowers' already",
        "refresh_dataset",
    ),
    Slip("SELECT easeml.create_dataset('', 'flowers', '{width}', 'species')", "1 to 200 characters, got ''", "name"),
    Slip("SELECT easeml.refresh_dataset('flower')", "no dataset 'flower'", "Did you mean 'flowers'"),
    Slip("SELECT easeml.refresh_dataset('passing')", "source public.passing of dataset 'passing' is gone", "again"),
    Slip("SELECT easeml.drop_dataset('flwers')", "no dataset 'flwers'", "Did you mean 'flowers'"),
    Slip("SELECT easeml.drop_dataset('flowers')", "has 1 run", "cascade => true"),
    Slip("SELECT easeml.grant_use('flowers', 'nobody_of_that_name')", "no role 'nobody_of_that_name'", "CREATE ROLE"),
    Slip("SELECT easeml.revoke_use('flowers', 'postgres')", "has no use of a dataset 'flowers'", "grant_use"),
    Slip("SELECT easeml.replicate_dataset('flowers', 2)", "shared", "placement"),
    # runs
    Slip("SELECT easeml.select_models('flower')", "no dataset 'flower'", "Did you mean 'flowers'"),
    Slip("SELECT easeml.select_models('FLOWERS')", "no dataset 'FLOWERS'", "Did you mean 'flowers'"),
    Slip(RUN.format("'{lightgmb}'"), "no architecture 'lightgmb'", "lightgbm"),
    Slip(RUN.format("'{lenet}'"), "lenet does not fit dataset 'flowers'", "easeml.architectures"),
    Slip(RUN.format("metric => 'acuracy'"), "no classification metric 'acuracy'", "accuracy"),
    Slip(RUN.format("metric => 'rmse'"), "no classification metric 'rmse'", "accuracy"),
    Slip(RUN.format("procedure => 'hyperbnd'"), "procedure: .*hyperbnd", "hyperband"),
    Slip(RUN.format("'{mlp}', search_space => '{\"learnin_rate\": 1}'"), "search_space.learnin_rate", "learning_rate"),
    Slip(RUN.format("'{mlp}', search_space => '{\"learning_rate\": -1}'"), "got -1", "easeml.architectures"),
    Slip(
        RUN.format('\'{mlp}\', search_space => \'{"learning_rate": {"low": 1, "high": 0.1}}\''),
        "low at most high",
        "Swap low and high",
    ),
    Slip(RUN.format("'{mlp}', search_space => '[1]'"), "search_space: expected an object", "."),
    Slip(RUN.format("procedure => 'hyperband', procedure_options => '{\"eat\": 3}'"), "eat", "eta"),
    Slip(RUN.format("'{mlp}', procedure => 'grid', max_epochs => 1"), "n_points|grid", "."),
    Slip(RUN.format("max_seconds => 0"), "max_seconds: expected a positive number, got 0", "seconds"),
    Slip(RUN.format("max_epochs => 0"), "max_epochs: expected 1 to 1000000, got 0", "epochs"),
    Slip(RUN.format("n_configs => 0"), "n_configs: expected 1 to 10000, got 0", "configs"),
    Slip(RUN.format("scheduler => 'fifo'"), "no scheduler 'fifo'", "longest_remaining"),
    Slip(RUN.format("visit_order => 'random'"), "cyclic or free, got 'random'", "cyclic:"),
    Slip(RUN.format("allocation => 'all'"), "no allocation 'all'", "hopping"),
    Slip("SELECT * FROM easeml.preview_procedure('hyperbnd')", "procedure: .*hyperbnd", "hyperband"),
    Slip("SELECT easeml.cancel(999)", "no run 999", "easeml.run_status"),
    Slip("SELECT easeml.cancel(1)", "finished: only a queued or running run", "."),
    Slip("SELECT easeml.resume(1)", "finished: only a cancelled or failed run", "."),
    Slip("SELECT easeml.drop_run(NULL)", "no run NULL", "easeml.run_status"),
    Slip("CALL easeml.wait(999)", "no run 999", "easeml.run_status"),
    Slip("CALL easeml.wait(1, timeout_seconds => -1)", "timeout_seconds: expected a positive number", "NULL"),
    Slip("CALL easeml.replay(999)", "no trial 999", "easeml.leaderboard"),
    Slip("CALL easeml.replay(1, device => 'gpu')", "device: expected cpu or cuda:N, got 'gpu'", "cuda:0"),
    # predictions
    Slip("SELECT easeml.predict('flower', '{}')", "no dataset 'flower'", "Did you mean 'flowers'"),
    Slip("SELECT easeml.predict('widths', '{\"width\": 1}')", "no trained trial yet", "select_models"),
    Slip('SELECT easeml.predict(\'flowers\', \'{"width": 1, "kind": "oak"}\', 999)', "no trial 999", "leaderboard"),
    Slip("SELECT easeml.predict('flowers', '[1]')", "json object of columns, got an array", r"to_jsonb\(t\)"),
    Slip("SELECT easeml.predict('flowers', '{1, 2}')", "json object of columns, got other text", "real"),
    Slip("SELECT easeml.predict('flowers', '{\"kind\": \"oak\"}')", "lacks the input 'width'", "null"),
    Slip(
        'SELECT easeml.predict(\'flowers\', \'{"width": "x", "kind": "oak"}\')',
        "'width': expected a number, got 'x'",
        ".",
    ),
    Slip("SELECT easeml.predict('flowers', '{\"width\": 1, \"kind\": [1]}')", "'kind': expected a text", "."),
    Slip("SELECT easeml.predict('flowers', ARRAY[1, 2])", "'kind' is a text and cannot be given as a number", "jsonb"),
    Slip("SELECT easeml.predict('flowers', NULL::jsonb)", "json object of columns, got NULL", r"to_jsonb\(t\)"),
    Slip(
        'SELECT easeml.predict(\'flowers\', \'{"width": 1e999, "kind": "oak"}\'::text)',
        "'width': expected finite",
        "NULL",
    ),
    Slip("SELECT easeml.predict('flowers', '\\x01'::bytea)", "'kind' is a text", "jsonb"),
    Slip("SELECT easeml.predict_table('flowers', 'SELECT * FROM flowers', 'o')", "got a query", "CREATE VIEW"),
    Slip("SELECT easeml.predict_table('flowers', 'flower', 'o')", "no table or view 'flower'", "schema and name"),
    Slip("SELECT easeml.predict_table('flower', 'flowers', 'o')", "no dataset 'flower'", "Did you mean 'flowers'"),
    Slip("SELECT easeml.predict_table('flowers', 'flowers', 'taken')", "taken exists already", "if_exists =>"),
    Slip("SELECT easeml.predict_table('flowers', 'flowers', 'analytics.o')", "no schema analytics", "CREATE SCHEMA"),
    Slip("SELECT easeml.predict_table('flowers', 'flowers', 'my table')", "output: expected the name", "double quotes"),
    Slip("SELECT easeml.predict_table('flowers', 'odd', 'o')", "source: public.odd has no column 'width'", "It has: x"),
    Slip(
        "SELECT easeml.predict_table('flowers', 'texts', 'o')", "column 'width' of public.texts has type text", "view"
    ),
    Slip("SELECT easeml.predict_table('flowers', 'parts', 'o')", r"'width' of public.parts has type real\[\]", "view"),
    Slip("SELECT easeml.predict_table('flowers', 'bare', 'o')", "expected a primary key", "ADD PRIMARY KEY"),
    Slip(
        "SELECT easeml.predict_table('flowers', 'flowers', 'taken', if_exists => 'replace')",
        "refuse, append or",
        "append",
    ),
    Slip(
        "SELECT easeml.predict_table('flowers', 'flowers', 'taken', if_exists => 'append')", "has no column id", "needs"
    ),
    Slip("SELECT easeml.predict_table('flowers', 'flowers', 'o', key => '{kid}')", "no column 'kid'", "It has: id"),
    Slip("SELECT easeml.deploy(999)", "no trial 999 of yours", "easeml.leaderboard"),
    Slip("SELECT easeml.undeploy('widths')", "no trial of dataset 'widths' is deployed", "deploy"),
    Slip("SELECT easeml.rollback('flowers')", "nothing to go back to", "serving_history"),
    Slip("SELECT easeml.rollback('widths')", "no trial of dataset 'widths'|nothing", "."),
    Slip("SELECT easeml.set_serving_metric('flowers', 'rmse')", "no classification metric 'rmse'", "accuracy"),
    Slip("SELECT easeml.drop_run(1)", "trial 1, which answers for dataset 'flowers'", "force => true"),
    Slip("SELECT easeml.predict_probabilities('flowers', '{}')", "lacks the input 'width'", "null"),
    # evaluation
    Slip("SELECT * FROM easeml.evaluate('flower')", "no dataset 'flower'", "flowers"),
    Slip("SELECT * FROM easeml.evaluate('flowers', 999)", "no trial 999", "."),
    Slip("SELECT * FROM easeml.evaluate('widths')", "widths", "select_models"),
    Slip("SELECT * FROM easeml.evaluate('flowers', threshold => 20)", "from 0 to 1, got 20", "0.2"),
    Slip("SELECT * FROM easeml.evaluate('flowers', positive => 'c')", "no class 'c'", "a, b|'a'|'b'"),
    Slip("SELECT * FROM easeml.confusion_matrix('flowers', split => 'train')", "got 'train'", "learned from"),
    Slip("SELECT * FROM easeml.calibration('flowers', n_bins => 0)", "n_bins: expected .* got 0", "Leave n_bins out"),
    Slip("SELECT * FROM easeml.residuals('flowers')", "a classification, which has no residuals", "held_out_answers"),
    Slip("SELECT * FROM easeml.explain('flowers', metric => 'acuracy')", "got 'acuracy'", "accuracy"),
    Slip("SELECT * FROM easeml.explain('flowers', n_rows => 1)", "n_rows: expected .* got 1", "Leave n_rows out"),
    Slip("SELECT * FROM easeml.explain_row('flowers', '{\"width\": 1}')", "lacks the input 'kind'", "null"),
    Slip("SELECT * FROM easeml.hyperparameter_importance(999)", "no run 999", "easeml.run_status"),
    Slip("SELECT * FROM easeml.hyperparameter_importance(1)", "no architecture with 4 measured trials", "more"),
    Slip("SELECT * FROM easeml.dataset_rows('flower')", "no dataset 'flower'", "flowers"),
    # files
    Slip("SELECT easeml.export_trial('flower')", "no dataset 'flower'", "flowers"),
    Slip("SELECT easeml.export_trial('flowers', 999)", "no measured trial 999", "easeml.leaderboard"),
    Slip("SELECT easeml.import_trial('', 'again')", "got one of 0 bytes", "easeml export"),
    Slip("SELECT easeml.import_trial('no file', 'again')", "got something else", "easeml export"),
    Slip(
        "SELECT easeml.import_trial(easeml.export_trial('flowers'), 'flowers')",
        "a dataset 'flowers' already",
        "another name",
    ),
    # administration
    Slip("SELECT easeml.set_slots(0)", "n: expected 1 to 1000 slots, got 0", "."),
    Slip("SELECT easeml.set_slots(1, device => 'gpu')", "device: expected cpu, cpu:N or cuda:N, got 'gpu'", "cuda:0"),
    Slip("SELECT easeml.remove_slot(99)", "no slot 99", "slot_status"),
    Slip("SELECT easeml.create_tenant('nobody_of_that_name')", "no role", "CREATE ROLE"),
    Slip("SELECT easeml.create_tenant('postgres')", "superuser", "."),
    Slip("SELECT easeml.set_policy('fair')", "policy.* fair|'fair'", "hybrid"),
]


@pytest.fixture(scope="module")
def prepared(module_coordinated: Session) -> Session:
    """A database with datasets, one of them with a finished run."""
    for statement in SETUP.strip().split(";\n"):
        module_coordinated.execute(statement)
    module_coordinated.execute("SELECT easeml.select_models('flowers', '{linear}', n_configs => 1, max_epochs => 1)")
    module_coordinated.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = 1")
    return module_coordinated


def told(session: Session, statement: str) -> psycopg.Error:
    """The error of a statement, which must be one of ours or of the server, without what lies within."""
    with pytest.raises(psycopg.Error) as caught:
        session.execute(statement)  # type: ignore[arg-type]
    error = caught.value
    shown = str(error)
    assert error.diag.context is None, error.diag.context
    assert not re.search(r"CONTEXT|Traceback|plpy|SPIError|NoneType|\b_(float|int|text)\d?\b", shown), shown
    assert "\n" not in (error.diag.message_primary or ""), shown
    return error


def test_there_are_as_many_slips_as_promised() -> None:
    assert len({slip.statement for slip in SLIPS}) == len(SLIPS) >= 60


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: slip.statement)
def test_a_slip_is_told_in_one_line_with_what_to_do(prepared: Session, slip: Slip) -> None:
    error = told(prepared, slip.statement)
    assert re.search(slip.message, error.diag.message_primary or ""), error.diag.message_primary
    assert error.diag.message_hint, error.diag.message_primary
    assert re.search(slip.hint, error.diag.message_hint), error.diag.message_hint


def test_a_right_that_is_missing_comes_without_what_lies_within(prepared: Session) -> None:
    stranger = prepared.as_role("stranger", "easeml_tenant")
    error = told(stranger, SOURCE.format("'flowers', '{width}', 'species'"))
    assert (error.sqlstate, error.diag.message_primary) == ("42501", "permission denied for table flowers")
    assert "GRANT" in (error.diag.message_hint or "")
    prepared.execute("GRANT SELECT ON flowers TO stranger; SELECT easeml.grant_use('flowers', 'stranger')")
    error = told(stranger, "SELECT easeml.predict_table('postgres.flowers', 'flowers', 'public.o')")
    assert error.diag.message_primary == "permission denied for schema public"


def test_near_names_are_only_those_that_the_role_may_use(prepared: Session) -> None:
    guest = prepared.as_role("guest")
    error = told(guest, "SELECT easeml.predict('flower', '{}')")
    assert "flowers" not in (error.diag.message_hint or "")
    prepared.execute("SELECT easeml.grant_use('flowers', 'guest')")
    error = told(guest.again(), "SELECT easeml.predict('flower', '{}')")
    assert "Did you mean 'postgres.flowers'? You may use: postgres.flowers." in (error.diag.message_hint or "")


def test_a_procedure_that_commits_says_what_drivers_need(prepared: Session) -> None:
    for call in ("CALL easeml.wait(1)", "CALL easeml.replay(1)"):
        with prepared.transaction(force_rollback=True):  # BEGIN comes an instant before, as SQLAlchemy sends it
            error = told(prepared, call)
        assert error.sqlstate == "ML004"
        assert "AUTOCOMMIT" in (error.diag.message_hint or "")


def test_somebodys_own_function_keeps_its_context(prepared: Session) -> None:
    body = "BEGIN PERFORM easeml.cancel(999); END"
    prepared.execute(f"CREATE FUNCTION public.mine() RETURNS void LANGUAGE plpgsql AS $${body}$$")  # type: ignore[arg-type]
    with pytest.raises(psycopg.Error) as caught:
        prepared.execute("SELECT public.mine()")
    assert "PL/pgSQL function mine() line 1" in (caught.value.diag.context or "")


def test_an_error_that_is_caught_takes_no_context_from_later_ones(prepared: Session) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero) as caught:
        prepared.execute(
            "DO $$ BEGIN BEGIN PERFORM easeml.cancel(999); EXCEPTION WHEN OTHERS THEN NULL; END; PERFORM 1 / 0; END $$"
        )
    assert "inline_code_block" in (caught.value.diag.context or "")


def test_a_trial_that_was_not_measured_has_no_rank(prepared: Session) -> None:
    with prepared.transaction(force_rollback=True):
        prepared.execute("UPDATE easeml.trials SET best_metric_value = NULL, best_epoch = NULL WHERE run_id = 1")
        assert prepared.values("SELECT rank FROM easeml.leaderboard WHERE run_id = 1") == [None]
    assert prepared.values("SELECT rank FROM easeml.leaderboard WHERE run_id = 1") == [1]
