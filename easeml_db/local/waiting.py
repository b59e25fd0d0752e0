"""Waiting for what starts beside the private server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from easeml_db.errors import NotReady
from easeml_db.local.log_files import last_lines
from easeml_db.local.server import Embedded
from easeml_db.postgres.connection import connect_now


def wait_for_coordinator(server: Embedded, timeout_seconds: float = 60.0) -> None:
    """Wait until the coordinator has given a sign of life. Raises NotReady with the end of its log."""
    deadline = time.monotonic() + timeout_seconds
    with connect_now(server.dsn()) as connection:
        while time.monotonic() < deadline:
            row = connection.execute("SELECT easeml.has_live_coordinator() AS is_alive").fetchone()
            if row and row["is_alive"]:
                return
            if server.coordinator_pid() is None:
                break
            time.sleep(0.1)
    log = server.folder / "coordinator.log"
    raise NotReady("the coordinator did not start", detail=last_lines(log), hint=f"Its log: {log}")


@contextmanager
def running_coordinator(server: Embedded) -> Iterator[None]:
    """Keep a coordinator running for a block, which begins once it serves; stop it at the end."""
    server.start_coordinator()
    try:
        wait_for_coordinator(server)
        yield
    finally:
        server.stop_coordinator()
