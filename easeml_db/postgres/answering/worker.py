"""A process that answers one question after the other, until its input ends or it is killed.

A question is pickled by the coordinator, and comes through a pipe that only these two processes have.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import struct
import sys
from collections.abc import Callable
from types import FrameType
from typing import IO, Any

from easeml_db.errors import EasemlError
from easeml_db.postgres.answering.outcomes import AskAgain

LENGTH = struct.Struct("!Q")
MEMORY_BYTES = 2 << 30  # address space; what numpy, scipy and optuna map is 1 GB of it


class TimeIsUp(BaseException):
    """The question has used its processor time. Not an Exception, so that no handler catches it."""


def send(pipe: IO[bytes], body: bytes) -> None:
    """Write a message."""
    pipe.write(LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """Read a message; None where the pipe has ended."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = pipe.read(length)
    return body if len(body) == length else None


def main() -> None:
    """Answer what arrives on standard input; what else is printed goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, _end)
    gc.freeze()
    while (asked := receive(sys.stdin.buffer)) is not None:
        send(answers, _answer(asked))


def _end(number: int, frame: FrameType | None) -> None:
    raise TimeIsUp


def _answer(asked: bytes) -> bytes:
    """Return (whether it is an error, the answer or the error), pickled."""
    seconds = 0.0
    try:
        seconds, question = pickle.loads(asked)  # noqa: S301 - our own coordinator wrote it
        return pickle.dumps((False, _within(seconds, question)))
    except TimeIsUp:
        return _error(AskAgain(f"it takes more than {seconds:g} s of processor time", is_slow=True))
    except MemoryError:  # the memory may be that of earlier questions
        return _error(AskAgain(f"it takes more than {MEMORY_BYTES >> 20} MB of memory"))
    except Exception as error:  # noqa: BLE001 - the coordinator raises it
        return _error(error)


def _within(seconds: float, question: Callable[[], Any]) -> Any:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return question()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _error(error: Exception) -> bytes:
    try:
        body = pickle.dumps((True, error))
        pickle.loads(body)  # noqa: S301 - some errors cannot be made again from their arguments
    except Exception:  # noqa: BLE001 - whatever such an error raises
        return pickle.dumps((True, EasemlError(f"{type(error).__name__}: {error}")))
    return body


if __name__ == "__main__":
    main()
