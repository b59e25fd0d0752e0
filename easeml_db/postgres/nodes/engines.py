"""The engines by name. To add one, make a folder of its own and add a line here; SQL and the command line read both.

The folder's `place` says which segments there are, without a driver: the server asks it, too (easeml.check_segment).
`check_place(service, content)` refuses the rest; `SERVER` is what its name means for a server, and `CONTENT` what a
content is, for the command line. Its `engine` has the rest, and is imported when the first node of the engine is met.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from easeml_db.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from easeml_db.postgres.nodes.engine import Engine

DEFAULT = "postgres"
ENGINES = {
    DEFAULT: "easeml_db.postgres.nodes.plain",
    "citus": "easeml_db.postgres.nodes.citus",
    "greenplum": "easeml_db.postgres.nodes.greenplum",
}


def place_of(name: str) -> ModuleType:
    """Return the rules of an engine for its segments."""
    return import_module(f"{ENGINES[name]}.place")


def engines_of(name: str) -> tuple[Engine, ...]:
    """Return the ways in which servers of an engine are reached: directly, or through the coordinator of a cluster.

    Raises NotFound if another version has added it.
    """
    if name not in ENGINES:
        raise NotFound(f"there is no engine {name}", hint=f"There are: {', '.join(ENGINES)}.")
    ways: tuple[Engine, ...] = import_module(f"{ENGINES[name]}.engine").ENGINES
    return ways


def engine_of(name: str, content: int | None) -> Engine:
    """Return the engine of a segment."""
    return next(engine for engine in engines_of(name) if engine.serves(content))


def check_engine(engine: str | None, service: str | None, content: int | None) -> None:
    """Refuse a service and content that are no segment of an engine, for SQL. Raises InvalidArgument."""
    if engine not in ENGINES:
        *others, last = ENGINES
        got = "NULL" if engine is None else "'{}'".format(engine.replace("'", "''"))
        raise InvalidArgument(f"engine: expected {', '.join(others)} or {last}, got {got}")
    place_of(engine).check_place(service, content)
