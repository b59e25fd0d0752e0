"""Failures that a user sees as one line: errors of the project, of the machine and of the driver."""

from __future__ import annotations

import sys

from easeml_db.errors import EasemlError, InvalidArgument

HINT = "easeml --debug COMMAND shows where."


def told_in_a_line(error: Exception) -> EasemlError | None:
    """Return the error to print; None for a fault of the program, which needs its traceback."""
    if isinstance(error, EasemlError):
        return error
    if isinstance(error, OSError):
        return _machine_error(error)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":  # bytes of an argument
        return InvalidArgument(f"expected text in UTF-8, got {error.object}", hint=HINT)
    driver = sys.modules.get("psycopg")  # a command that has not imported it had no error of it
    if driver is None or not isinstance(error, driver.Error):
        return None
    from easeml_db.postgres.connection import server_error

    problem = server_error(error)
    return type(problem)(problem.message or type(error).__name__, detail=problem.detail, hint=problem.hint or HINT)


def _machine_error(error: OSError) -> EasemlError:
    what = error.strerror or str(error) or type(error).__name__
    place = error.filename2 if error.filename2 is not None else error.filename
    return EasemlError(what if place is None else f"{place}: {what}", hint=HINT)
