"""Points at which a cancel can take effect: the server can interrupt PL/Python only while it executes SQL."""

from __future__ import annotations

import time

from easeml_plpy.server.session import Session


class SessionPause:
    """A pause that, once every tenth of a second, executes a trivial statement and commits.

    The statement lets a cancel, a timeout or a lost client through. The commit releases the snapshot, so that a long
    unit does not keep vacuum from removing dead rows.
    """

    def __init__(self, session: Session, interval_seconds: float = 0.1) -> None:
        self._session = session
        self._interval_seconds = interval_seconds
        self._next = time.monotonic() + interval_seconds

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._session.execute("SELECT 1")
        self._session.commit()
        self._next = time.monotonic() + self._interval_seconds
