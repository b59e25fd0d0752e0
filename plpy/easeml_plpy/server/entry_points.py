"""The boundary to PL/Python: a body of two lines imports a function and calls it with `plpy, GD`.

An entry point takes a `Session` instead. A pure core, which needs none, is called by a function of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from easeml_plpy.server.errors import unexpected
from easeml_plpy.server.failures import Answered, answered, is_fault
from easeml_plpy.server.interrupts import interruptible
from easeml_plpy.server.memory import limit_session
from easeml_plpy.server.plpython import GlobalData, PlPy
from easeml_plpy.server.session import Session

P = ParamSpec("P")
T = TypeVar("T")


@overload
def entry_point(
    *, of: type[Session] = ..., for_tenants: bool = ..., is_pinned: bool = ..., returns_failure: Literal[False] = ...
) -> Callable[[Callable[Concatenate[Session, P], T]], Callable[Concatenate[PlPy, GlobalData, P], T]]: ...


@overload
def entry_point(
    *, of: type[Session] = ..., for_tenants: bool = ..., is_pinned: bool = ..., returns_failure: Literal[True]
) -> Callable[[Callable[Concatenate[Session, P], object]], Callable[Concatenate[PlPy, GlobalData, P], Answered]]: ...


def entry_point(
    *,
    of: type[Session] = Session,
    for_tenants: bool = False,
    is_pinned: bool = False,
    returns_failure: bool = False,
) -> Any:
    """Make `function(session, ...)` callable as `function(plpy, GD, ...)`.

    Its errors of class ML become SQL errors. Keywords say what else holds.
    of: the extension whose session it takes.
    for_tenants: it has limits of memory, and a cancel ends it wherever it is.
    is_pinned: it is the body of a procedure, which cannot pin its search_path itself.
    returns_failure: it is for tenants, and returns an error of class ML in its last column, `failure`.
    """
    call = answered_by if returns_failure else guarded_and_bounded if for_tenants else guarded

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        def body(plpy: PlPy, GD: GlobalData, args: Any, kwargs: Any) -> object:
            session = of.of(plpy, GD)
            if is_pinned:
                session.pin()
            return function(session, *args, **kwargs)

        def run(plpy: PlPy, GD: GlobalData, /, *args: Any, **kwargs: Any) -> object:
            return call(plpy, body, plpy, GD, args, kwargs)

        update_wrapper(run, function)
        return run

    return decorate


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
    return answered_by(_CommittingServer(plpy), getattr(import_module(module), name), *args)


class _CommittingServer:
    """A server's connection that commits after each statement."""

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
        told = unexpected(error) if is_fault(error) else error
        sqlstate = getattr(type(told), "sqlstate", None)
        if not (isinstance(sqlstate, str) and sqlstate.startswith("ML")):
            raise
        text = {key: getattr(told, key) for key in ("detail", "hint") if getattr(told, key, None)}
        message = str(getattr(told, "message", told))
    plpy.error(message, sqlstate=sqlstate, **text)
