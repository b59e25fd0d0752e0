"""The engines by name. To add one, make a folder of its own and add a line here; SQL and the command line read both.

The folder's `place` says which segments there are, without a driver: the server asks it, too (easeml.check_segment).
Its `engine` has the rest, and is imported when the first node of that engine is met.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from easeml_db.errors import InvalidArgument

if TYPE_CHECKING:
    from easeml_db.postgres.nodes.engine import Engine

DEFAULT = "postgres"
ENGINES = {
    DEFAULT: "easeml_db.postgres.nodes.plain",
    "citus": "easeml_db.postgres.nodes.citus",
    "greenplum": "easeml_db.postgres.nodes.greenplum",
}


class Place(Protocol):
    """The module `place` of an engine.

    `SERVER`: what its name means for a server, for the command line. `CONTENT`: what a content is, if there is any.
    """

    SERVER: str
    CONTENT: str

    @staticmethod
    def check_place(service: str | None, content: int | None) -> None:
        """Refuse a service and a content that are no segment of this engine. Raises InvalidArgument."""


def place_of(name: str) -> Place:
    """Return what an engine says of its segments."""
    return cast(Place, import_module(f"{ENGINES[name]}.place"))


def engines_of(name: str) -> tuple[Engine, ...]:
    """Return the ways in which servers of an engine are reached: directly, or through the coordinator of a cluster."""
    ways: tuple[Engine, ...] = import_module(f"{ENGINES[name]}.engine").ENGINES
    return ways


def engine_of(name: str, content: int | None) -> Engine:
    """Return the engine of a segment."""
    return next(engine for engine in engines_of(name) if engine.serves(content))


def check_engine(engine: str | None, service: str | None, content: int | None) -> None:
    """Refuse what is no segment of an engine, for SQL. Raises InvalidArgument."""
    if engine not in ENGINES:
        *others, last = ENGINES
        got = "NULL" if engine is None else "'{}'".format(engine.replace("'", "''"))
        raise InvalidArgument(f"engine: expected {', '.join(others)} or {last}, got {got}")
    place_of(engine).check_place(service, content)
