"""Removal of the CONTEXT lines that the server adds to an error, one for each of our functions under way.

They tell users nothing, and bury the message. SQL cannot leave them out: the server asks every function under way for a
line, at the moment of the error, along a linked list of its own (`error_context_stack`, elog.h). Here the list is cut
below the statement that calls `hide_context`. When that statement ends the server goes on with an empty list, so the
RAISE after it has no lines. Code that catches the error, and the next statement of the client, get their own list back.
"""

from __future__ import annotations

import ctypes

from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.session import Session


class _Frame(ctypes.Structure):
    """ErrorContextCallback of elog.h."""


_Frame._fields_ = [
    ("previous", ctypes.POINTER(_Frame)),
    ("callback", ctypes.c_void_p),
    ("argument", ctypes.c_void_p),
]


@entry_point()
def hide_context(session: Session) -> None:
    """Let errors of the calling function have no context: its caller raises one next."""
    try:
        python = ctypes.POINTER(_Frame).in_dll(ctypes.CDLL(None), "error_context_stack")
    except (OSError, ValueError):  # a server that does not show the list keeps its context
        return
    statement = python.contents.previous if python else None
    if statement:
        statement.contents.previous = ctypes.POINTER(_Frame)()
