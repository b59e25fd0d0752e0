"""Errors as values: a function answers with its columns, or with an error in the column `failure`.

An error that Python raises reaches the client with "plpy.Error:" before its message and a traceback below it, and
PL/pgSQL can catch it only in a subtransaction, at every call. So functions that users reach return it, and the
PL/pgSQL function that called them raises it with easeml.raise_failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import ParamSpec, TypeAlias

from easeml_plpy.server.errors import FAULTS, unexpected

P = ParamSpec("P")


class Failure(dict[str, str]):
    """A row whose column `failure` holds an error as JSON; its other columns are NULL."""

    def __missing__(self, column: str) -> None:
        return None


PASSING = ("57", "XX")
"""Classes of the server's errors that pass as they are: cancels and the ends of sessions; faults of the server."""
HINTS = {"42501": "Its owner, or an administrator, can GRANT your role the right."}
"""What to do about an error of the server that has no hint of its own, by SQLSTATE."""

Answered: TypeAlias = tuple[object, ...] | Failure
"""A row for PL/Python, which converts each column by its SQL type."""


def answered(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Answered:
    """Call `function` and return its column or columns with a NULL failure, or a Failure for an error that users cause:
    one of class ML, or of the server's."""
    try:
        answer = function(*args, **kwargs)
    except Exception as error:
        failure = told_by(error)
        if failure is None:
            raise
        return Failure(failure=json.dumps(failure))
    return (*answer, None) if isinstance(answer, tuple) else (answer, None)


def told_by(error: Exception) -> dict[str, str | None] | None:
    """Return SQLSTATE, message, detail and hint of an error that users cause, else None.

    The error is one of the project's own, recognised by its `sqlstate`, or comes from an SQL statement that Python
    executed.
    """
    error = unexpected(error) if is_fault(error) else error
    sqlstate: str | None = getattr(type(error), "sqlstate", None)
    message, detail, hint = (getattr(error, name, None) for name in ("message", "detail", "hint"))
    if hasattr(error, "spidata"):
        packed, detail, hint = error.spidata[:3]
        sqlstate, message = unpacked(packed), str(error)
        if sqlstate.startswith(PASSING):
            return None
    elif not isinstance(sqlstate, str) or not sqlstate.startswith("ML"):
        return None
    return {"sqlstate": sqlstate, "message": message, "detail": detail, "hint": hint or HINTS.get(sqlstate)}


def is_fault(error: Exception) -> bool:
    """Return whether an error shows a value that our code did not expect, and is none of the server's or of ours."""
    return isinstance(error, FAULTS) and not hasattr(error, "spidata") and not hasattr(type(error), "sqlstate")


def unpacked(code: int) -> str:
    """Return the characters of an SQLSTATE, which the server packs into a number: six bits each, the first lowest."""
    return "".join(chr(ord("0") + (code >> 6 * place & 0x3F)) for place in range(5))
