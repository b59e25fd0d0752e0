"""What to say of a name that does not exist: which names there are."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from .session import Session, tenant_entry_point

MOST_NAMES = 20


@tenant_entry_point
def near_names(session: Session, given: str | None, known: Sequence[str] | None) -> str | None:
    """Return a hint with the nearest names, then some of all; None where there are none."""
    return names_hint(given, known or ())


def names_hint(given: str | None, known: Sequence[str]) -> str | None:
    """Return the hint as a pure function of its arguments."""
    if not known:
        return None
    meant = {name.partition(".")[2] or name: name for name in known} | {name: name for name in known}
    near = dict.fromkeys(meant[name] for name in get_close_matches(given or "", meant, n=3))
    question = "Did you mean " + " or ".join(repr(name) for name in near) + "? " if near else ""
    rest = f" and {len(known) - MOST_NAMES} more" if len(known) > MOST_NAMES else ""
    return f"{question}You may use: {', '.join(sorted(known)[:MOST_NAMES])}{rest}."
