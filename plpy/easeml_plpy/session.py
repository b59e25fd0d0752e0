"""The edge between a PL/Python body and the package: versions, errors, and the parameters that SQL hands over."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from . import __version__
from .errors import VersionMismatch
from .failures import Failure, answered

T = TypeVar("T")


def guarded(plpy: Any, function: Callable[..., T], *arguments: Any) -> T:
    """Call `function` and turn an error of class ML into an SQL error with its SQLSTATE, detail and hint.

    Errors are told by their `sqlstate`, so that the pure cores of the coordinator's package can be called as well.
    """
    try:
        return function(*arguments)
    except Exception as error:
        sqlstate = getattr(type(error), "sqlstate", None)
        if not (isinstance(sqlstate, str) and sqlstate.startswith("ML")):
            raise
        text = {key: getattr(error, key) for key in ("detail", "hint") if getattr(error, key, None)}
        message = str(getattr(error, "message", error))
    plpy.error(message, sqlstate=sqlstate, **text)
    raise AssertionError("plpy.error returned")


def entry_point(function: Callable[..., T]) -> Callable[..., T]:
    """Make `function(plpy, GD, ...)` an entry point: versions are compared once a session, errors are translated."""

    @wraps(function)
    def run(plpy: Any, GD: dict[str, Any], *arguments: Any) -> T:
        def checked() -> T:
            check_version(plpy, GD)
            return function(plpy, GD, *arguments)

        return guarded(plpy, checked)

    return run


def answering(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...] | Failure]:
    """Make `function(plpy, GD, ...)` an entry point that returns an error of class ML in its last column, `failure`."""

    @wraps(function)
    def run(plpy: Any, GD: dict[str, Any], *arguments: Any) -> tuple[Any, ...] | Failure:
        def checked() -> Any:
            check_version(plpy, GD)
            return function(plpy, GD, *arguments)

        return answered(checked)

    return run


def check_version(plpy: Any, GD: dict[str, Any]) -> None:
    """Refuse to work when the extension and the Python package are of different versions.

    An open session keeps the code that it imported first, so an upgrade shows only in new sessions.
    """
    if GD.get("easeml_version") == __version__:
        return
    installed = plpy.execute("SELECT easeml.version() AS version")[0]["version"]
    if installed != __version__:
        raise VersionMismatch(
            f"the extension easeml is {installed}, but this session runs the Python package {__version__}",
            hint="Install the same version of both, run ALTER EXTENSION easeml UPDATE, and open new sessions.",
        )
    GD["easeml_version"] = __version__


def query(plpy: Any, GD: dict[str, Any], sql: str, types: list[str], values: list[Any]) -> Any:
    """Execute a parametrised statement whose plan the session keeps."""
    return plpy.execute(prepared(plpy, GD, sql, types), values)


def prepared(plpy: Any, GD: dict[str, Any], sql: str, types: list[str]) -> Any:
    """Return the plan of a statement; the session keeps it."""
    plans = GD.setdefault("easeml_plans", {})
    if sql not in plans:
        plans[sql] = plpy.prepare(sql, types)
    return plans[sql]


def from_json(value: str | None) -> Any:
    """Read a jsonb argument, which PL/Python hands over as text."""
    return None if value is None else json.loads(value)
