"""Where each run's partitions may be visited, and which devices a run may have, cached until slots, limits or the run
change.

A run's placement stays the same object as long as nothing changes; a new object means that the scheduler is made again.
"""

from __future__ import annotations

from collections.abc import Collection

from easeml_db.decisions.hopper.dispatch.reserved_slots import ReservedSlots
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.decisions.hopper.dispatch.tenant_limits import TenantLimits
from easeml_db.decisions.hopper.schedulers.contract import Placement
from easeml_db.words.run import Run
from easeml_db.words.topology import Device, Slot, devices_of


class Placements:
    """Placements and devices by run."""

    def __init__(self, board: SlotBoard, reserved: ReservedSlots, limits: TenantLimits) -> None:
        self._board, self._reserved, self._limits = board, reserved, limits
        self._placements: dict[int, Placement] = {}
        self._devices: dict[int, tuple[Device, ...]] = {}
        self._versions = (0, 0)  # of slots and limits

    def of(self, run: Run) -> Placement:
        """Return where a run's partitions may be visited."""
        self._forget_outdated()
        if run.run_id not in self._placements:
            slots = self._slots_for(run)
            in_service = {slot.slot_id: slot.segment_id for slot in slots}
            n_partitions, gathering = run.trials[0].n_partitions, run.gathering_segments
            self._placements[run.run_id] = Placement(n_partitions, in_service, run.holders, gathering)
        return self._placements[run.run_id]

    def devices_of(self, run: Run, taken: Collection[int]) -> tuple[Device, ...]:
        """Return the devices that a run may have; choose others if older runs have since taken all of these."""
        self._forget_outdated()
        if run.run_id not in self._devices:
            self._devices[run.run_id] = self._devices_for(run, ())
        slots = {slot for device in self._devices[run.run_id] for slot in device.slot_ids}
        if run.tenant in self._limits and slots.issubset(taken):
            self._devices[run.run_id] = self._devices_for(run, taken)
        return self._devices[run.run_id]

    def forget(self, run_id: int) -> None:
        """Determine the placement of one run again."""
        self._placements.pop(run_id, None)
        self._devices.pop(run_id, None)

    def _slots_for(self, run: Run) -> list[Slot]:
        """Return the slots in service; slots on other servers train only partitions placed there."""
        slots = self._reserved.in_service(run.run_id)
        return [slot for slot in slots if run.holders is not None or slot.service is None]

    def _devices_for(self, run: Run, taken: Collection[int]) -> tuple[Device, ...]:
        """Return the devices of the slots in service. For a tenant with a limit, return those of as many slots as it
        may have: first where it works already, then idle ones.
        """
        slots = sorted(self._slots_for(run), key=lambda slot: slot.slot_id)
        if run.tenant in self._limits:
            working, idle = self._limits.working_for(run.tenant), set(self._board.idle(taken))
            slots.sort(key=lambda slot: (slot.slot_id not in working, slot.slot_id not in idle, slot.slot_id))
            slots = slots[: self._limits.of(run.tenant, default=len(slots))]
        return tuple(devices_of(slots))

    def _forget_outdated(self) -> None:
        versions = (self._board.version, self._limits.version)
        if versions != self._versions:
            self._placements.clear()
            self._devices.clear()
            self._versions = versions
