"""What watches a coordinator: counters, the log and its rotation, the text for Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from easeml_db.coordinator.counters import Counters
from easeml_db.coordinator.ports.messages import (
    InstanceFailed,
    Member,
    Message,
    Order,
    Piloted,
    RunChanged,
    SlotReady,
    SlotStuck,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.errors import NotAllowed, SlotLost, TrialFailed
from easeml_db.local import journal, metrics
from easeml_db.local.journal import Journal
from easeml_db.local.metrics import Metrics, Numbers
from easeml_db.words.training_unit import TrainingUnit


def order(trial_id: int = 5, members: tuple[Member, ...] = ()) -> Order:
    unit = TrainingUnit(3, trial_id, 1, step=0, kind="train", epoch=1, position=0, partition_number=0)
    return Order(unit, seed=0, slot_id=7, lease_number=1, attempt=2, members=members)


def other(trial_id: int, slot_id: int) -> Member:
    return Member(order(trial_id).unit, 0, slot_id)


@pytest.mark.parametrize(
    ("message", "counted"),
    [
        (UnitRecorded(order(), 2.5), {"units_recorded": 1, "unit_seconds": 2.5}),
        (UnitRecorded(order(members=(other(5, 8),)), 2.0), {"units_recorded": 2, "unit_seconds": 4.0}),
        (
            UnitRecorded(order(members=(other(6, 7),)), 2.0, failures={6: TrialFailed("no")}),
            {"units_recorded": 1, "units_failed": 1, "unit_seconds": 2.0},
        ),
        (UnitFailed(order(), TrialFailed("no")), {"units_failed": 1}),
        (UnitFailed(order(), SlotLost("gone")), {"units_lost": 1}),
        (Piloted(order(), 1.0, 1.0), {"pilots": 1}),
        (SlotStuck(order(), "stuck", (7,)), {"slots_stuck": 1}),
        (RunChanged(3), {"runs_changed": 1}),
        (InstanceFailed(1, "no"), {"instances_failed": 1}),
        (SlotReady(7), {}),
    ],
)  # fmt: skip
def test_messages_are_counted_by_what_they_tell(message: Message, counted: dict[str, float]) -> None:
    counters = Counters()
    counters.count(message)
    assert {name: value for name, value in counters.values().items() if value} == counted


def test_a_failure_is_a_line_with_run_and_trial_for_people_and_for_programs(tmp_path: Path) -> None:
    for is_json in (False, True):
        path = tmp_path / str(is_json)
        written = Journal(path, is_json=is_json)
        written.heard(UnitFailed(order(), TrialFailed("the loss is \x1b[31mno number\nand more")))
        written.heard(UnitFailed(order(), SlotLost("canceling statement due to user request")))
        written.heard(UnitRecorded(order(), 1.0))
        written.heard(SlotReady(7))
        written.heard(RunChanged(3))
        written.close()
        line, lost, changed = path.read_text(encoding="utf-8").splitlines()
        assert "failed" not in lost
        assert "lost" in lost
        if is_json:
            found = json.loads(line)
            assert (found["event"], found["run_id"], found["trial_id"], found["slot_id"]) == ("failed", 3, 5, 7)
            assert found["attempt"] == 2
            assert (json.loads(changed)["event"], json.loads(changed)["run_id"]) == ("run", 3)
        else:
            assert changed.endswith(" run 3: it is new, has changed or is over")
            assert "failed: run 3 trial 5 slot 7 attempt 2: the loss is" in line
        assert "\x1b" not in line


def test_files_take_turns_and_are_the_coordinators_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 1000)
    written = Journal(tmp_path / "log")
    for number in range(200):
        written.say(f"line {number} {'x' * 40}")
    written.close()
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["log", "log.1", "log.2", "log.3", "log.4"]
    assert all(path.stat().st_size <= 1000 and path.stat().st_mode & 0o077 == 0 for path in files)
    assert "line 199" in files[0].read_text(encoding="utf-8")


def test_a_log_that_is_a_link_or_has_no_folder_is_refused(tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", tmp_path / "log")
    for path in (tmp_path / "log", tmp_path / "nowhere" / "log"):
        with pytest.raises(NotAllowed):
            Journal(path)
    assert not (tmp_path / "elsewhere").exists()


def test_the_page_tells_counters_also_without_a_server_and_no_text_of_anybody() -> None:
    alone = page_of(Counters(units_recorded=3), {})
    assert "easeml_units_recorded_total 3.0\n" in alone
    assert "easeml_database_up 0.0\n" in alone
    row = {"is_alive": True, "version": "0.2.0", "oldest_queued_seconds": None, "n_slots": 2, "lease_number": 4}
    text = page_of(Counters(), row)
    assert "easeml_is_alive 1.0\n" in text
    assert "easeml_n_slots 2.0\n" in text
    assert "version" not in text
    assert "oldest" not in text


def page_of(counters: Counters, health: dict[str, object]) -> str:
    return generate_latest(Numbers(counters.values(), health)).decode()


def test_silent_connections_take_no_more_than_their_share_of_the_coordinators_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "REQUEST_SECONDS", 3600.0)

    async def scene() -> None:
        server = await asyncio.start_server(Metrics("host=/nowhere", Counters()).answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(metrics.MAX_AT_ONCE)]
        assert await asked(port) == b"", "one too many is closed at once"
        for _, writer in silent:
            writer.close()
        while not (await asked(port)).startswith(b"HTTP/1.0 404"):  # once the others are known to be gone
            await asyncio.sleep(0.01)
        server.close()

    async def asked(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET /nothing HTTP/1.0\r\n")
            said = await reader.read()
            writer.close()
            return said
        return b""

    asyncio.run(asyncio.wait_for(scene(), 60))
