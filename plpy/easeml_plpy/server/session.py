"""A server session: the statements it has planned, what it keeps between calls, and the boundary to PL/Python bodies.

An entry point takes a `Session`; its two-line body passes `plpy, GD`. The session object lives in `GD`, so it lasts as
long as the connection. `GD` is shared by all roles of a connection: entry points check what the caller may see before
they look at what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import update_wrapper
from importlib import import_module
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

from easeml_plpy import __version__
from easeml_plpy.server.errors import VersionMismatch
from easeml_plpy.server.failures import Answered, answered
from easeml_plpy.server.interrupts import interruptible, quietly
from easeml_plpy.server.memory import limit_session
from easeml_plpy.server.plpython import Cursor, GlobalData, PlPy, PreparedPlan, Result, SqlValue

P = ParamSpec("P")
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
        found: T = self._kept[what]
        return found

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


def entry_point(
    function: Callable[Concatenate[Session, P], T], *, of: type[Session] = Session
) -> Callable[Concatenate[PlPy, GlobalData, P], T]:
    """Make `function(session, ...)` callable as `function(plpy, GD, ...)`, with errors turned into SQL errors."""

    def run(plpy: PlPy, GD: GlobalData, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return guarded(plpy, lambda: function(of.of(plpy, GD), *args, **kwargs))

    update_wrapper(run, function)
    return run


def node_entry_point(
    function: Callable[Concatenate[Session, P], T],
) -> Callable[Concatenate[PlPy, GlobalData, P], T]:
    """Make `function(session, ...)` an entry point of the extension easeml_segment."""
    return entry_point(function, of=NodeSession)


def pinned(function: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[Session, P], T]:
    """Make the body of a procedure begin with `Session.pin`, so that no user's schema can change the meaning of its
    SQL.
    """

    def run(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> T:
        session.pin()
        return function(session, *args, **kwargs)

    update_wrapper(run, function)
    return run


def tenant_entry_point(
    function: Callable[Concatenate[Session, P], T],
) -> Callable[Concatenate[PlPy, GlobalData, P], T]:
    """Make `function(session, ...)` an entry point that tenants reach: a cancel ends it wherever it is."""
    enter = entry_point(function)

    def run(plpy: PlPy, GD: GlobalData, /, *args: P.args, **kwargs: P.kwargs) -> T:
        limit_session()
        with interruptible(plpy):
            return enter(plpy, GD, *args, **kwargs)

    update_wrapper(run, function)
    return run


def answering(
    function: Callable[Concatenate[Session, P], object],
) -> Callable[Concatenate[PlPy, GlobalData, P], Answered]:
    """Make `function(session, ...)` an entry point of tenants that returns an error of class ML in its last column,
    `failure`."""

    def run(plpy: PlPy, GD: GlobalData, /, *args: P.args, **kwargs: P.kwargs) -> Answered:
        return answered_by(plpy, lambda: function(Session.of(plpy, GD), *args, **kwargs))

    update_wrapper(run, function)
    return run


def answered_by(plpy: PlPy, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Answered:
    """Call a function, such as a pure core: errors of class ML are values, and a cancel ends it wherever it is."""
    limit_session()
    with interruptible(plpy):
        return answered(function, *args, **kwargs)


def answered_apart(plpy: PlPy, module: str, name: str, *args: object) -> Answered:
    """Import a pure core and call it as `answered_by` does, from a procedure: without a snapshot, which would keep
    vacuums from removing dead rows for as long as that takes. A cancel is let through by a statement that takes one,
    so a commit follows each.
    """
    plpy.commit()
    return answered_by(_Apart(plpy), getattr(import_module(module), name), *args)


class _Apart:
    """A server's connection whose statements commit."""

    def __init__(self, plpy: PlPy) -> None:
        self._plpy = plpy

    def execute(self, *statement: Any) -> Any:
        """Execute a statement and commit."""
        result = self._plpy.execute(*statement)
        self._plpy.commit()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plpy, name)


def guarded_and_bounded(plpy: PlPy, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function as `guarded` does, for functions whose duration a tenant controls: a cancel ends it wherever it
    is.
    """
    limit_session()
    with interruptible(plpy):
        return guarded(plpy, function, *args, **kwargs)


def guarded(plpy: PlPy, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` and turn an error of class ML into an SQL error with its SQLSTATE, detail and hint.

    Errors are recognised by their `sqlstate`, so that the pure cores of the coordinator's package can be called as
    well.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        sqlstate = getattr(type(error), "sqlstate", None)
        if not (isinstance(sqlstate, str) and sqlstate.startswith("ML")):
            raise
        text = {key: getattr(error, key) for key in ("detail", "hint") if getattr(error, key, None)}
        message = str(getattr(error, "message", error))
    plpy.error(message, sqlstate=sqlstate, **text)
