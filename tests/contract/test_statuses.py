"""Statuses, kinds and error codes are the same in SQL and in Python."""

import re
from pathlib import Path

import pytest

from easeml_db import errors
from easeml_db.words.topology import SLOT_STATUSES
from easeml_db.words.trial import RUN_STATUSES, RUN_TRANSITIONS, TRIAL_STATUSES, TRIAL_TRANSITIONS, VISIT_ORDERS

ROOT = Path(__file__).resolve().parents[2]
LITERAL = re.compile(r"'(\w+)'")


def table(statements, name):
    (found,) = [s for s in statements if re.match(rf"CREATE TABLE easeml\.{name}\s*\(", s)]
    return found


def checked(statement, column):
    """Return the values that a table's CHECK, or the trigger in its place, allows: column IN (...)."""
    return LITERAL.findall(re.search(rf"\b{column} IN \(([^)]*)\)\)", statement).group(1))


def trigger(statements, name):
    (found,) = [s for s in statements if s.startswith(f"CREATE TRIGGER {name} ")]
    assert " AFTER INSERT OR UPDATE OF " in found
    return found


@pytest.mark.parametrize("name", ["trial_values", "slot_values"])
def test_triggers_look_at_a_row_where_a_column_of_their_rules_is_written(sql_statements, name):
    found = trigger(sql_statements, name)
    written, when = re.search(r"UPDATE OF ([\w, ]+) ON .*? WHEN (.*) EXECUTE ", " ".join(found.split())).groups()
    assert set(written.split(", ")) == set(re.findall(r"NEW\.(\w+)", when))


def test_rows_have_the_statuses_of_the_words(sql_statements):
    for statement, statuses in (
        (table(sql_statements, "runs"), RUN_STATUSES), (trigger(sql_statements, "trial_values"), TRIAL_STATUSES),
    ):  # fmt: skip
        found = checked(statement, "status")
        assert len(found) == len(set(found))
        assert set(found) == statuses


@pytest.mark.parametrize(("name", "status"), [("runs", "queued"), ("trials", "waiting")])
def test_rows_begin_in_the_first_status(sql_statements, name, status):
    assert f"status text NOT NULL DEFAULT '{status}'" in table(sql_statements, name)


def test_statuses_of_slots_and_orders_of_visit_are_those_of_the_words(sql_statements):
    assert tuple(checked(trigger(sql_statements, "slot_values"), "status")) == SLOT_STATUSES
    assert tuple(checked(table(sql_statements, "runs"), "visit_order")) == VISIT_ORDERS


@pytest.mark.parametrize(
    ("function", "transitions"),
    [("check_run_transition", RUN_TRANSITIONS), ("check_trial_transition", TRIAL_TRANSITIONS)],
)
def test_triggers_allow_the_transitions_of_the_words(sql_routines, function, transitions):
    (routine,) = [routine for routine in sql_routines if routine.name == function]
    found = re.findall(r"\('(\w+)', '(\w+)'\)", routine.body)
    expected = {(before, after) for before, followers in transitions.items() for after in followers}
    assert len(found) == len(set(found))
    assert set(found) == expected


@pytest.mark.parametrize(("name", "word", "when"), [("runs", "run", "BEFORE"), ("trials", "trial", "AFTER")])
def test_triggers_stand_on_their_tables(sql_statements, name, word, when):
    expected = (
        f"CREATE TRIGGER {word}_transition {when} UPDATE OF status ON easeml.{name} "
        f"FOR EACH ROW EXECUTE FUNCTION easeml.check_{word}_transition()"
    )
    assert expected in [" ".join(statement.split()) for statement in sql_statements]


def test_no_function_catches_every_error(sql_routines):
    """A PL/pgSQL block with EXCEPTION opens a subtransaction at every call; what catches, names what it expects."""
    catching = {routine.name for routine in sql_routines if "EXCEPTION WHEN" in routine.body}
    assert not {routine.name for routine in sql_routines if "OTHERS" in routine.body}
    assert catching == {
        "find_source", "find_output", "find_tenant", "drop_price_list", "log_prediction", "claim_name",
        "advance_task", "feed", "label_from", "look_for_refresh", "listed_places", "tables_by_segment",
        "is_starting_runs", "prune_unlocked", "examples_bytes", "function_names", "let_in", "let_out",
    }  # fmt: skip


def test_codes_used_in_sql_exist():
    used = {
        code for path in ROOT.glob("sql/*/*.sql") for code in re.findall(r"\bML\d\w*", path.read_text(encoding="utf-8"))
    }
    assert len(used) > 3
    assert used <= errors.BY_SQLSTATE.keys()
