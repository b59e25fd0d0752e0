"""What changed since the last release is in sql/upgrades, as far as the sources show it without a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from easeml_db.postgres import extension_scripts

SQL = Path(__file__).resolve().parents[2] / "sql"
UPGRADES = SQL / "upgrades"
INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+) ")
TABLE = re.compile(r"CREATE TABLE easeml\.(\w+) \(")

HINT = "add columns below their table, say other changes in sql/upgrades (CONTRIBUTING.md: a column, or another change)"


def normal(text: str) -> str:
    return " ".join(text.split())


def results(routine) -> tuple[str, ...]:
    """What a caller gets back: outputs in their order, for which CREATE OR REPLACE has no other form."""
    return tuple(f"{one.name} {one.type}" for one in routine.arguments if one.mode != "IN")


@pytest.fixture(scope="module")
def by_hand() -> str:
    """What the newest upgrade changes by hand."""
    return normal(max(UPGRADES.glob("[0-9]*--*.sql")).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def released(sql_parser) -> list[str]:
    """The statements of the last release."""
    return sql_parser.split(max(UPGRADES.glob("easeml--*.sql")).read_text(encoding="utf-8"), ";")


def tables(statements: list[str], sql_parser) -> dict[str, set[str]]:
    """Columns and constraints of each table."""
    found = {}
    for statement in statements:
        if head := TABLE.match(statement):
            listed = sql_parser.bracketed(statement[head.end() :])
            found[head.group(1)] = {normal(item) for item in sql_parser.split(listed, ",")}
    return found


def indexes(statements: list[str]) -> dict[str, str]:
    return {match.group(1): normal(each) for each in statements if (match := INDEX.match(each))}


def test_sources_can_run_again(sql_parser) -> None:
    """An update runs them over what a former version made."""
    for path in extension_scripts.sources(SQL):
        former = ""
        for statement in sql_parser.split(extension_scripts.source(SQL / path), ";"):
            made = re.match(r"CREATE (?:CONSTRAINT )?(TRIGGER|POLICY) (\w+)", statement)
            runs_again = (
                (made is not None and f"DROP {made[1]} IF EXISTS {made[2]} " in former)
                or re.match(r"CREATE (OR REPLACE|TABLE IF|(UNIQUE )?INDEX IF|SCHEMA IF)", statement)
                or (statement.startswith("INSERT") and "ON CONFLICT" in statement)
            )
            assert runs_again or not statement.startswith(("CREATE", "INSERT")), f"{path}: {statement[:100]}"
            former = statement


def test_routines_with_other_arguments_or_results_are_dropped(sql_routines, released, by_hand, sql_parser) -> None:
    former = [sql_parser.routine(each) for each in released if sql_parser.is_routine(each)]
    present = {one.signature: results(one) for one in sql_routines}
    changed = {one.name for one in former if present.get(one.signature) != results(one)}
    undropped = [name for name in changed if not re.search(rf"DROP .*easeml\.{name}\(", by_hand)]
    assert undropped == [], HINT


def test_columns_and_constraints_of_tables_that_were_there_are_changed(
    sql_statements, released, by_hand, sql_parser
) -> None:
    before, now = tables(released, sql_parser), tables(sql_statements, sql_parser)
    untold = []
    for table in before.keys() & now.keys():
        for item in before[table] ^ now[table]:
            first = item.split()[0]
            name = table if first.isupper() else first
            if f"easeml.{table} " not in by_hand or not re.search(rf"\b{name}\b|_{name}_check\b", by_hand):
                untold.append(f"{table}: {item}")
    assert untold == [], HINT
    assert {table for table in before.keys() - now.keys() if f"easeml.{table}" not in by_hand} == set(), HINT


def test_indexes_with_other_columns_are_dropped_first(sql_statements, released, by_hand) -> None:
    before, now = indexes(released), indexes(sql_statements)
    changed = {name for name in before if now.get(name) != before[name]}
    assert [name for name in changed if f"easeml.{name}" not in by_hand] == [], HINT
