"""The console's web server: connections that say nothing, or half a request, take no threads and keep nobody out."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from easeml_db.console.server import N_THREADS

N_IDLE = 60
HOST = "127.0.0.1"
CONSOLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
from easeml_db.cli import main
sys.argv = ["easeml", "console", "--dsn", "dbname=nowhere", "--port", sys.argv[1]]
main()
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def console() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`easeml console` and its port. It asks the server for nothing before somebody logs in."""
    for _ in range(5):  # somebody else may take a free port meanwhile
        port = free_port()
        command = [sys.executable, "-c", CONSOLE, str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        if "/login?key=" in process.stdout.readline():
            break
        process.communicate()
    yield process, port
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in said


def login_status(port: int) -> int:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", "/login?key=wrong")
    status = connection.getresponse().status
    connection.close()
    return status


def n_threads(process: subprocess.Popen[str]) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("Threads:")).split()[1])


@pytest.mark.parametrize(
    "said", [b"", b"GET /login HTTP/1.1\r\nHost: ", b"POST /login HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]
)
def test_silent_connections_take_no_thread_and_keep_nobody_out(
    console: tuple[subprocess.Popen[str], int], said: bytes
) -> None:
    process, port = console
    with ExitStack() as held:
        for _ in range(N_IDLE):
            held.enter_context(socket.create_connection((HOST, port))).sendall(said)
        assert login_status(port) == 403
        assert n_threads(process) <= N_THREADS + 4
