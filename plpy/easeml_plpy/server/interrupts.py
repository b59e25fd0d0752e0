"""Cancels anywhere in Python code: the server itself interrupts PL/Python only while it executes SQL.

While an entry point that tenants call runs, a timer on the process's CPU time fires ten times a second. Python then
calls the handler below between two bytecodes, in whatever loop it is. The handler executes a trivial statement: there
the server ends the session (pg_terminate_backend) or raises the cancel or timeout, which leaves the loop as any
exception does. A CPU timer costs nothing while nothing is computed, and cannot be late on a busy machine. While the
server executes a statement for Python, the timer is off: the server handles cancels itself, and the handler must not
run. The statement may call PL/Python again, and the server converts that call's results after it has left the inner
function's SPI connection. A statement of ours at that moment would run on the connection of the outer function, and
free the memory of the statement that is under way there.

Units do not use it: they check for cancels themselves (cancellation.py), at points where they may also commit.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import ParamSpec, TypeVar

from easeml_plpy.server.plpython import PlPy

P = ParamSpec("P")
T = TypeVar("T")

INTERVAL_SECONDS = 0.1
IMPORTING = "<frozen importlib._bootstrap>"


class _Bell:
    """The handler of the timer, and the session that it asks; a process has one timer, so one of these."""

    def __init__(self) -> None:
        self.asked: PlPy | None = None
        self.cancel: Exception | None = None
        self.depth = 0
        self._is_hung = False

    def hang(self) -> None:
        """Install the handler, once; system calls that it interrupts restart."""
        if not self._is_hung:
            signal.signal(signal.SIGVTALRM, self.ring)
            signal.siginterrupt(signal.SIGVTALRM, False)
            self._is_hung = True

    def ring(self, number: int, frame: FrameType | None) -> None:
        """Let a cancel through, but not during an import: a half-imported module could not be imported again."""
        if self.asked is None or _is_importing(frame):
            return
        try:
            self.asked.execute("SELECT 1")
        except self.asked.SPIError as error:
            self.cancel = error
            raise


_bell = _Bell()


class _Interruptible:
    """The context manager of `interruptible`. It is not a generator, which would double the time to predict a row."""

    def __init__(self, plpy: PlPy) -> None:
        self._plpy = plpy

    def __enter__(self) -> None:
        if _bell.depth == 0:
            _bell.hang()
            _bell.cancel = None
            signal.setitimer(signal.ITIMER_VIRTUAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
        self._before, _bell.asked = _bell.asked, self._plpy
        _bell.depth += 1

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        _bell.depth -= 1
        _bell.asked = self._before
        if _bell.depth == 0:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        if kind is None and _bell.cancel is not None:  # raised where Python throws exceptions away, as in __del__
            raise _bell.cancel


def interruptible(plpy: PlPy) -> AbstractContextManager[None]:
    """Let a cancel, a timeout or the end of the session through while a block runs; blocks may be nested."""
    return _Interruptible(plpy)


def quietly(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the server while the timer cannot ring; it may again when the server has answered."""
    asked, _bell.asked = _bell.asked, None
    try:
        return call(*args, **kwargs)
    finally:
        _bell.asked = asked


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return True
        frame = frame.f_back
    return False
