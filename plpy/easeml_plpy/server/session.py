"""A server session: the statements that it has planned, and what it keeps between calls.

The session object lives in `GD`, so it lasts as long as the connection. All roles of a connection share `GD`: entry
points check what the caller may see before they look at what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from easeml_plpy import __version__
from easeml_plpy.server.errors import VersionMismatch
from easeml_plpy.server.interrupts import quietly
from easeml_plpy.server.plpython import Cursor, GlobalData, PlPy, PreparedPlan, Result, SqlValue

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """A statement with parameters of these SQL types, whose result is not read.

    `is_kept`: whether the session keeps the plan; it should not if the SQL is made for one call. `{schema}` in it
    stands for the schema of the session's extension, because the relations that a unit reads have the same names on
    every server.
    """

    sql: str
    types: tuple[str, ...]
    is_kept: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class Statement(Command, Generic[R]):
    """A statement that returns rows; `row` makes a record of one, taking the columns by name.

    Records are NamedTuples: each unit makes some, and a frozen dataclass takes 1.7 times as long to make.
    """

    row: Callable[..., R]


def only_column(**columns: T) -> T:
    """Return the value of a statement's only column, as its record."""
    (value,) = columns.values()
    return value


class Session:
    """One connection to the server, as PL/Python sees it, at work for the extension in `schema`."""

    schema: ClassVar[str] = "easeml"

    _current: ClassVar[Session | None] = None

    def __init__(self, plpy: PlPy) -> None:
        self._plpy = plpy
        self._plans: dict[str, PreparedPlan] = {}
        self._kept: dict[Kept[Any], Any] = {}
        self.SPIError = plpy.SPIError

    @classmethod
    def of(cls, plpy: PlPy, GD: GlobalData) -> Self:
        """Return the connection's session; at its first call, after comparing versions. Raises VersionMismatch."""
        key = f"{cls.schema}_session"
        session = GD.get(key)
        if not isinstance(session, cls):
            session = cls(plpy)
            _check_version(session)
            GD[key] = Session._current = session
        return session

    @classmethod
    def current(cls) -> Session | None:
        """Return the session of this process, which has one connection; None outside a server."""
        return Session._current

    def without_kept(self) -> Session:
        """Return a session over the same connection that keeps nothing from before."""
        return type(self)(self._plpy)

    def rows(self, statement: Statement[R], *values: SqlValue) -> list[R]:
        """Execute a statement, and return its rows."""
        make = statement.row
        return [make(**row) for row in quietly(self._plpy.execute, self._plan(statement), values)]

    def row(self, statement: Statement[R], *values: SqlValue) -> R:
        """Execute a statement that always returns one row."""
        return statement.row(**quietly(self._plpy.execute, self._plan(statement), values)[0])

    def each(self, statement: Statement[R], *values: SqlValue, at_once: int = 1) -> Iterator[R]:
        """Execute a statement and yield its rows, with `at_once` in memory."""
        cursor: Cursor = quietly(self._plpy.cursor, self._plan(statement), values)
        while fetched := quietly(cursor.fetch, at_once):
            for row in fetched:
                yield statement.row(**row)
        quietly(cursor.close)

    def run(self, command: Command, *values: SqlValue) -> int:
        """Execute a statement; return how many rows it returned or changed."""
        return quietly(self._plpy.execute, self._plan(command), values).nrows()

    def execute(self, sql: str) -> Result:
        """Execute a statement that is executed only once and has no parameters."""
        return quietly(self._plpy.execute, sql)

    def kept(self, what: Kept[T]) -> T:
        """Return the value that the session keeps under that name, made at the first call."""
        if what not in self._kept:
            self._kept[what] = what.make()
        value: T = self._kept[what]
        return value

    def pin(self) -> None:
        """Find names in pg_catalog only, until the transaction ends.

        Functions have that setting themselves; a procedure that commits can have none.
        """
        self.run(PIN)

    def commit(self) -> None:
        """Commit, and pin the next transaction. Raises SPIError inside a function or an open transaction."""
        self.let_go()
        self.pin()

    def let_go(self) -> None:
        """Commit, and have no snapshot until the next statement takes one, which has to pin first. Raises SPIError as
        `commit` does.
        """
        quietly(self._plpy.commit)

    @contextmanager
    def subtransaction(self) -> Iterator[None]:
        """Undo what is done in here, and nothing else, if it raises."""
        with self._plpy.subtransaction():
            yield

    def notice(self, message: str) -> None:
        """Send a notice to the client."""
        self._plpy.notice(message)

    def warn(self, message: str, *, hint: str) -> None:
        """Send a warning to the client."""
        self._plpy.warning(message, hint=hint)

    def _plan(self, command: Command) -> PreparedPlan:
        plan = self._plans.get(command.sql)
        if plan is None:
            statement = command.sql.replace("{schema}", self.schema)
            plan = quietly(self._plpy.prepare, statement, command.types)
            if command.is_kept:
                self._plans[command.sql] = plan
        return plan


@dataclass(frozen=True, eq=False)
class Kept(Generic[T]):
    """One thing that a session keeps between calls, and how it begins. It must be possible to make it again."""

    make: Callable[[], T]


PIN = Command("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)", ())
_VERSION: Statement[str] = Statement("SELECT {schema}.version() AS version", (), only_column)


def _check_version(session: Session) -> None:
    """Refuse to work when the extension and the Python package are of different versions.

    An open connection keeps the code that it imported first, so an upgrade shows only in new connections.
    """
    installed = session.row(_VERSION)
    if installed != __version__:
        raise VersionMismatch(
            f"the extension {session.schema} is {installed}, but this session runs the Python package {__version__}",
            hint=f"Install the same version of both, run ALTER EXTENSION {session.schema} UPDATE, and open new"
            " sessions.",
        )


class NodeSession(Session):
    """One connection to a node, which holds blocks and states and knows no runs."""

    schema: ClassVar[str] = "easeml_segment"
