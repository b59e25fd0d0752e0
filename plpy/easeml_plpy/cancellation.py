"""Letting a cancel through: the server can interrupt PL/Python only while it executes SQL."""

from __future__ import annotations

import time
from typing import Any


class Pause:
    """Called after every mini-batch; a tenth of a second apart it runs a trivial statement and commits.

    The statement lets a cancel, a timeout or a lost client through; the commit lets go of the snapshot, so that a
    long unit does not keep vacuum from removing dead rows.
    """

    def __init__(self, plpy: Any, interval_seconds: float = 0.1) -> None:
        self._plpy = plpy
        self._interval_seconds = interval_seconds
        self._next = time.monotonic() + interval_seconds

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._plpy.execute("SELECT 1")
        self._plpy.commit()
        self._next = time.monotonic() + self._interval_seconds
