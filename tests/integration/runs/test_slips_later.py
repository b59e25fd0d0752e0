"""What users do wrong later on: with tasks, imported models, runs that have no epoch yet, rows that they ask for.

As in test_slips.py: one line of what was expected and what was got, what to do, and nothing of what lies within.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.integration.runs.test_slips import Slip, told

if TYPE_CHECKING:
    from tests.fixtures.sessions import Session

N_SLOTS = 1
SETUP = """
CREATE TABLE fields AS SELECT i AS id, i * 0.5 AS width, date '2030-01-01' + i AS sown, (i % 5)::text AS kind,
    i * 2.5 AS yield FROM generate_series(1, 120) i;
ALTER TABLE fields ADD PRIMARY KEY (id);
SELECT easeml.create_dataset('fields', 'fields', '{width,sown,kind}', 'yield', n_partitions => 1);
CREATE SCHEMA barn;
SELECT easeml.create_task('corn', 'Input = [3] Output = [2]', schema => 'barn', classes => '{a,b}');
SELECT easeml.create_task('leaves', '{input: {[w :: Tensor[2]],[left, right]}, output: {[Tensor[2]],[]}}',
    schema => 'barn');
INSERT INTO barn.corn (input) VALUES ('{1,2,3}');
CREATE FUNCTION barn.stumbles(real[]) RETURNS text LANGUAGE plpgsql STABLE AS
    $$ BEGIN RAISE EXCEPTION 'no idea of %', $1; END $$;
CREATE FUNCTION barn.writes(real[]) RETURNS text LANGUAGE plpgsql STABLE AS
    $$ BEGIN DELETE FROM public.fields; RETURN 'a'; END $$
"""
ROW = """SELECT easeml.predict('fields', '{{"width": {}, "sown": {}, "kind": {}}}')"""
FEED = "SELECT * FROM easeml.feed('{}', examples => '[{}]')"
PLAN = "SELECT easeml.select_models('fields', '{{linear}}', n_configs => 3, max_epochs => 9, {})"
LASTED = """
SELECT easeml.tried_sentence(jsonb_populate_record(r, jsonb_build_object('finished_at', r.started_at + %s::interval)))
FROM easeml.runs r WHERE run_id = 1
"""
SLIPS = [
    # rows
    Slip(ROW.format(1, '"soon"', '"1"'), "'sown': expected a date or time such as .*, got 'soon'", "null"),
    Slip(ROW.format(1, '"infinity"', '"1"'), "'sown': expected a date or time .* got 'infinity'", "null"),
    Slip(ROW.format(1, '"2030-01-01"', '{"a": null}'), 'expected a text, got {"a": null}', "null"),
    # imported models, and trials without an epoch
    Slip("SELECT easeml.refresh_dataset('elsewhere')", "'elsewhere' was imported: it has no source", "create_dataset"),
    Slip("SELECT * FROM easeml.evaluate('elsewhere')", "'elsewhere' was imported: it has no rows", "easeml.predict"),
    Slip("CALL easeml.replay({})", "has no recorded training unit yet", "easeml.resume"),
    Slip("SELECT easeml.deploy({})", "has no measured epoch yet", "easeml.resume"),
    Slip("SELECT * FROM easeml.evaluate('fields', {})", "has no measured epoch yet", "easeml.resume"),
    # plans
    Slip(PLAN.format("max_cost => -1"), "max_cost: expected a number above 0, got -1", "price list"),
    Slip(PLAN.format("deadline => '1 microsecond'"), "deadline: expected an interval above 0", "20 minutes"),
    Slip("SELECT easeml.drop_provisioner('local')", "no provisioner 'local' that could be dropped", "this server"),
    Slip(
        "SELECT easeml.create_dataset('d', 'fields', '{width}', 'yield', n_folds => 5, time_column => 'sown')",
        "n_folds and time_column exclude each other",
        "Leave one",
    ),
    # tasks
    Slip("SELECT easeml.create_task('t', NULL, schema => 'barn')", "program: expected a text, got NULL", "For example"),
    Slip("SELECT easeml.infer('rye', input => '{1,2,3}'::real[])", "no task 'rye' that you may ask", "task_status"),
    Slip(FEED.format("corn", '{"inputs": [1, null]}'), r'got {"inputs": \[1, null\]}', "skip"),
    Slip(FEED.format("leaves", '{"input": {"up": {"w": [1, 2]}}}'), r'got {"up": {"w": \[1, 2\]}}', "skip"),
    Slip(
        "SELECT easeml.add_labelling_function('corn', 'barn.stumbles')",
        "a labelling function of task 'corn' raised an error: no idea of {1,2,3}",
        "Nothing was labelled.*barn.stumbles",
    ),
    Slip(
        "SELECT easeml.add_labelling_function('corn', 'barn.writes')",
        "labelling function of task 'corn' .*: DELETE is not allowed",
        "barn.writes",
    ),
]


@pytest.fixture(scope="module")
def prepared(module_coordinated: Session) -> Session:
    """A database with a finished run, a model that was imported, and a run that was cancelled before it began."""
    for statement in SETUP.strip().split(";\n"):
        module_coordinated.execute(statement)
    module_coordinated.execute("SELECT easeml.select_models('fields', '{linear}', n_configs => 1, max_epochs => 1)")
    module_coordinated.wait_until("SELECT status = 'finished' FROM easeml.runs WHERE run_id = 1")
    module_coordinated.execute("SELECT easeml.import_trial(easeml.export_trial('fields'), 'elsewhere')")
    with module_coordinated.transaction():
        module_coordinated.execute(
            "SELECT easeml.cancel(easeml.select_models('fields', '{linear}', n_configs => 1, max_epochs => 2))"
        )
    return module_coordinated


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: slip.statement)
def test_a_slip_is_told_in_one_line_with_what_to_do(prepared: Session, slip: Slip) -> None:
    trial = prepared.value("SELECT trial_id FROM easeml.trials WHERE max_epochs = 2")
    error = told(prepared, slip.statement.replace("{}", str(trial)))
    assert re.search(slip.message, error.diag.message_primary or ""), error.diag.message_primary
    assert re.search(slip.hint, error.diag.message_hint or ""), error.diag.message_hint


def test_the_time_and_the_cost_that_a_refusal_names_are_enough(prepared: Session) -> None:
    for limit, unit, tiny in (("deadline", " s", "'0.01 s'"), ("max_cost", "", "1e-9")):
        refused = told(prepared, PLAN.format(f"{limit} => {tiny}")).diag.message_primary or ""
        least = re.search(r"expected at least ([0-9.e-]+)", refused)
        assert least is not None, refused
        assert float(least[1]) > 0
        with prepared.transaction(force_rollback=True):
            prepared.execute(PLAN.format(f"{limit} => '{least[1]}{unit}'"))  # type: ignore[arg-type]


def test_a_summary_counts_as_people_do(prepared: Session) -> None:
    first, *_, last = prepared.values("SELECT s FROM easeml.run_summary(1) s")
    assert "It trained 1 config for 1 epoch in all: 1 linear." in first
    assert not re.search(r"\b1 seconds|\b0 seconds", f"{first} {last}")
    for seconds, words in (("0.2", "in less than a second"), ("1", "after 1 second"), ("2.1", "after 2 seconds")):
        assert f"Run 1 is finished {words}. " in prepared.value(LASTED, f"{seconds} s")


def test_a_notice_of_very_many_inputs_is_short(prepared: Session) -> None:
    columns = ", ".join(f"1::smallint AS c{n}" for n in range(60))
    prepared.execute(f"CREATE TABLE wide AS SELECT i % 2 AS y, {columns} FROM generate_series(1, 150) i")  # type: ignore[arg-type]
    notices: list[str] = []
    prepared.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    prepared.execute("SELECT easeml.create_dataset('wide', 'wide', target => 'y')")
    assert any(re.search(r"^inputs: c0, .*c19, and 40 others$", each) for each in notices), notices
