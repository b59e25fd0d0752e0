"""Waiting for what starts beside the private server."""

from __future__ import annotations

import time

from easeml_db.errors import NotReady
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
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:] if log.exists() else []
    raise NotReady("the coordinator did not start", detail="\n".join(tail), hint=f"Its log: {log}")
