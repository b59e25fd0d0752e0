"""Procedures that commit: they cannot run inside a transaction, and raise that error before they do anything."""

from __future__ import annotations

import json
import time

from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.failures import told_by
from easeml_plpy.server.session import Session

MOST_SECONDS = 0.5


@entry_point(for_tenants=True)
def commit_first(session: Session, message: str, call: str, failure: str | None) -> tuple[str | None]:
    """Commit; return the error with this message if the server refuses, as it does inside a transaction."""
    try:
        session.commit()
    except session.SPIError:
        return (json.dumps(told_by(_inside_transaction(message, call))),)
    return (None,)


@entry_point(for_tenants=True)
def rest(session: Session, seconds: float) -> None:
    """Commit, then sleep without a snapshot for a number of seconds, at most half a second, because nothing can wake
    Python up.
    """
    session.let_go()
    time.sleep(max(0.0, min(seconds, MOST_SECONDS)))


def _inside_transaction(message: str, call: str) -> NotAllowed:
    return NotAllowed(
        message,
        hint=f"Commit first, then say {call} as a statement of its own; drivers need autocommit for that:"
        ' psycopg autocommit=True, SQLAlchemy isolation_level="AUTOCOMMIT".',
    )
