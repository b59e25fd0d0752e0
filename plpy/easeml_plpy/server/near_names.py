"""Hints for a name that does not exist: the names that do."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Session

MOST_NAMES = 20


@entry_point(for_tenants=True)
def near_names(session: Session, given: str | None, known: Sequence[str] | None) -> str | None:
    """Return a hint with the nearest names, then some of all; None if there are none."""
    return names_hint(given, known or ())


def names_hint(given: str | None, names: Sequence[str]) -> str | None:
    """Return the hint as a pure function of its arguments."""
    return f"{question(given, names)}You may use: {some_of(sorted(names))}." if names else None


def columns_hint(given: str | None, names: Sequence[str]) -> str:
    """Return the hint for a column that a relation does not have: the nearest columns, then some of all."""
    return f"{question(given, names)}It has: {some_of(names)}."


def question(given: str | None, names: Sequence[str]) -> str:
    """Return a question with the nearest names, of any case and tenant; empty if none is near."""
    meant = {name.partition(".")[2].lower() or name.lower(): name for name in names}
    meant |= {name.lower(): name for name in names}
    near = dict.fromkeys(meant[name] for name in get_close_matches((given or "").lower(), meant, n=3))
    return "Did you mean " + " or ".join(repr(name) for name in near) + "? " if near else ""


def some_of(names: Sequence[str]) -> str:
    """Write the first of many names, and how many more there are."""
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + rest
