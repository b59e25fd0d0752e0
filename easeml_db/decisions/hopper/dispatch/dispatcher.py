"""The choice of what runs next: the state of model hopper parallelism, driven by events, without any I/O.

It is a cache of the tables and can be rebuilt from them at any time. A stale cache does no harm, because the unit
itself refuses a step that is not due. Only trials of open arms run. The tenancy policy opens the next arm when fewer
trials are open than slots are in service.

    slot_board.py      slots: idle, busy, gone, what they have cached
    tenant_limits.py   how many slots may work for a tenant
    open_runs.py       runs: what each has to do, and which have changed
    reserved_slots.py  which slots are held for a run
    placements.py      where the partitions of a run may be visited, and which devices it may have
    dispatch_pass.py   one pass over the runs, each offered what older ones have left
    slot_demand.py     whether another arm would find a slot
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from easeml_db.decisions.hopper.allocation.contract import DeviceRecords, Start
from easeml_db.decisions.hopper.dispatch.dispatch_pass import DispatchPass
from easeml_db.decisions.hopper.dispatch.open_run import OpenRun
from easeml_db.decisions.hopper.dispatch.open_runs import OpenRuns
from easeml_db.decisions.hopper.dispatch.placements import Placements
from easeml_db.decisions.hopper.dispatch.reserved_slots import ReservedSlots
from easeml_db.decisions.hopper.dispatch.slot_board import SlotBoard
from easeml_db.decisions.hopper.dispatch.slot_demand import SlotDemand
from easeml_db.decisions.hopper.dispatch.tenant_limits import TenantLimits
from easeml_db.decisions.hopper.schedulers.choice import SchedulerChoice
from easeml_db.decisions.hopper.work.batches import by_trial
from easeml_db.decisions.trial_groups.measuring import Sample
from easeml_db.words.run import Run
from easeml_db.words.training_unit import TrainingUnit


class Dispatcher:
    """Gives units of open runs to idle slots. A trial is in at most one unit or gang.

    A slot carries out at most one order: a unit, a batch or a whole round. A start is identified by the slot of its
    first unit; a gang keeps all its slots busy until it is answered.
    """

    def __init__(self) -> None:
        self.board = SlotBoard()
        self.runs = OpenRuns()
        self.limits = TenantLimits(self.board, self.runs)
        self._reserved = ReservedSlots(self.board, self.runs)
        self._placements = Placements(self.board, self._reserved, self.limits)
        self.demand = SlotDemand(self.board, self.runs, self._reserved, self.limits, self._placements)
        self._records: dict[int, DeviceRecords] = {}  # of the runs that have any
        self._planned: dict[int, None] = {}  # open runs that follow a plan
        self._new_choices: list[SchedulerChoice] = []
        self._failed: dict[int, str] = {}

    # Runs

    def put_run(self, run: Run) -> None:
        """Add a run, or update it."""
        self._placements.forget(run.run_id)
        allocation = self.runs.put(run, self.board.units_of(run.run_id)).allocation
        if allocation.records is not None:
            self._records[run.run_id] = allocation.records
        if allocation.follows_plan:
            self._planned[run.run_id] = None

    def drop_run(self, run_id: int) -> None:
        """Forget a run: nothing of it starts any more."""
        self.runs.drop(run_id)
        self.board.forget(run_id)
        self._placements.forget(run_id)
        self._records.pop(run_id, None)
        self._planned.pop(run_id, None)

    def records(self) -> Mapping[int, DeviceRecords]:
        """Return, by run, what allocations read from the tables and record there."""
        return dict(self._records) if self._records else self._records

    def planned_runs(self) -> Set[int]:
        """Return the open runs that follow a plan, the oldest first."""
        return self._planned.keys()

    def follow_plan(self, run_id: int, width: int, *, has_reserved_slots: bool, has_stages: bool) -> None:
        """Set how many slots each trial of a planned run gets, from those reserved for the run or shared ones."""
        open_run = self.runs.get(run_id)
        if open_run is None:
            return
        if open_run.allocation.follow(width, has_reserved_slots=has_reserved_slots, has_stages=has_stages):
            self.board.version += 1
            self.runs.touch(run_id)

    def take_scheduler_choices(self) -> list[SchedulerChoice]:
        """Return the choices of schedulers made since the last call."""
        choices, self._new_choices = self._new_choices, []
        return choices

    # Units

    def next_starts(self) -> list[Start]:
        """Fill the idle slots, oldest arm first. Slots that an allocation holds back stay idle."""
        starts: list[Start] = []
        dispatch_pass = DispatchPass(self.board, self._reserved, self.limits, self._placements)
        # Newcomers are timed on at most half of the slots: units of other tenants continue on the rest.
        is_shared, is_passed_over = self.runs.is_shared(), False
        n_pilots: int | None = None
        for open_run in self.runs.active():
            most = None
            if is_shared and open_run.work.timing:
                if n_pilots is None:
                    n_pilots = max(1, self.board.n_active() // 2) - self.board.n_pilots()
                is_passed_over, most = True, n_pilots
                if n_pilots <= 0:
                    continue
            if not dispatch_pass.has_idle_slots():
                return starts
            chosen = self._serve(dispatch_pass, open_run, most)
            starts += chosen
            n_pilots = n_pilots - len(chosen) if most is not None and n_pilots is not None else n_pilots
        return starts + self._serve_timed(dispatch_pass) if is_passed_over else starts

    def _serve_timed(self, dispatch_pass: DispatchPass) -> list[Start]:
        """Give runs that are being timed the slots that no other run wants."""
        starts: list[Start] = []
        for open_run in self.runs.active():
            if not dispatch_pass.has_idle_slots():
                break
            if open_run.work.timing:
                starts += self._serve(dispatch_pass, open_run)
        return starts

    def _serve(self, dispatch_pass: DispatchPass, open_run: OpenRun, most: int | None = None) -> Sequence[Start]:
        """Let a run choose its starts. An error that its rows cause in a scheduler ends the run, not the service."""
        try:
            starts = dispatch_pass.serve(open_run, most)
            choice = open_run.allocation.take_scheduler_choice()
            self._new_choices += [choice] if choice is not None else []
            return starts
        except Exception as error:  # noqa: BLE001 - whatever it is, other runs are to be served
            self._failed[open_run.run_id] = f"nothing of it can be started: {type(error).__name__}: {error}"
            return ()

    def take_failed(self) -> dict[int, str]:
        """Return the runs of which nothing can be started, with the reason, each once."""
        failed, self._failed = self._failed, {}
        return failed

    def recorded(self, slot_id: int, seconds: float, failed: Collection[int] = ()) -> None:
        """Note that the slot's unit is recorded, with all of its gang or batch except those of `failed` trials."""
        units, open_run = self._answered(slot_id)
        if open_run is not None:
            open_run.recorded(units, seconds, failed)
            self.runs.touch(open_run.run_id)

    def piloted(
        self, slot_id: int, train_seconds: float, evaluate_seconds: float, sample: Sample | None = None
    ) -> None:
        """Note the result of the slot's pilot."""
        units, open_run = self._answered(slot_id)
        if open_run is not None:
            open_run.piloted(units[0].trial_id, train_seconds, evaluate_seconds, sample)
            self.runs.touch(open_run.run_id)

    def free(self, slot_id: int) -> None:
        """Free the slots of a unit that failed; the caller then requeues or ends its trials."""
        self._answered(slot_id)

    def free_and_close(self, slot_id: int) -> None:
        """Free the slots of a unit whose session is gone. They get no unit until they are ready again."""
        slots = self.board.gang_of(slot_id)
        self._answered(slot_id)
        for slot in slots:
            self.board.gone(slot)

    def requeue(self, run_id: int, trial_id: int, slot_id: int, *, charge_attempt: bool = True) -> None:
        """Requeue a trial whose unit failed on this slot, preferably on another."""
        open_run = self.runs.get(run_id)
        if open_run is not None:
            open_run.requeue(trial_id, slot_id, charge_attempt=charge_attempt)
            self.runs.touch(run_id)

    def end_trial(self, run_id: int, trial_id: int) -> None:
        """Start nothing of a trial any more."""
        if run_id in self.runs:
            self.runs[run_id].drop(trial_id)
            self.runs.touch(run_id)

    def n_attempts(self, run_id: int, trial_id: int) -> int:
        """Return how often the trial's next unit failed; 0 for a trial that is not open."""
        return self.runs[run_id].work.attempts.count(trial_id) if run_id in self.runs else 0

    def _answered(self, slot_id: int) -> tuple[list[TrainingUnit], OpenRun | None]:
        """Free a slot, and those of its gang; return its units, and their run if that is still open."""
        units = self.board.answered(slot_id)
        open_run = self.runs.get(units[0].run_id)
        if open_run is not None:
            for trial_id, _ in by_trial(units):
                open_run.answered(trial_id)
        return units, open_run
