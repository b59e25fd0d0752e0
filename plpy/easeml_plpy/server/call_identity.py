"""The current role and the current statement, as the server's process knows them.

It calls functions of the server directly, because an SQL statement with the same result takes longer than most
predictions of a row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple


class Moment(NamedTuple):
    """The number of the current role, and when statement and transaction began: a procedure that commits has several
    transactions in one statement."""

    role: int
    statement: int
    transaction: int


SOURCES: tuple[tuple[str, Any], ...] = (
    ("GetUserId", ctypes.c_uint32),
    ("GetCurrentStatementStartTimestamp", ctypes.c_int64),
    ("GetCurrentTransactionStartTimestamp", ctypes.c_int64),
)
"""What SQL calls current_user, statement_timestamp() and transaction_timestamp(), with their types in C."""


@cache
def _functions() -> tuple[Callable[[], int], ...]:
    """Return the functions of this process, which is one of the server's. Raises AttributeError in any other."""
    process = ctypes.PyDLL(None)
    functions = []
    for name, kind in SOURCES:
        function = getattr(process, name)
        function.argtypes, function.restype = (), kind
        functions.append(function)
    return tuple(functions)


def moment() -> Moment:
    """Return the moment of this call."""
    role, statement, transaction = _functions()
    return Moment(role(), statement(), transaction())
