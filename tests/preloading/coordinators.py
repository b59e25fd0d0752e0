"""Forks processes that find all that they import in memory: coordinators, or methods of the experiments, as the second
argument says. The socket whose number is the first one asks for them.

Each message is a JSON object. `{"arguments", "environment"}`, with a file for what it prints: fork a process, answer
its number. `{"ended"}`, a process number: answer its exit status, null while it runs.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from importlib import import_module
from types import ModuleType

MESSAGE_BYTES = 1 << 16
# Commands and methods import themselves when they are called: these here, with all that they need. What Ray starts does
# not fork.
NEEDED = {
    "coordinators": ("scipy.optimize", "scipy.special", "easeml_db.cli.server.coordinator", "easeml_db.cli"),
    "methods": (
        "easeml_experiments.peers.sequential", "easeml_experiments.peers.tasks", "easeml_experiments.peers.collective",
        "easeml_experiments.procedures.process_workers", "easeml_experiments.peers.__main__",
    ),
}  # fmt: skip


def imported(kind: str) -> ModuleType:
    """Import all that processes of a kind need; return the module with their `main`."""
    return [import_module(name) for name in NEEDED[kind]][-1]


def forked(asks: socket.socket) -> list[str] | None:
    """Answer until the tests are over; return in each process, with its arguments."""
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
    program = imported(sys.argv[2])
    gc.freeze()
    if (arguments := forked(socket.socket(fileno=int(sys.argv[1])))) is not None:
        if sys.argv[2] == "methods":
            os.setsid()
        sys.argv[1:] = arguments
        program.main()
