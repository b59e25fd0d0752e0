"""What the SQL sources of the extension say of themselves: routines, tables, views and roles, with their comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from easeml_db.postgres.extension_scripts import sources

SOURCES = Path(__file__).resolve().parent.parent / "sql"
UNITS = ("train_unit", "evaluate_unit", "train_round", "evaluate_round", "train_gang", "evaluate_gang", "pilot_unit")


@dataclass(frozen=True)
class Routine:
    """A function or procedure as its CREATE and COMMENT statements describe it."""

    kind: str
    name: str
    arguments: tuple[str, ...]
    returns: str
    comment: str

    @property
    def is_internal(self) -> bool:
        """Whether users never call it."""
        return self.name in UNITS or "(internal" in self.comment or "(trigger)" in self.comment


@dataclass
class Relation:
    """A table or view with its comment and those of its columns."""

    name: str
    comment: str = ""
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        """Whether users never read it."""
        return "(internal" in self.comment


def sql_text() -> str:
    """All sources of the extension in the order in which they are built."""
    return "\n".join(sources(SOURCES).values())


def split_arguments(text: str) -> list[str]:
    """Split an argument list at its commas, but not within brackets or quotes."""
    parts, depth, is_quoted, start = [], 0, False, 0
    for position, character in enumerate(text):
        if character == "'":
            is_quoted = not is_quoted
        elif not is_quoted and character in "([":
            depth += 1
        elif not is_quoted and character in ")]":
            depth -= 1
        elif not is_quoted and not depth and character == ",":
            parts.append(text[start:position])
            start = position + 1
    return [" ".join(part.split()) for part in [*parts, text[start:]] if part.strip()]


def bracketed(text: str, start: int) -> str:
    """Return what stands within the bracket that opens at `start`."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + 1 : position]
    raise ValueError("a bracket is never closed")


def comments(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yield (what is commented, comment) of one kind of object, in the order of the sources."""
    literals = r"(?:'(?:[^']|'')*'\s*)+"
    pattern = rf"COMMENT ON {kind} easeml\.([^;]*?) IS\s+(?:({literals})|\$\$(.*?)\$\$);"
    for match in re.finditer(pattern, text, re.DOTALL):
        quoted, dollars = match.group(2), match.group(3)
        yield match.group(1).strip(), joined(quoted) if quoted is not None else dollars


def joined(literals: str) -> str:
    """Return the text of string literals that stand on lines of their own, as the server joins them."""
    return re.sub(r"'\s*\n\s*'", "", literals.strip())[1:-1].replace("''", "'")


def routines(text: str) -> list[Routine]:
    """Read all functions and procedures; every one must have a comment."""
    told = {
        (kind, re.sub(r"\s+", "", signature)): comment
        for kind in ("FUNCTION", "PROCEDURE")
        for signature, comment in comments(text, kind)
    }
    found = []
    for match in re.finditer(r"^CREATE OR REPLACE (FUNCTION|PROCEDURE) easeml\.(\w+)\s*\(", text, re.MULTILINE):
        kind, name = match.groups()
        inside = bracketed(text, match.end() - 1)
        arguments = split_arguments(inside)
        rest = text[match.end() + len(inside) + 1 :]
        head = rest[: rest.index("LANGUAGE")]
        returns = " ".join(head.split()).removeprefix("RETURNS ").strip()
        inputs = [argument for argument in arguments if not argument.startswith("OUT ")]
        key = (kind, f"{name}({','.join(type_of(argument) for argument in inputs)})".replace(" ", ""))
        found.append(Routine(kind.lower(), name, tuple(arguments), returns, told[key]))
    return found


def type_of(argument: str) -> str:
    """The type in 'name type DEFAULT value'."""
    bare = re.sub(r"^(IN|INOUT|OUT) ", "", argument)
    return re.split(r" DEFAULT ", bare)[0].split(" ", 1)[1]


def relations(text: str, kind: str) -> list[Relation]:
    """Read tables or views; a view's columns are those that have comments, and all have."""
    created = rf"^CREATE (?:OR REPLACE )?{kind} (?:IF NOT EXISTS )?easeml\.(\w+)"
    found = {name: Relation(name) for name in re.findall(created, text, re.MULTILINE)}
    for name, comment in comments(text, kind):
        found[name].comment = comment
    for path, comment in comments(text, "COLUMN"):
        name, column = path.split(".")
        if name in found:
            found[name].columns[column] = comment
    return list(found.values())


def roles(text: str) -> list[str]:
    """Names of the group roles that the extension makes."""
    return re.findall(r"'(\w+)'", text[text.index("FOREACH role_name IN ARRAY") :].split("]", 1)[0])
