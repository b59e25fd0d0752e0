"""Lines of JSON, each an example or an input of a task; an error names the line that is not JSON.

They are passed on in parts that fit into one statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO, TypeAlias

from easeml_loaders.files import lines_of, reading
from easeml_plpy.server.errors import InvalidData

MOST_BYTES = 8 << 20
"""Of the lines of a part, together: a fraction of what easeml.feed takes."""
MOST_LINE_CHARACTERS = 256 << 20
"""The server keeps no longer text as jsonb; a stream without line ends would fill the memory."""
Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | float | bool | None


class Part(NamedTuple):
    """Some examples: the numbers of their lines, and they themselves as one JSON array."""

    lines: list[int]
    examples: str


def lines_of_json(path: Path) -> Iterator[Part]:
    """Yield the parts of a file. Raises InvalidData with the line and column of what is no JSON."""
    with reading(path), path.open(encoding="utf-8") as file:
        yield from parts_of(file, str(path))


def parts_of(lines: TextIO, name: str) -> Iterator[Part]:
    """Yield the parts of lines that are read one by one; `name` says in errors where they come from."""
    part: list[str] = []
    numbers: list[int] = []
    size = 0
    try:
        for number, text in enumerate(lines_of(lines, name, MOST_LINE_CHARACTERS), 1):
            line = text.rstrip("\r\n")
            if not line.strip():
                continue
            read_json(line, name, number)
            if size + len(line) > MOST_BYTES and part:
                yield Part(numbers, f"[{','.join(part)}]")
                part, numbers, size = [], [], 0
            part.append(line)
            numbers.append(number)
            size += len(line)
    except UnicodeDecodeError as error:
        raise InvalidData(f"{name}: expected JSON in UTF-8: {error}") from error
    if part:
        yield Part(numbers, f"[{','.join(part)}]")


def inputs_of(text: str, name: str) -> list[tuple[int, Json]]:
    """Return the inputs of a text with the lines they begin on: one on each line, or one over several lines.

    Raises InvalidData with the line and column of what is no JSON, and for a text without any.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise InvalidData(f"{name}: expected JSON, got nothing", hint="For example [1, 2, 3].")
    if len(lines) > 1 and _is_json(lines[0][1]):
        return [(number, read_json(line, name, number)) for number, line in lines]
    return [(lines[0][0], read_json(text, name))]


def read_json(text: str, name: str, first_line: int = 1) -> Json:
    """Return a JSON value as the server would take it. Raises InvalidData with line and column."""
    try:
        text.encode()  # bytes that the locale could not read are no text either
        value: Json = json.loads(text, parse_constant=_refuse)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
        if "\\u0000" in text:
            raise ValueError("the server takes no \\u0000 in texts")
    except json.JSONDecodeError as error:
        place = f"line {first_line + error.lineno - 1}, column {error.colno}"
        raise InvalidData(f"{name}, {place}: no JSON: {error.msg}", hint=_hint(text)) from error
    except RecursionError as error:
        raise InvalidData(f"{name}, line {first_line}: nested too deep") from error
    except ValueError as error:
        raise InvalidData(f"{name}, line {first_line}: no JSON: {error}", hint=_hint(text)) from error
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _hint(text: str) -> str:
    begin = text.lstrip()[:40].rstrip()
    return f'It begins with {begin!r}; expected such as [1, 2, 3] or {{"input": [1, 2, 3]}}.'
