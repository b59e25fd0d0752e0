"""Measurements of one architecture on devices: rounds of pilots, started one after another."""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.decisions.trial_groups.measuring import Measuring, Round, Sample
from easeml_db.words.topology import Device

MEASURED_SECONDS = 1.0  # for which a pilot repeats iterations


@dataclass(frozen=True)
class TrialSlots:
    """A trial and the slots for its next unit; with `measured_seconds` for a pilot that measures for so long."""

    trial_id: int
    slot_ids: tuple[int, ...]
    measured_seconds: float = 0.0


class DeviceProfiler:
    """Devices on which one architecture is measured: trials are packed on the first."""

    def __init__(self, architecture: str, devices: tuple[Device, ...], measuring: Measuring) -> None:
        self.architecture, self.devices, self.measuring = architecture, devices, measuring
        self._asked: Round | None = None
        self._running: set[int] = set()
        self._samples: list[Sample] = []

    def held_slots(self) -> set[int]:
        """Return the slots to keep free for the round that is under way, or comes next."""
        asked = self._asked if self._running else self.next_round()
        return set() if asked is None else set(self.slots_for(asked))

    @property
    def is_under_way(self) -> bool:
        """Whether pilots are not answered yet."""
        return bool(self._running)

    def next_round(self) -> Round | None:
        """Return what to run once the device is free."""
        return self.measuring.next_round()

    def slots_for(self, asked: Round) -> list[int]:
        """Return the slots that must be free for a round: those of all devices that it uses."""
        return [slot for device in self.devices[: asked.n_devices] for slot in device.slot_ids]

    def begin(self, asked: Round) -> list[TrialSlots]:
        """Start a round: a pilot on each slot of the first device, or one over a slot of each device."""
        self._asked, self._running, self._samples = asked, set(asked.trial_ids), []
        if asked.n_devices > 1:
            first = tuple(device.slot_ids[0] for device in self.devices[: asked.n_devices])
            return [TrialSlots(asked.trial_ids[0], first, MEASURED_SECONDS)]
        slots = zip(asked.trial_ids, self.devices[0].slot_ids, strict=False)
        return [TrialSlots(trial, (slot,), MEASURED_SECONDS) for trial, slot in slots]

    def over(self, trial_id: int, sample: Sample | None) -> None:
        """Record the result of a pilot, and after the last pilot of a round the result of the round."""
        if trial_id not in self._running or self._asked is None:
            return
        self._running.discard(trial_id)
        self._samples += [sample] if sample is not None else []
        if not self._running:
            self.measuring.record(self._asked, self._samples)
