"""A tenant tries everything it may execute, and every table and view, on what belongs to another.

Tables, views and routines come from the catalogue: a new routine without a case here makes a test fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tests.stored_plans import PLANNED
from tests.stored_tasks import TASKS

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

TABLE = """
CREATE TABLE mine AS SELECT i AS id, i % 3 + sin(i) / 9 AS x, chr(97 + i % 3) AS y FROM generate_series(1, 120) i
"""
WATER_FILLING = """
INSERT INTO easeml.device_profiles (tenant, dataset_id, architecture, device_kind, alpha, beta, c, d, eps_seconds,
    n_packed, n_devices, is_bounded, measurements)
SELECT tenant, dataset_id, 'linear', 'cpu', 1, 1, 1, 1, 0, 1, 1, true, '{}' FROM easeml.datasets;
INSERT INTO easeml.trial_groups (run_id, tenant, lease_number, group_number, label, n_trials)
SELECT run_id, tenant, 1, 1, 'linear', 1 FROM easeml.runs WHERE status = 'finished';
INSERT INTO easeml.allocations (group_id, trial_id, run_id, tenant, width, devices, slot_ids, reason)
SELECT g.group_id, t.trial_id, t.run_id, t.tenant, 1, '{1/cpu:1}', '{1}', 'static'
FROM easeml.trial_groups g JOIN easeml.trials t USING (run_id);
"""
# They take names, values or settings, and look at no row that has an tenant.
ABOUT_NO_ROWS = {
    "check_place", "labelling_function", "function_names", "read_examples",
    "check_source", "cluster_places", "foreign_places", "listed_places", "places_of", "refuse_foreign_code",
    "choose_architectures", "held_architectures", "drift_options",
    "array_bytes", "base_type", "check_dataset", "current_tenancy", "current_tenant", "default_inputs", "fail",
    "fail_run", "find_output", "find_source", "commit_first", "rest", "import_model", "import_trial",
    "store_import",
    "fitting_architectures", "has_live_coordinator", "instance_cost", "is_bound_by_limits", "is_small_table",
    "list_allocations",
    "list_architectures", "list_metrics", "list_policies", "list_priors", "list_procedures",
    "list_schedulers", "list_templates", "make_forecast", "architecture_facts", "hyperparameter_importances",
    "template_architectures", "output_type", "is_tree",
    "members_text", "metric_text",
    "near_names", "numbers_of", "plan_goal", "plan_search_on", "preview_search", "qualified_name",
    "quality", "raise_failure", "rank_key", "rank_value", "retention_rules", "row_numbers", "version",
}  # fmt: skip
# These return an error of their own instead of raising it.
RAISED = "SELECT easeml.raise_failure(failure) FROM"
# What the other tenant says, with the tenant's numbers, by routine as regprocedure writes it.
PREDICTIONS = {
    f"{name}(text,{kind},bigint)": f"SELECT easeml.{name}('private', {value}, {{trial_id}})"
    for name in ("predict", "predict_value", "predict_row", "predict_probabilities")
    for kind, value in (
        ("bytea", r"'\x01'::bytea"),
        ("anyarray", "'{{1}}'::float8[]"),
        ("jsonb", "'{{\"x\": 1}}'::jsonb"),
        ("text", "'{{\"x\": 1}}'"),
    )
}
QUESTIONS = {
    "calibration(text,bigint,text,integer,text)": "calibration('private', {trial_id})",
    "class_metrics(text,bigint,text,double precision,text)": "class_metrics('private', {trial_id})",
    "confusion_matrix(text,bigint,text,double precision,text)": "confusion_matrix('private', {trial_id})",
    "dataset_rows(text,integer)": "dataset_rows('private')",
    "drift(text,text,text,interval,integer,integer)": "drift('private')",
    "evaluate(text,bigint,double precision,text)": "evaluate('private', {trial_id})",
    "examination(text,text,bigint,jsonb)": "examination('evaluate', 'private', {trial_id}, '{{}}')",
    "examined_trial(text,bigint)": "examined_trial('private', {trial_id})",
    "explain(text,bigint,text,text,integer,integer,bigint)": "explain('private', {trial_id})",
    "explain_row(text,jsonb,bigint,text,integer,bigint)": "explain_row('private', '{{\"x\": 1}}', {trial_id})",
    "fail_unanswered(name,text,text)": "fail_unanswered('alma', 'private', 'private')",
    "fail_untrained_task(text)": "fail_untrained_task('private')",
    "find_version(text,integer)": "find_version('private', 1)",
    "held_out_answers(text,bigint,text,double precision,text)": "held_out_answers('private', {trial_id})",
    "hyperparameter_importance(bigint)": "hyperparameter_importance({run_id})",
    "residuals(text,bigint,text)": "residuals('private', {trial_id})",
    "roc_curve(text,bigint,text,text)": "roc_curve('private', {trial_id})",
}
OBJECTS = '{{"inputs": [{{"column": "x", "role": "link", "n_values": 1}}], "recursive": []}}'
TASK_CALLS = {
    "add_labelling_function(text,text)": "add_labelling_function('private', 'alma.label')",
    "alter_task(text,integer,double precision,jsonb)": "alter_task('private', 1, 1)",
    "create_task(text,text,text,text[],text,integer,double precision,jsonb,double precision,double precision,bigint,"
    "integer)": "create_task('stolen', 'Input = [2] Output = [2]', 'alma')",
    "drop_task(text,boolean)": "drop_task('private', true)",
    "feed(text,anyarray,double precision)": "feed('private', '{{1}}'::real[], 1.5::double precision)",
    "feed(text,anyarray,text)": "feed('private', '{{1}}'::real[], 'a'::text)",
    "feed(text,bytea,text)": r"feed('private', '\x01'::bytea, 'a')",
    "feed(text,jsonb,text)": "feed('private', '[]'::jsonb)",
    "feed(text,text,text)": "feed('private', '[]')",
    "find_task(text)": "find_task('private')",
    "label_examples(text,integer)": "label_examples('private')",
    "label_from(text,bigint,integer)": "label_from('private', 1, 1)",
    "make_objects_view(text,text,text,jsonb)": f"make_objects_view('alma', 'stolen', 'alma.mine', '{OBJECTS}')",
    "make_task_views(text,text,text,text[])": "make_task_views('alma', 'stolen', 'alma.mine', '{{x}}')",
    "remove_labelling_function(text,text)": "remove_labelling_function('private', 'alma.label')",
    "run_task(text)": "run_task('private')",
    "task_of(name,name,text)": "task_of('bert', 'alma', 'private')",
    "task_report(text)": "task_report('private')",
    "infer(text,anyarray,bigint)": "infer('private', '{{1}}'::float8[], {trial_id})",
    "infer(text,bytea,bigint)": r"infer('private', '\x01'::bytea, {trial_id})",
    "infer(text,jsonb,bigint)": "infer('private', '{{\"x\": 1}}'::jsonb, {trial_id})",
}
REFUSED = {
    **PREDICTIONS,
    **{name: f"SELECT * FROM easeml.{call}" for name, call in TASK_CALLS.items()},
    "infer_output(text,text,bytea,bigint)":
        f"{RAISED} easeml.infer_output('private', 'json', '{{{{\"x\": 1}}}}', {{trial_id}})",
    **{name: f"SELECT * FROM easeml.{call}" for name, call in QUESTIONS.items()},
    "class_probabilities(text,text,bytea,bigint)":
        f"{RAISED} easeml.class_probabilities('private', 'json', '{{{{\"x\": 1}}}}', {{trial_id}})",
    "examine_trial(text,text,bigint,jsonb)":
        f"{RAISED} easeml.examine_trial('evaluate', 'private', {{trial_id}}, '{{{{}}}}')",
    "compare_trials(text,bigint,bigint)":
        f"{RAISED} easeml.compare_trials('private', {{trial_id}}, {{trial_id}})",
    "set_refresh(text,interval,double precision)": "SELECT easeml.set_refresh('private', '1 day')",
    "run_refresh(text)": "SELECT easeml.run_refresh('private')",
    "advance_refresh(text)": "SELECT easeml.advance_refresh('private')",
    "look_for_refresh(text,jsonb)": "SELECT easeml.look_for_refresh('private', '{{\"version\": 1}}')",
    "cancel(bigint)": "SELECT easeml.cancel({open_run_id})",
    "check_replay(bigint,text,integer)": f"{RAISED} easeml.check_replay({{trial_id}}, 'cpu', NULL)",
    "check_replay_options(bigint,text,integer,integer)":
        "SELECT easeml.check_replay_options({trial_id}, 'cpu', 1, NULL)",
    "create_dataset(text,text,text[],text,integer,double precision,double precision,"
    "bigint,text,integer[],integer,text,text,text,text,text[],integer,text)":
        "SELECT easeml.create_dataset('stolen', 'alma.mine', '{{x}}', 'y')",
    "deploy(bigint)": "SELECT easeml.deploy({trial_id})",
    "drop_dataset(text,boolean)": "SELECT easeml.drop_dataset('private', true)",
    "drop_run(bigint,boolean)": "SELECT easeml.drop_run({open_run_id})",
    "export_file(text,bigint)": f"{RAISED} easeml.export_file('private', {{trial_id}})",
    "export_trial(text,bigint)": "SELECT easeml.export_trial('private', {trial_id})",
    "find_dataset(text)": "SELECT easeml.find_dataset('private')",
    "forecast(bigint)": "SELECT * FROM easeml.forecast({run_id})",
    "forecasts_with(bigint,jsonb)": "SELECT * FROM easeml.forecasts_with({run_id}, NULL)",
    "find_run(bigint)": "SELECT easeml.find_run({run_id})",
    "grant_use(text,name,boolean)": "SELECT easeml.grant_use('private', 'bert')",
    "measure_drift(bigint,oid,jsonb)":
        f"{RAISED} easeml.measure_drift({{dataset_id}}, 'mine'::regclass, '{{{{\"n_rows\": 1, \"every_seconds\": 1,"
        f" \"time_column\": null}}}}')",
    "open_serving(text,bigint)": f"{RAISED} easeml.open_serving('private', {{trial_id}})",
    "dataset_of(name,name,text)": "SELECT easeml.dataset_of('bert', 'alma', 'private')",
    "pack_begun_dataset(bigint)": f"{RAISED} easeml.pack_begun_dataset({{dataset_id}})",
    "pack_version(text,jsonb)": "SELECT easeml.pack_version('begin_dataset', '{pack_request}')",
    "request(text,jsonb)": "SELECT easeml.request('cancel', '{{\"run_id\": {open_run_id}}}')",
    "predict_bytes(text,bytea,bigint)":
        rf"{RAISED} easeml.predict_bytes('private', '\x01', {{trial_id}})",
    "predict_json(text,text,bigint)":
        f"{RAISED} easeml.predict_json('private', '{{{{\"x\": 1}}}}', {{trial_id}})",
    "predict_numbers(text,bytea,bigint)":
        f"{RAISED} easeml.predict_numbers('private', easeml.array_bytes('{{{{1}}}}'::float8[]), {{trial_id}})",
    "predict_packed(text,bigint,integer,bytea,text)":
        r"SELECT easeml.predict_packed('private', {trial_id}, 1, '\x0000000000000000', '{{}}')",
    "predict_table(text,text,text,bigint,text,text[],boolean)":
        "SELECT easeml.predict_table('private', 'mine', 'stolen', {trial_id})",
    "plan(text,text[],jsonb,text,integer,integer,bigint,jsonb,interval,double precision,text,double precision)":
        "SELECT * FROM easeml.plan('private')",
    "plan_frontier(text,text[],jsonb,text,integer,integer,bigint,jsonb,text,integer)":
        "SELECT * FROM easeml.plan_frontier('private')",
    "profile_dataset(text,text[],jsonb,integer,integer,double precision,bigint,text)":
        "SELECT easeml.profile_dataset('private')",
    "preview_procedure(text,integer,integer,jsonb,text,text[],jsonb,bigint)":
        "SELECT * FROM easeml.preview_procedure('random', dataset => 'private')",
    "refresh_dataset(text)": "SELECT easeml.refresh_dataset('private')",
    "replay(bigint,text,integer,integer,jsonb)": "CALL easeml.replay({trial_id})",
    "replay_units(bigint,text,integer,integer,jsonb)": "CALL easeml.replay_units({trial_id}, 'cpu', 1, NULL)",
    "replicate_dataset(text,integer)": "SELECT easeml.replicate_dataset('private', 1)",
    "resume(bigint)": "SELECT easeml.resume({cancelled_run_id})",
    "rollback(text)": "SELECT easeml.rollback('private')",
    "set_serving_metric(text,text)": "SELECT easeml.set_serving_metric('private', 'log_loss')",
    "revoke_use(text,name)": "SELECT easeml.revoke_use('private', 'bert')",
    "run_summary(bigint)": "SELECT * FROM easeml.run_summary({run_id})",
    "select_models(text,text[],jsonb,text,integer,integer,text,double precision,bigint,text,text,"
    "jsonb,text,interval,double precision,text)":
        "SELECT easeml.select_models('private')",
    "set_prediction_audit(text,boolean)": "SELECT easeml.set_prediction_audit('private', false)",
    "undeploy(text)": "SELECT easeml.undeploy('private')",
    "wait(bigint,double precision)": "CALL easeml.wait({run_id}, 1)",
    "wait_dataset(bigint,double precision)": "CALL easeml.wait_dataset({dataset_id}, 1)",
    "evaluate_on_nodes(text,bigint,bigint)": "CALL easeml.evaluate_on_nodes('private', {trial_id})",
    "drift_of_nodes(easeml.datasets,jsonb)":
        "SELECT easeml.drift_of_nodes(jsonb_populate_record(NULL::easeml.datasets,"
        " '{{\"dataset_id\": {dataset_id}, \"dataset_name\": \"private\"}}'), '{{}}')",
    "drift_on_nodes(text,text,text,interval,integer,integer,bigint)": "CALL easeml.drift_on_nodes('private')",
    "explain_on_nodes(text,bigint,text,text,integer,integer,bigint,bigint)":
        "CALL easeml.explain_on_nodes('private', {trial_id})",
    "explain_row_on_nodes(text,jsonb,bigint,text,integer,bigint,bigint)":
        "CALL easeml.explain_row_on_nodes('private', '{{\"x\": 1}}', {trial_id})",
    "predict_on_nodes(text,text,text,bigint,text[],boolean,bigint)":
        "CALL easeml.predict_on_nodes('private', '{{\"east\": \"public.mine\"}}', 'public.stolen', {trial_id})",
    "ask_nodes(text,jsonb,jsonb)":
        "CALL easeml.ask_nodes('replay', '{{\"trial_id\": {trial_id}}}')",
    "ask_for_packing(jsonb,regclass)":
        "SELECT easeml.ask_for_packing('{{\"dataset\": \"private\", \"places\": []}}', NULL)",
    "refuse_rows_elsewhere(easeml.datasets,text)":
        "SELECT easeml.refuse_rows_elsewhere(jsonb_populate_record(NULL::easeml.datasets,"
        " '{{\"dataset_name\": \"private\", \"shuffle\": \"within\"}}'), 'it')",
    "write_predictions(text,oid,text,bigint,text,text[],boolean)":
        f"{RAISED} easeml.write_predictions('private', 'mine'::regclass, 'bert.stolen', {{trial_id}}, 'refuse', NULL,"
        " true)",
}  # fmt: skip
# What is answered instead, since no row of another is seen behind it.
A_RUN = "jsonb_populate_record(NULL::easeml.runs, '{{\"run_id\": {run_id}}}')"
A_DATASET = (
    'jsonb_populate_record(NULL::easeml.datasets, \'{{"dataset_id": {dataset_id}, "tenant": "alma",'
    ' "task": "classification", "n_partitions": 1}}\')'
)
BOUND = A_DATASET.replace('"n_partitions": 1', '"n_partitions": 1, "placement": "bound", "dataset_name": "private"')
ANSWERED_EMPTILY = {
    "known_times(easeml.datasets,text)": (f"SELECT easeml.known_times({A_DATASET}, 'asha') ->> 'trials'", "[]"),
    "run_standing(easeml.runs)": (f"SELECT jsonb_array_length(easeml.run_standing({A_RUN}) -> 'arms')", 0),
    "timed_trials(easeml.datasets)": (f"SELECT easeml.timed_trials({A_DATASET})", []),
    "advice_sentence(easeml.runs)": (f"SELECT easeml.advice_sentence({A_RUN})", None),
    "best_sentences(easeml.runs)": (
        f"SELECT string_agg(s, ' ') FROM easeml.best_sentences({A_RUN}) s", "No trial has been measured."
    ),
    "tried_sentence(easeml.runs)": (f"SELECT easeml.tried_sentence({A_RUN}) LIKE '%%trained 0 configs%%'", True),
    "composition(bigint)": ("SELECT easeml.composition({trial_id})", None),
    "planned_cost(bigint,double precision)": ("SELECT easeml.planned_cost({run_id}, 0)", 0.0),
    "is_being_packed(bigint)": ("SELECT easeml.is_being_packed({dataset_id})", False),
    "answering_trial(name,text)": ("SELECT trial_id FROM easeml.answering_trial('alma', 'private')", None),
    "refuse_unpacked_dataset(name,text)": ("SELECT easeml.refuse_unpacked_dataset('alma', 'elsewhere')::text", ""),
    "used_bytes(name)": ("SELECT easeml.used_bytes('alma')", None),
    "examples_bytes(oid)": ("SELECT easeml.examples_bytes(0)", None),  # sizes of tables are no secret
    "copied_bytes(name)": ("SELECT easeml.copied_bytes('alma')", 0),
    "record_bytes(bigint)": ("SELECT easeml.record_bytes({run_id})", None),
    "gathering_segments(easeml.datasets,boolean)": (f"SELECT easeml.gathering_segments({BOUND}, true)", []),
    "apart_reason(easeml.datasets)": (
        f"SELECT easeml.apart_reason({BOUND})", "no segment holds all of dataset 'private'"
    ),
    "apart_hint(easeml.datasets)": (f"SELECT left(easeml.apart_hint({BOUND}), 9)", "Replicate"),
    "used_hours(name)": ("SELECT easeml.used_hours('alma')", 0.0),
}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """alma owns things of every kind; bert is a tenant beside her."""

    root: Session
    alma: Session
    bert: Session
    numbers: dict[str, Any]

    def state(self) -> dict[str, list[Any]]:
        """Hashes of all rows of all tables."""
        tables = relations(self.root, "r")
        return {name: self.root.values(f"SELECT md5(t::text) FROM easeml.{name} t ORDER BY 1") for name in tables}


def relations(root: Session, kind: str) -> list[str]:
    return root.values(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'easeml'::regnamespace AND relkind = %s ORDER BY 1",
        kind,
    )


def columns(root: Session, table: str) -> list[str]:
    return root.values(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " AND attgenerated = ''",
        f"easeml.{table}",
    )


def owned(root: Session) -> list[str]:
    return [name for name in relations(root, "r") if "tenant" in columns(root, name)]


@pytest.fixture(scope="module")
def scene(module_database: Session, coordinator: Callable[[Session], AbstractContextManager[Any]]) -> Scene:
    """alma has a tenant's row, a bound dataset, a finished, an open and a cancelled run, a deployment and a grant."""
    root = module_database
    sessions = {name: root.as_role(name) for name in ("alma", "bert")}
    for name, session in sessions.items():
        root.execute("SELECT easeml.create_tenant(%s, max_runs => 9)", [name])
        root.execute(sql.SQL("CREATE SCHEMA {0} AUTHORIZATION {0}").format(sql.Identifier(name)))
        session.execute(TABLE)
    alma, bert = sessions["alma"], sessions["bert"]
    alma.execute("SELECT easeml.create_dataset('private', 'mine', '{x}', 'y', n_partitions => 2, placement => 'bound')")
    select = "SELECT easeml.select_models('private', '{linear}', n_configs => 1, max_epochs => %s)"
    numbers = {name: alma.value(select, 1) for name in ("run_id", "gone_run_id")}
    with coordinator(root):
        root.wait_until("SELECT bool_and(status = 'finished') FROM easeml.runs")
    # From here on nothing trains, so that whatever changes was changed by the caller.
    alma.execute("SELECT easeml.drop_run(%s, force => true)", [numbers["gone_run_id"]])
    numbers["cancelled_run_id"] = alma.value(select, 1000)
    alma.execute("SELECT easeml.cancel(%s)", [numbers["cancelled_run_id"]])
    numbers["open_run_id"] = alma.value(select, 1000)
    numbers["trial_id"] = alma.value("SELECT trial_id FROM easeml.trials WHERE run_id = %s", numbers["run_id"])
    numbers["dataset_id"] = alma.value("SELECT dataset_id FROM easeml.datasets")
    alma.execute("SELECT easeml.deploy(%s)", [numbers["trial_id"]])
    alma.execute("SELECT easeml.grant_use('private', 'easeml_reader')")
    alma.execute("SELECT easeml.set_prediction_audit('private', true)")
    alma.execute("SELECT easeml.set_refresh('private', '1 day')")
    root.execute(
        "INSERT INTO easeml.refreshes (tenant, dataset_name, outcome, reason)"
        " VALUES ('alma', 'private', 'no drift', '')"
    )
    alma.execute("SELECT easeml.predict('private', '{1}'::float8[])")
    root.execute("INSERT INTO easeml.checkpoint_chunks SELECT checkpoint_id, tenant, 0, 'x' FROM easeml.checkpoints")
    root.execute("INSERT INTO easeml.checkpoint_copies SELECT checkpoint_id, tenant, 1 FROM easeml.checkpoints")
    root.execute(WATER_FILLING)  # runs on bound datasets have none
    root.execute(PLANNED)
    root.execute(TASKS)
    numbers["pack_request"] = json.dumps({
        "name": "stolen", "source": "alma.mine", "placement": "shared",
        "inputs": ["x"], "target": "y", "n_partitions": 2, "validation_fraction": 0.2, "test_fraction": 0.2, "seed": 0,
        "task": None, "input_shape": None, "block_rows": None, "version": 1,
    })  # fmt: skip
    return Scene(root, alma, bert, numbers)


# Tables and views


def test_the_scene_has_rows_of_the_owner_in_every_table(scene: Scene) -> None:
    for table in owned(scene.root):
        assert scene.root.value(f"SELECT count(*) FROM easeml.{table} WHERE tenant = 'alma'") > 0, table


def test_no_table_shows_a_row_of_another(scene: Scene) -> None:
    for table in owned(scene.root):
        assert scene.bert.values(f"SELECT DISTINCT tenant::text FROM easeml.{table}") in ([], ["bert"]), table


def test_no_view_shows_a_row_of_another(scene: Scene) -> None:
    for view in relations(scene.root, "v"):
        for row in scene.bert.rows(f"SELECT * FROM easeml.{view}"):
            assert "alma" not in (row.get("tenant"), row.get("tenant")), view
            assert row.get("run_id") is None, view
            assert row.get("trial_id") is None, view
            assert row.get("dataset_name") is None, view


def test_no_row_can_be_written_in_the_name_of_another(scene: Scene) -> None:
    before = scene.state()
    for table in owned(scene.root):
        copied = scene.root.value(f"SELECT to_jsonb(t)::text FROM easeml.{table} t WHERE tenant = 'alma' LIMIT 1")
        names = ", ".join(columns(scene.root, table))
        for written in ("*", "tenant"):
            listed = names if written == "*" else "tenant"
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.GeneratedAlways)):
                scene.bert.execute(
                    f"INSERT INTO easeml.{table} ({listed})"  # type: ignore[arg-type]
                    f" SELECT {listed} FROM jsonb_populate_record(NULL::easeml.{table}, %s)",
                    [copied],
                )
    assert scene.state() == before


def test_no_row_of_another_can_be_changed_or_deleted(scene: Scene) -> None:
    before = scene.state()
    for table in relations(scene.root, "r"):
        names = columns(scene.root, table)
        statements = [f"UPDATE easeml.{table} SET {name} = {name}" for name in names]
        statements += [f"DELETE FROM easeml.{table}", f"SELECT FROM easeml.{table} FOR UPDATE"]
        for statement in statements:
            try:
                assert scene.bert.execute(statement).rowcount == 0, statement  # type: ignore[arg-type]
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.GeneratedAlways):
                continue
    assert scene.state() == before


# Routines


def callable_routines(root: Session) -> set[str]:
    """Routines that a tenant may execute, as in REFUSED."""
    return set(
        root.values(
            "SELECT replace(oid::regprocedure::text, 'easeml.' || proname, proname) FROM pg_proc WHERE pronamespace ="
            " 'easeml'::regnamespace AND has_function_privilege('bert', oid, 'EXECUTE')"
        )
    )


def test_every_routine_that_a_tenant_may_execute_has_a_case_here(scene: Scene) -> None:
    cases = {*REFUSED, *ANSWERED_EMPTILY}
    routines = callable_routines(scene.root)
    assert {routine for routine in routines if routine.split("(")[0] not in ABOUT_NO_ROWS} == cases
    assert {routine.split("(")[0] for routine in routines - cases} == ABOUT_NO_ROWS


@pytest.mark.parametrize("routine", sorted(REFUSED))
def test_a_routine_refuses_what_belongs_to_another_and_changes_nothing(scene: Scene, routine: str) -> None:
    before = scene.state()
    with pytest.raises(psycopg.Error) as caught:
        scene.bert.execute(REFUSED[routine].format(**scene.numbers))  # type: ignore[arg-type]
    assert caught.value.sqlstate in ("ML003", "ML004", "ML010", "42501"), caught.value
    assert caught.value.sqlstate == "42501" or "alma" not in str(caught.value)
    assert scene.state() == before
    assert scene.bert.value("SELECT to_regclass('stolen')") is None


@pytest.mark.parametrize("routine", sorted(ANSWERED_EMPTILY))
def test_a_routine_that_takes_anybody_s_numbers_tells_and_changes_nothing(scene: Scene, routine: str) -> None:
    before = scene.state()
    statement, expected = ANSWERED_EMPTILY[routine]
    assert scene.bert.value(statement.format(**scene.numbers)) == expected
    assert scene.state() == before


@pytest.mark.parametrize(
    "routine", ["cancel(bigint)", "find_run(bigint)", "resume(bigint)", "drop_run(bigint,boolean)"]
)
def test_the_owner_is_not_refused_the_same(scene: Scene, routine: str) -> None:
    with scene.alma.transaction(force_rollback=True):
        scene.alma.execute(REFUSED[routine].format(**scene.numbers))  # type: ignore[arg-type]


def test_a_reader_who_is_a_tenant_too_sees_nothing_that_tells_values_of_others(scene: Scene) -> None:
    both, reader = (
        scene.root.as_role("both", "easeml_reader", "easeml_tenant"),
        scene.root.as_role("sam", "easeml_reader"),
    )
    for table, hidden in (("datasets", "encoder"), ("evaluations", "statistics"), ("partitions", "checksum")):
        assert both.value(f"SELECT count(*) FROM (SELECT {hidden} FROM easeml.{table}) hidden") == 0, table
        assert reader.value(f"SELECT count(*) FROM easeml.{table}") > 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(f"SELECT {hidden} FROM easeml.{table}")  # type: ignore[arg-type]
    assert both.value("SELECT count(*) FROM easeml.runs") > 0, "results are read as any reader reads them"
    assert both.values("SELECT classes FROM easeml.tasks WHERE tenant = 'alma'") == []
    for place in ("node_jobs", "node_job_status"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(f"SELECT * FROM easeml.{place}")  # type: ignore[arg-type]
