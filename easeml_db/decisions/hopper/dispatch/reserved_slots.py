"""Reserved slots: a slot reserved for a run serves that run alone, and a run with reserved slots gets no others.

All other slots are shared by all other runs.
"""

from __future__ import annotations

from collections.abc import Set

from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.words.topology import Slot


class ReservedSlots:
    """Derived from the slot board and the runs' allocations."""

    def __init__(self, board: SlotBoard, runs: OpenRuns) -> None:
        self._board, self._runs = board, runs

    def has_reserved(self, run_id: int) -> bool:
        """Return whether a run trains on slots that are held for it, and on no others."""
        open_run = self._runs.get(run_id)
        return bool(self._board.held_for(run_id)) or (open_run is not None and open_run.allocation.has_reserved_slots)

    def closed_to(self, run_id: int) -> Set[int]:
        """Return the slots that a run does not get."""
        if self.has_reserved(run_id):
            return self._board.active() - self._board.held_for(run_id)
        return self._board.held()

    def in_service(self, run_id: int) -> list[Slot]:
        """Return the slots that have a session, and that a run may get."""
        closed = self.closed_to(run_id)
        return [slot for slot in self._board.in_service() if slot.slot_id not in closed]

    def n_working(self, run_id: int) -> int:
        """Count the slots that work, or are just being opened, and that a run may get."""
        closed = self.closed_to(run_id)
        return len(self._board.working() - closed) if closed else self._board.n_working()

    def n_shared(self) -> int:
        """Count the slots that have a session and are reserved for no run."""
        return sum(slot.run_id is None for slot in self._board.in_service())
