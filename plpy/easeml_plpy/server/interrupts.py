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


class _InterruptTimer:
    """The handler of the timer, and the server that it asks; a process has one timer, so one of these."""

    def __init__(self) -> None:
        self.server: PlPy | None = None
        self.cancel: Exception | None = None
        self.depth = 0
        self._is_installed = False

    def install(self) -> None:
        """Install the handler, once; system calls that it interrupts restart."""
        if not self._is_installed:
            signal.signal(signal.SIGVTALRM, self.interrupt)
            signal.siginterrupt(signal.SIGVTALRM, False)
            self._is_installed = True

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Let a cancel through, but not during an import: a half-imported module could not be imported again."""
        if self.server is None or _is_importing(frame):
            return
        try:
            self.server.execute("SELECT 1")
        except self.server.SPIError as error:
            self.cancel = error
            raise


_timer = _InterruptTimer()


class _Interruptible:
    """The context manager of `interruptible`. It is not a generator, which would double the time to predict a row."""

    def __init__(self, plpy: PlPy) -> None:
        self._plpy = plpy

    def __enter__(self) -> None:
        if _timer.depth == 0:
            _timer.install()
            _timer.cancel = None
            signal.setitimer(signal.ITIMER_VIRTUAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
        self._before, _timer.server = _timer.server, self._plpy
        _timer.depth += 1

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        _timer.depth -= 1
        _timer.server = self._before
        if _timer.depth == 0:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        if kind is None and _timer.cancel is not None:  # raised where Python throws exceptions away, as in __del__
            raise _timer.cancel


def interruptible(plpy: PlPy) -> AbstractContextManager[None]:
    """Let a cancel, a timeout or the end of the session through while a block runs; blocks may be nested."""
    return _Interruptible(plpy)


def quietly(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the server while the timer does nothing; it works again when the server has answered."""
    server, _timer.server = _timer.server, None
    try:
        return call(*args, **kwargs)
    finally:
        _timer.server = server


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return True
        frame = frame.f_back
    return False
