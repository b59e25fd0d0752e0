"""Forks coordinators that find all that they import in memory; the socket whose number is the argument asks for them.

Each message is a JSON object. `{"arguments", "environment"}`, with a file for what it prints: fork a coordinator,
answer its process number. `{"ended"}`, a process number: answer its exit status, null while it runs.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys

import scipy.optimize
import scipy.special  # noqa: F401

# Commands import themselves when they are called: this one here, with all that it needs.
import easeml_db.cli.coordinator  # noqa: F401
from easeml_db.cli import main

MESSAGE_BYTES = 1 << 16


def forked(asks: socket.socket) -> list[str] | None:
    """Answer until the tests are over; return in each coordinator, with its arguments."""
    while True:
        message, files, _, _ = socket.recv_fds(asks, MESSAGE_BYTES, 1)
        if not message:
            return None
        asked = json.loads(message)
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                become(asked["environment"], files[0])
                asks.close()
                return list(asked["arguments"])
            os.close(files[0])
        asks.send(json.dumps(answer).encode())


def become(environment: dict[str, str], log: int) -> None:
    """Take on an environment, and print into a file."""
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if __name__ == "__main__":
    gc.freeze()
    if (arguments := forked(socket.socket(fileno=int(sys.argv[1])))) is not None:
        main(arguments)
