"""Ctrl-C that Python would lose: it drops one that falls into a destructor or a weak reference's callback."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN_SECONDS = 0.01  # the callback has returned by then; if another one runs, the interrupt is sent once more


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Send an interrupt again that Python could not raise, until it is raised where the block can hear it."""
    before = sys.unraisablehook
    sender: threading.Timer | None = None

    def hear(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal sender
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
        elif sender is None or not sender.is_alive():  # several that are lost at once are one: the end is orderly
            sender = _sender()
            sender.start()

    sys.unraisablehook = hear
    try:
        yield
    finally:
        sys.unraisablehook = before


def _sender() -> threading.Timer:
    # Where a shell started the command with interrupts ignored, the one that was lost came from SIGTERM.
    number = signal.SIGINT if callable(signal.getsignal(signal.SIGINT)) else signal.SIGTERM
    sender = threading.Timer(AGAIN_SECONDS, signal.pthread_kill, (threading.main_thread().ident, number))
    sender.daemon = True
    return sender
