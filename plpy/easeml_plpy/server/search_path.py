"""The search_path in use, as the server's process knows it.

It is read from the server's memory (`namespace_search_path`, namespace.h), because to ask for it by SQL takes as long
as to set it: a unit has two transactions, and the sessions of slots begin with the path that is wanted.
"""

from __future__ import annotations

import ctypes
from functools import cache

PINNED = (b"pg_catalog, pg_temp", b"pg_catalog,pg_temp")


def is_pinned() -> bool:
    """Return whether names are found in pg_catalog only; False as well where the server does not show its setting."""
    setting = _setting()
    return setting is not None and setting.value in PINNED


@cache
def _setting() -> ctypes.c_char_p | None:
    try:
        return ctypes.c_char_p.in_dll(ctypes.CDLL(None), "namespace_search_path")
    except (OSError, ValueError):
        return None
