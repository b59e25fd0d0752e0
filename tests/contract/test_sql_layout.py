"""SQL sources are laid out alike. sqlfluff sees none of this in function bodies, which to it are literals."""

from __future__ import annotations

import re

import pytest

from tests.contract.conftest import BODY, SQL, TOKEN

MAX_COLUMNS = 120
SOURCES = [path for path in sorted(SQL.rglob("*.sql")) if not path.name.startswith("easeml")]
SOURCES += sorted(SQL.glob("greenplum/easeml*.sql"))
KEYWORD = re.compile(
    r"(?<![\w.%\"])(select|insert|update|delete|from|where|join|group by|order by|having|union|returning|case|when|then"
    r"|else|elsif|loop|perform|execute|declare|create|alter|drop|comment on|is not null|is null)(?![\w\".(])"
)
of_each_source = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SQL)))


def code(text: str) -> str:
    """Leave out comments, literals and bodies in Python; look into the other bodies."""
    found, head = "", ""
    for match in TOKEN.finditer(text):
        token = match.group()
        if token.startswith("$") and len(token) > 1:
            is_code = not re.search(r"(plpython3u[^;]*|IS\s+)$", head)
            found += code(BODY.search(token)["body"]) if is_code else ""  # type: ignore[index]
        elif not token.startswith(("--", "/*", "'")):
            found += token
            head = (head + token)[-200:]
    return found


@of_each_source
def test_lines_fit(path) -> None:
    lines = enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
    assert not [number for number, line in lines if len(line) > MAX_COLUMNS or "\t" in line or line != line.rstrip()]


@of_each_source
def test_keywords_are_upper_case(path) -> None:
    assert not KEYWORD.findall(code(path.read_text(encoding="utf-8")))


@of_each_source
def test_a_line_holds_one_statement(path) -> None:
    text = "".join(
        match.group() for match in TOKEN.finditer(path.read_text(encoding="utf-8")) if match.group()[0] != "$"
    )
    assert not re.findall(r";[ \t]*[A-Z].*", re.sub(r"--.*|'(?:[^']|'')*'", "", text))
