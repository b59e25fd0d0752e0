"""The coordinator's log: lines for people or JSON lines for programs, with run and trial, in rotating files."""

from __future__ import annotations

import datetime
import json
import logging
import logging.handlers
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from easeml_db.coordinator.ports.messages import (
    InstanceFailed,
    Message,
    Order,
    RunChanged,
    SlotStuck,
    SlotWaiting,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.errors import NotAllowed, SlotLost
from easeml_db.local.private_files import open_to_append
from easeml_db.words.visible_text import visible

MAX_BYTES, N_FILES = 10_000_000, 5


class Journal:
    """Writes a coordinator's messages, sent and received. Recorded units are written only on request."""

    def __init__(self, path: Path | None = None, *, is_json: bool = False, has_units: bool = False) -> None:
        self._handler = logging.StreamHandler(sys.stderr) if path is None else _file(path)
        self._is_json, self._has_units = is_json, has_units

    def say(self, text: str) -> None:
        """Write a line about the coordinator itself."""
        self._write("coordinator", text, {})

    def heard(self, message: Message) -> None:
        """Write a line about a message that may interest an operator."""
        match message:
            case UnitRecorded(order, seconds, _, failures):
                if self._has_units:
                    self._write("recorded", f"{order.unit.kind} recorded after {seconds:.3f} s", _unit(order))
                for one in order.by_trial():
                    if one.unit.trial_id in failures:
                        self._write("failed", str(failures[one.unit.trial_id]), _unit(one))
            case UnitFailed(order, error):
                # Nobody's fault: it was cancelled (also at the end of its run's time), or its session is gone.
                self._write("lost" if isinstance(error, SlotLost) else "failed", str(error), _unit(order))
            case SlotStuck(order, reason, slot_ids):
                self._write("stuck", reason, _unit(order) | {"slot_ids": list(slot_ids)})
            case SlotWaiting(slot_id, reason):
                self._write("waiting", reason, {"slot_id": slot_id})
            case InstanceFailed(instance_id, reason):
                self._write("instance failed", reason, {"instance_id": instance_id})
            case RunChanged(run_id):
                self._write("run", "it is new, has changed or is over", {"run_id": run_id})

    def close(self) -> None:
        """Close the file."""
        self._handler.close()

    def _write(self, event: str, text: str, facts: Mapping[str, Any]) -> None:
        stamp = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        if self._is_json:
            line = json.dumps({"at": stamp, "event": event, "message": text, **facts})
        else:
            about = " ".join(f"{name.removesuffix('_id')} {value}" for name, value in facts.items())
            head = about if about.startswith(event) else f"{event}: {about}"  # not twice that it is a run
            line = f"{stamp} {visible(text)}" if event == "coordinator" else f"{stamp} {head}: {visible(text)}"
        self._handler.emit(logging.LogRecord("easeml", logging.INFO, "", 0, line, None, None))


def _unit(order: Order) -> dict[str, Any]:
    unit = order.unit
    return {"run_id": unit.run_id, "trial_id": unit.trial_id, "slot_id": order.slot_id, "attempt": order.attempt}


class _Rotating(logging.handlers.RotatingFileHandler):
    """Opens its file for the coordinator's user alone, and follows no link."""

    def _open(self) -> Any:
        return open(open_to_append(Path(self.baseFilename)), "a", encoding="utf-8")


def _file(path: Path) -> _Rotating:
    if not path.parent.is_dir():
        raise NotAllowed(f"--log-file: there is no folder {path.parent}", hint="Make it, for the coordinator's user.")
    return _Rotating(path, maxBytes=MAX_BYTES, backupCount=N_FILES - 1, encoding="utf-8")
