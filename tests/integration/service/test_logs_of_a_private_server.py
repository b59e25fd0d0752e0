"""The coordinator of a private server keeps PostgreSQL's log and its own short while both are written."""

from __future__ import annotations

import time

import psycopg
import pytest

from easeml_db.local.log_files import MAX_BYTES
from easeml_db.local.private_files import open_to_append
from easeml_db.local.server import Embedded
from easeml_db.local.waiting import wait_for_coordinator


def test_long_logs_are_shortened_and_go_on(own_server: Embedded) -> None:
    own_server.prepare(n_slots=2)
    logs = [own_server.folder / name for name in ("server.log", "coordinator.log")]
    for log in logs:
        with open(open_to_append(log), "a", encoding="utf-8") as file:
            file.write("long ago\n" * (MAX_BYTES // 8))
    own_server.start_coordinator()
    wait_for_coordinator(own_server)
    deadline = time.monotonic() + 60
    while any(log.stat().st_size >= MAX_BYTES for log in logs) and time.monotonic() < deadline:
        time.sleep(0.05)
    for log in logs:
        assert log.stat().st_size < MAX_BYTES / 2
        assert "long ago" in log.with_name(f"{log.name}.1").read_text(encoding="utf-8")
    with psycopg.connect(own_server.dsn()) as session, pytest.raises(psycopg.errors.UndefinedTable):
        session.execute("TABLE written_after_it")
    own_server.stop_coordinator()
    assert "written_after_it" in logs[0].read_text(encoding="utf-8")
    assert "coordinator has stopped" in logs[1].read_text(encoding="utf-8")
    assert {path.stat().st_mode & 0o777 for path in own_server.folder.glob("*.log*")} == {0o600}
