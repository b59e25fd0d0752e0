"""SQL that is put together at run time: of fixed words, quoted names and values, and of what is listed here.

Each entry is a decision about where the text comes from. pgspot does not look into EXECUTE, and cannot read PL/Python.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

PLPY = Path(__file__).resolve().parents[2] / "plpy" / "easeml_plpy"
EXECUTED = re.compile(r"\bEXECUTE\s+(?!FUNCTION|ON\b)", re.IGNORECASE)
PLACEHOLDER = re.compile(r"%(?:(\d+)\$)?-?\d*([sIL%])")
QUOTING = re.compile(
    r"\(?(SELECT )?(quote_ident|quote_literal|easeml\.qualified_name|format|string_agg\((format|quote_ident))\("
    r"|CASE WHEN "
)
"""By itself, or put together of what is looked at by itself."""
SQL_WORD = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|GRANT|REVOKE|LOCK|COMMENT|FROM|WHERE|VALUES|ORDER BY|SET)\b"
)
# What %s puts in unquoted. regclass, regprocedure and regrole print quoted; the door alone writes the columns of
# easeml.tasks (sql/security/privileges.sql), and tests/attack/test_ownership.py holds that.
CALLERS_OWN = {"on_worker"}  # it is INVOKER, and only easeml_segment may call it
UNQUOTED = {
    "analyse_grown": {"relation"},
    "broken_references": {"reference.child", "reference.is_given", "reference.matches", "reference.parent"},
    "drop_task": {"found.place"},
    "drop_tenant": {"account", "grantor"},
    "feed": {"easeml.output_type(found)", "found.examples", "i.type"},
    "label_from": {"columns", "f", "found.examples"},
    "let_in": {"account"},
    "let_out": {"account"},
    "make_examples": {"easeml.objects_constraint(task.specification)", "inputs", "names", "relation"},
    "make_objects_view": {"examples", "first ->> 'n_values'", "parts", "whole"},
    "make_task_views": {
        "'NEW.' || replace(columns, ', ', ', NEW.')", "columns", "examples", "feeder", "missing", "place", "variables",
        "wrong",
    },
    "pending_examples": {"task.examples"},
    "perform_drop_task": {"task.examples"},
    "perform_label_examples": {"easeml.output_type(task)", "task.examples"},
    "prune_rows": {"condition"},
    "row_numbers": {"array_to_string(told, ', ')"},
}  # fmt: skip
# What easeml_owner executes for the service (easeml.advance_task): columns of easeml.tasks, too.
IN_TASKS = {
    "', '.join(sent)", "_length_of(entry)", "columns", "output", "self._chosen", "self._rows.and_measured",
    "self._sent_output()", "self._table", "self._task.examples",
}  # fmt: skip


def executed(body: str, sql_parser: Any) -> list[str]:
    """The arguments of all EXECUTE of a body."""
    return [sql_parser.split(body[found.end() :], ";")[0] for found in EXECUTED.finditer(body)]


def unquoted(statement: str, sql_parser: Any) -> list[str]:
    """What the format calls of a statement put in by %s, but for what quotes by itself."""
    found = []
    for call in re.finditer(r"\bformat\(", statement):
        text, *arguments = sql_parser.split(sql_parser.bracketed(statement[call.end() :]), ",")
        following = 0
        for number, kind in PLACEHOLDER.findall(text):
            if kind == "%":
                continue
            following = int(number) if number else following + 1
            if kind == "s" and not QUOTING.match(arguments[following - 1]):
                found.append(" ".join(arguments[following - 1].split()))
    return found


def test_what_is_executed_is_a_literal_or_a_format_of_listed_texts(sql_routines: Any, sql_parser: Any) -> None:
    found: dict[str, set[str]] = {}
    for routine in sql_routines:
        if routine.language == "plpgsql":
            for statement in executed(routine.body, sql_parser):
                is_put_together = re.match(r"'|format\(|\(SELECT format\(", statement.strip())
                assert is_put_together or routine.name in CALLERS_OWN, (routine.name, statement[:80])
                found.setdefault(routine.name, set()).update(unquoted(statement, sql_parser))
    assert {name: texts for name, texts in found.items() if texts} == UNQUOTED


def put_into_sql(path: Path) -> set[str]:
    """What a file of Python puts into texts of SQL."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value for part in node.values if isinstance(part, ast.Constant))
            parts = [ast.unparse(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
            found |= set(parts) if SQL_WORD.search(text) else set()
    return found


def test_python_that_works_for_everybody_puts_only_listed_texts_into_sql() -> None:
    """Ruff (S608) lets six packages put SQL together: of these, tasks alone has other rights than whoever calls."""
    found = {text for path in (PLPY / "tasks").glob("*.py") for text in put_into_sql(path)}
    assert found == IN_TASKS


@pytest.mark.parametrize("place", ["server", "evaluation", "files", "row_forms", "trainers"])
def test_python_elsewhere_puts_no_value_into_sql(place: str) -> None:
    found = {text for path in (PLPY / place).rglob("*.py") for text in put_into_sql(path)}
    assert found <= {"session.schema"}, "easeml or easeml_segment"
