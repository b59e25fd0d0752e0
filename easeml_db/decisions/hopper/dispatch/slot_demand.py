"""How many slots the open trials could use, and so whether another arm would find one to run on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from easeml_db.decisions.hopper.dispatch.open_run import OpenRun
from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns
from easeml_db.decisions.hopper.dispatch.placements import Placements
from easeml_db.decisions.hopper.dispatch.reserved_slots import ReservedSlots
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.decisions.hopper.dispatch.tenant_limits import TenantLimits


class SlotDemand:
    """Slots that could be used at once, by run and by tenant, counted anew where something has changed."""

    def __init__(
        self, board: SlotBoard, runs: OpenRuns, reserved: ReservedSlots, limits: TenantLimits, placements: Placements
    ) -> None:
        self._board, self._runs, self._reserved = board, runs, reserved
        self._limits, self._placements = limits, placements
        self._with_reserved: dict[int, int] = {}  # of runs that have reserved slots, for these
        self._of_run: dict[int, tuple[str, int]] = {}  # tenant and demand
        self._of_tenant: Counter[str] = Counter()
        self._n_in_service = 0
        self._counted_for = (-1, -1, -1)  # versions of slots and limits, slots at work

    def n_spare_slots(self) -> int:
        """Count the shared slots in service for which no open trial is left: with one, an arm is worth opening."""
        self._count()
        demands = self._of_tenant.items()
        return self._n_in_service - sum(min(n, self._limits.of(tenant, default=n)) for tenant, n in demands)

    def runs_with_reserved_slots_to_spare(self) -> list[int]:
        """Return the runs that have more reserved slots than open trials."""
        self._count()
        return [run_id for run_id, n in self._with_reserved.items() if len(self._reserved.in_service(run_id)) > n]

    def runs_with_reserved_slots(self) -> Collection[int]:
        """Return the runs that have or wait for reserved slots: they get no others."""
        self._count()
        return self._with_reserved.keys()

    def has_demand(self, tenant: str) -> bool:
        """Return whether open trials of a tenant could have a slot."""
        self._count()
        return self._of_tenant[tenant] > 0

    def blocked_runs(self) -> list[int]:
        """Return the runs of which no arm may be opened now: they are paused, their arms are being timed, their open
        trials take all slots that hold their partitions, or their tenant's trials take all slots that it may have.
        """
        self._count()
        waiting = [*self._runs.aside()]
        waiting += [run.run_id for run in self._runs.active() if run.work.timing or self._is_saturated(run)]
        full = {tenant for tenant in self._limits if self._of_tenant[tenant] >= self._limits.of(tenant, default=0)}
        return waiting + [run.run_id for run in self._runs if run.run.tenant in full] if full else waiting

    def is_newcomer_timed(self) -> bool:
        """Return whether a run that was never served is being timed, so that its turn comes next and soon."""
        return any(open_run.is_timed_for_its_first_arm() for open_run in self._runs.active())

    def _is_saturated(self, open_run: OpenRun) -> bool:
        return open_run.is_saturated(self._placements.of(open_run.run))

    def _count(self) -> None:
        """Count again: of all runs if slots or limits have changed, else only of runs that have changed."""
        counted_for = self._board.version, self._limits.version, self._board.n_working()
        changed = self._runs.take_to_count()
        if counted_for != self._counted_for:
            self._counted_for = counted_for
            self._n_in_service = self._reserved.n_shared()
            changed = {*self._of_run, *self._with_reserved, *(open_run.run_id for open_run in self._runs)}
        for run_id in changed:
            self._count_run(run_id)

    def _count_run(self, run_id: int) -> None:
        tenant, before = self._of_run.pop(run_id, ("", 0))
        if before:
            self._of_tenant[tenant] -= before
        self._with_reserved.pop(run_id, None)
        open_run = self._runs.get(run_id)
        if open_run is None:
            return
        has_reserved_slots = self._reserved.has_reserved(run_id)
        if not has_reserved_slots and not open_run.has_work():
            return
        demand = open_run.slot_demand(self._placements.of(open_run.run), self._reserved.n_working(run_id))
        if has_reserved_slots:
            self._with_reserved[run_id] = demand
            return
        self._of_run[run_id] = open_run.run.tenant, demand
        self._of_tenant[open_run.run.tenant] += demand
