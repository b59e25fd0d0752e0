"""One pass over the open runs, the one with the oldest arm first: each is offered what older ones have left.

Slots that a run holds back stay idle. Younger runs do not wait for slots on which an older one works.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from easeml_db.decisions.hopper.allocation.contract import SlotOffer, Start
from easeml_db.decisions.hopper.dispatch.open_run import OpenRun
from easeml_db.decisions.hopper.dispatch.placements import Placements
from easeml_db.decisions.hopper.dispatch.reserved_slots import ReservedSlots
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.decisions.hopper.dispatch.tenant_limits import TenantLimits
from easeml_db.words.run import Run


class DispatchPass:
    """Slots held back, and by which runs, during one pass."""

    def __init__(self, board: SlotBoard, reserved: ReservedSlots, limits: TenantLimits, placements: Placements) -> None:
        self._board, self._reserved, self._limits, self._placements = board, reserved, limits, placements
        self._held: set[int] = set()
        self._n_held: defaultdict[str, int] = defaultdict(int)  # idle slots held back, by tenant
        self._older: list[int] = []  # runs

    def has_idle_slots(self) -> bool:
        """Return whether an idle slot is left that no run holds back."""
        return bool(self._board.idle(self._held))

    def serve(self, open_run: OpenRun, most: int | None = None) -> Sequence[Start]:
        """Let a run choose among the slots that are left, or a number of them, and begin what it chose."""
        run = open_run.run
        choice = open_run.choose(self._offer(run, most))
        for start in choice.starts:
            self._board.begin(start.units, start.slots)
        if choice.held_slots:
            self._held |= choice.held_slots
            self._n_held[run.tenant] += len(choice.held_slots.intersection(self._board.idle()))
        self._older.append(run.run_id)
        return choice.starts

    def _offer(self, run: Run, most: int | None) -> SlotOffer:
        placement = self._placements.of(run)
        idle = self._board.idle(self._held.union(self._reserved.closed_to(run.run_id)))
        return SlotOffer(
            # A run without placed rows gets no slots of other servers.
            idle=[slot for slot in idle if slot in placement.segment_of][:most],
            placement=placement,
            cached=self._board.cached(run.run_id),
            n_working=self._reserved.n_working(run.run_id),
            find_slots=lambda: self._slots_for(run),
            find_devices=lambda: self._placements.devices_of(run, self._taken()),
            n_allowed=self._limits.n_allowed(run.tenant),
            n_held=self._n_held[run.tenant],
            instances=self._board.instances_of(run.run_id),
        )

    def _taken(self) -> set[int]:
        """Return the slots that older runs hold back or work on."""
        return self._held.union(*(self._board.slots_of(run_id) for run_id in self._older))

    def _slots_for(self, run: Run) -> list[int]:
        """Return the slots that a run may have, idle or not, as many as its tenant may have. Those that
        already work for the tenant, perhaps on younger runs, lead; the run then waits for them.
        """
        taken = self._taken()
        reachable = self._board.working() & self._placements.of(run).segment_of.keys()
        free = reachable - taken - self._reserved.closed_to(run.run_id)
        if run.tenant not in self._limits:
            return sorted(free)
        busy = self._limits.working_for(run.tenant)
        n_left = max(0, self._limits.of(run.tenant, default=0) - len(busy & taken))
        return sorted(sorted(free, key=lambda slot: (slot not in busy, slot))[:n_left])
