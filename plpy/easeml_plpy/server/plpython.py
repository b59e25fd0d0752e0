"""The part of PL/Python's module `plpy` that this package uses, as types.

The server hands `plpy` to each body; nothing imports it. A test may hand over anything that has these methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NewType, NoReturn, Protocol, TypeAlias

SqlValue: TypeAlias = "bool | int | float | str | bytes | memoryview | Sequence[SqlValue] | None"
"""What PL/Python converts to a parameter of a statement."""

Row: TypeAlias = Mapping[str, Any]
"""A row by column. The statement decides the types of its values, so only `Statement.row` should look inside."""

GlobalData: TypeAlias = MutableMapping[str, object]
"""PL/Python's `GD`: what the functions of one session share."""

PreparedPlan = NewType("PreparedPlan", object)


class Result(Protocol):
    """The rows of a statement, all in memory."""

    def __getitem__(self, index: int, /) -> Row: ...

    def __iter__(self) -> Iterator[Row]: ...

    def __len__(self) -> int: ...

    def nrows(self) -> int:
        """Count the rows that the statement returned or changed."""


class Cursor(Protocol):
    """The rows of a statement, some at a time."""

    def fetch(self, count: int, /) -> Result:
        """Return up to a number of further rows; none after the last."""

    def close(self) -> None:
        """Free the cursor before the transaction ends."""


class PlPy(Protocol):
    """PL/Python's module."""

    SPIError: type[Exception]

    def prepare(self, query: str, argtypes: Sequence[str], /) -> PreparedPlan:
        """Plan a statement with parameters of these SQL types."""

    def execute(self, query: str | PreparedPlan, arguments: Sequence[SqlValue] = ..., /) -> Result:
        """Execute a statement or a plan. Raises SPIError; here the server lets a cancel through."""

    def cursor(self, query: str | PreparedPlan, arguments: Sequence[SqlValue] = ..., /) -> Cursor:
        """Open a cursor over a statement or a plan."""

    def commit(self) -> None:
        """Commit; the next statement begins a transaction. Only in procedures."""

    def subtransaction(self) -> AbstractContextManager[object]:
        """Return a context whose statements are undone if it raises."""

    def notice(self, message: str, /) -> None:
        """Send a notice to the client."""

    def warning(self, message: str, /, **fields: str) -> None:
        """Send a warning to the client; fields: detail, hint."""

    def error(self, message: str, /, **fields: str) -> NoReturn:
        """End the call with an SQL error; fields: sqlstate, detail, hint."""
