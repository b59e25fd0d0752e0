"""The extension's SQL sources, read without a server: statements, routines, views."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from easeml_db.postgres.extension_scripts import source

SQL = Path(__file__).resolve().parents[2] / "sql"

# What must not be looked into for a semicolon, comma or bracket: comments, literals, dollar-quoted bodies.
TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|.", re.DOTALL)
ROUTINE = re.compile(r"CREATE (?:OR REPLACE )?(FUNCTION|PROCEDURE) (easeml(?:_segment)?)\.(\w+)\s*\(", re.IGNORECASE)
AGAIN = re.compile(r"^CREATE (?:OR REPLACE )?((?:(?:UNIQUE )?INDEX |TABLE )?)(?:IF NOT EXISTS )?")
BODY = re.compile(r"\$(?P<tag>\w*)\$(?P<body>.*)\$(?P=tag)\$", re.DOTALL)
ARGUMENT = re.compile(r"(?:(IN|OUT|INOUT|VARIADIC)\s+)?(\w+|\"\w+\")\s+(.+)", re.DOTALL)


@dataclass(frozen=True)
class Argument:
    mode: str
    name: str
    type: str


@dataclass(frozen=True)
class Routine:
    """`arguments` holds all of them; `inputs` those that a caller passes."""

    kind: str
    name: str
    arguments: tuple[Argument, ...]
    language: str
    body: str
    schema: str = "easeml"

    @property
    def inputs(self):
        return [argument for argument in self.arguments if argument.mode != "OUT"]

    @property
    def signature(self):
        return f"{self.kind} {self.schema}.{self.name}({', '.join(argument.type for argument in self.inputs)})"


def tokens(text):
    """Cut SQL into comments, literals, dollar-quoted strings and single characters; leave the comments out."""
    found = (match.group() for match in TOKEN.finditer(text))
    return [token for token in found if not token.startswith(("--", "/*"))]


def split(text, separator):
    """Split at a separator that stands outside literals and brackets."""
    parts, depth = [""], 0
    for token in tokens(text):
        depth += (token in "([") - (token in ")]")
        if token == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


def bracketed(text):
    """Return what stands before the closing bracket that belongs to an opening one in front of `text`."""
    depth, found = 1, ""
    for token in tokens(text):
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return found
        found += token
    raise AssertionError(f"no closing bracket: {text[:80]}")


def argument(text):
    declared = re.split(r"\s+DEFAULT\s+|\s*=", text, maxsplit=1, flags=re.IGNORECASE)[0]
    mode, name, type_ = ARGUMENT.fullmatch(declared.strip()).groups()
    return Argument((mode or "IN").upper(), name, " ".join(type_.split()).lower())


def routine(statement):
    head = ROUTINE.match(statement)
    listed = bracketed(statement[head.end() :])
    rest = statement[head.end() + len(listed) :]
    language = re.search(r"LANGUAGE (\w+)", rest).group(1)
    arguments = tuple(argument(part) for part in split(listed, ","))
    body = BODY.search(rest) or re.search(r"\bRETURN (?P<body>.*)", rest, re.DOTALL)
    return Routine(head[1].upper(), head[3], arguments, language, body["body"], head[2])


@pytest.fixture(scope="session")
def sql_statements():
    """All statements of sql/ but the named queries, the built file, and what is no extension.

    Without comments, and without what lets them run again: as statements of a fresh installation.
    """
    others = ("queries", "upgrades", "greenplum")
    files = [path for path in sorted(SQL.glob("*/*.sql")) if path.parent.name not in others]
    assert files
    return [AGAIN.sub(r"CREATE \1", statement) for path in files for statement in split(source(path), ";")]


@pytest.fixture(scope="session")
def sql_parser():
    """What reads SQL here, for tests that read other sources."""
    return SimpleNamespace(split=split, bracketed=bracketed, routine=routine, is_routine=ROUTINE.match)


@pytest.fixture(scope="session")
def sql_routines(sql_statements):
    """All functions and procedures."""
    return [routine(statement) for statement in sql_statements if ROUTINE.match(statement)]


@pytest.fixture(scope="session")
def sql_views(sql_statements):
    """Columns of all views, by name: the select list of each (of a union: of its first branch)."""
    views = {}
    for statement in sql_statements:
        if head := re.match(r"CREATE VIEW easeml\.(\w+)\s.*?\bAS\s+SELECT\s", statement, re.DOTALL):
            listed = before_from(statement[head.end() :])
            views[head.group(1)] = [column_name(item) for item in split(listed, ",")]
    return views


def before_from(text):
    """Return the select list: all before the first FROM outside brackets and literals."""
    depth, found = 0, ""
    for token in tokens(text):
        depth += (token == "(") - (token == ")")
        found += token
        if depth == 0 and re.search(r"\sFROM\s$", found):
            return found[: -len(" FROM ")]
    raise AssertionError(f"no FROM: {text[:80]}")


def column_name(item):
    """Return the name of an item of a select list: its alias, else the column's own name."""
    return re.search(r"(\w+)$", item).group(1)
