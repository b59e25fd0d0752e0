"""Units that failed: each is described to `decisions.retry`, and its decision carried out."""

from __future__ import annotations

import contextlib
import math

from easeml_db.coordinator.arm_opening import ArmOpening
from easeml_db.coordinator.crashes import Crashes
from easeml_db.coordinator.effects import CancelUnits, Effect
from easeml_db.coordinator.failed_time import FailedTime
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.pauses import Pauses
from easeml_db.coordinator.ports.messages import Order, SlotStuck, UnitFailed, UnitRecorded
from easeml_db.coordinator.ports.runs import RunStore
from easeml_db.coordinator.ports.slots import SlotStore
from easeml_db.coordinator.ports.space import StateSpace
from easeml_db.coordinator.procedure_runner import ProcedureRunner
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.retry import ROWS_PAUSE, RULES, Cause, Failure, RetryDecision, cause_of, decide
from easeml_db.errors import EasemlError, OutOfSpace, ServerBusy, SlotLost

LOST = "the server was away, or the connection to it broke, while this unit ran"
ALL = 0  # the key of the pause of all runs; their numbers begin at 1
PAUSE_NOTES = {  # of a pause of all runs: the event's kind, and what its message ends with
    Cause.DISK_FULL: ("disk full", "waiting for room"),
    Cause.SERVER_BUSY: ("server busy", "waiting; no attempt is counted"),
}
RECORD_SECONDS = 0.5  # between two tries to record a crash whose rows are held
NOTE_SECONDS = 60.0  # a table that is filled again and again is noted once a minute


class Retries:
    """Tells the dispatcher and the tables."""

    def __init__(
        self,
        slots: SlotStore,
        runs: RunStore,
        space: StateSpace,
        lease: Lease,
        dispatcher: Dispatcher,
        arms: ArmOpening,
        procedures: ProcedureRunner,
        *,
        crashes: Crashes,
        failed_time: FailedTime,
        max_attempts: int,
    ) -> None:
        self._slots, self._runs, self._space, self._lease = slots, runs, space, lease
        self._dispatcher, self._arms, self._procedures = dispatcher, arms, procedures
        self._crashes, self._failed_time = crashes, failed_time
        self._max_attempts = max_attempts
        self._pauses: Pauses[int] = Pauses()  # by run, and of ALL
        self._record_again = math.inf  # when to record crashes whose rows were held
        self._noted: dict[Cause, float] = {}  # when a pause of all runs was last noted

    # What happens

    async def failed(self, message: UnitFailed, now_seconds: float) -> list[Effect]:
        """Handle the error of a unit, and charge its tenant."""
        order, error = message.order, message.error
        self._failed_time.failed(order, now_seconds)
        cause = cause_of(error, is_batch=order.is_batch, is_measured=bool(order.measured_seconds))
        if cause is Cause.SERVER_CRASHED:
            self._crashes.add(message)  # before the server is asked, which may be away
            if not await self._runs.has_crashed(error.detail):
                self._crashes.drop(message)
                cause, error = Cause.SLOT_LOST, SlotLost(LOST)
        if RULES[cause].close_slot:
            self._dispatcher.free_and_close(order.slot_id)
        else:
            self._dispatcher.free(order.slot_id)
        effects = await self._carry_out(order, error, cause, now_seconds)
        with contextlib.suppress(OutOfSpace, ServerBusy):
            await self._failed_time.charge()  # at once, because it is recorded nowhere else
        return effects

    async def members_failed(self, message: UnitRecorded, now_seconds: float) -> list[Effect]:
        """Handle the errors of members of a batch whose other members are recorded."""
        effects: list[Effect] = []
        for order in message.order.by_trial():
            error = message.failures.get(order.unit.trial_id)
            if error is not None:
                effects += await self._carry_out(order, error, cause_of(error, is_member=True), now_seconds)
        return effects

    async def stuck(self, message: SlotStuck, now_seconds: float) -> list[Effect]:
        """Fence the slots first, then offer their unit elsewhere."""
        for slot_id in message.slot_ids:
            await self._slots.lose(slot_id, message.reason)
            what = f"slot {slot_id} is given up: {message.reason}"
            await self._runs.note(message.order.unit.run_id, message.order.unit.trial_id, "slot lost", what)
        return await self.failed(UnitFailed(message.order, SlotLost(message.reason)), now_seconds)

    async def record_crashes(self, now_seconds: float) -> None:
        """End the trials during whose units the server crashed: everybody's sessions ended with it, and would again.
        Where it was only away, their attempts are counted.
        """
        await self._lease.confirm()
        for message in self._crashes.all():
            has_crashed = await self._runs.has_crashed(message.error.detail)
            record = self._record_crash if has_crashed else self._record_loss
            if all([await record(order, str(message.error)) for order in message.order.by_trial()]):
                self._crashes.drop(message)
            else:
                self._crashes.hold_back(message.order.unit.run_id)
        self.hold_back()
        self._record_again = now_seconds + RECORD_SECONDS if self._crashes.held_back() else math.inf

    async def _record_crash(self, order: Order, reason: str) -> bool:
        run_id = order.unit.run_id
        trial_ids, is_recorded = await self._runs.crashed(run_id, order.unit.trial_id, reason)
        for trial_id in trial_ids:
            self._dispatcher.end_trial(run_id, trial_id)
            self._procedures.trial_changed(run_id, trial_id)
        return is_recorded

    async def _record_loss(self, order: Order, reason: str) -> bool:
        n_lost = await self._runs.lost(order.unit.run_id, order.unit.trial_id, LOST)
        if n_lost >= self._max_attempts and order.unit.run_id in self._dispatcher.runs:
            await self._end_trial(order, f"{n_lost} attempts failed, the last: {LOST}")
        return True

    def hold_back(self) -> None:
        """Start nothing of a run in which a crash is still to be recorded: it would crash the server again."""
        for run_id in self._crashes.held_back():
            if run_id in self._dispatcher.runs:
                self._dispatcher.runs.put_aside(run_id)

    def recorded(self, run_id: int) -> None:
        """Begin with short pauses again: the server has room, and no lock blocks the run."""
        self._pauses.went_well(ALL)
        self._pauses.went_well(run_id)

    # Pauses

    def pause_run(self, run_id: int, now_seconds: float) -> None:
        """Start nothing of a run for a while: another open transaction holds its rows."""
        if run_id in self._dispatcher.runs:
            self._pauses.begin(run_id, now_seconds, ROWS_PAUSE.seconds(self._pauses.n_in_a_row(run_id)))
            self._dispatcher.runs.put_aside(run_id)  # also where it was read anew in the midst of its pause

    async def end_pauses(self, now_seconds: float) -> None:
        """Resume the runs whose pause is over, and those whose crashes could be recorded now."""
        ended = set(self._pauses.take_ended(now_seconds))
        if now_seconds >= self._record_again:
            ended |= {*self._crashes.held_back()}
            await self.record_crashes(now_seconds)
        for run_id in ended - {*self._crashes.held_back()}:
            self._dispatcher.runs.take_back(run_id)
        self._pauses.forget_unless(lambda key: key == ALL or key in self._dispatcher.runs)

    def are_all_paused(self, now_seconds: float) -> bool:
        """Return whether nothing may start, because a disk or the lock table is full."""
        return self._pauses.is_paused(ALL, now_seconds)

    def next_end(self) -> float:
        """Return when the next pause is over; infinity when there is none."""
        return min(self._pauses.next_end(), self._record_again)

    # Decisions

    def _decide(self, order: Order, cause: Cause) -> dict[int, RetryDecision]:
        """Return a decision for each trial of an order; they differ only in how many attempts are left."""
        run_id = order.unit.run_id
        n_pauses = self._pauses.n_in_a_row(ALL if RULES[cause].pause_all else run_id)
        return {
            one.unit.trial_id: decide(
                Failure(cause, self._dispatcher.n_attempts(run_id, one.unit.trial_id), n_pauses), self._max_attempts
            )
            for one in order.by_trial()
        }

    async def _carry_out(self, order: Order, error: EasemlError, cause: Cause, now_seconds: float) -> list[Effect]:
        """Decide about a unit whose slot is free again, requeue or end its trials, and see to what else follows."""
        decisions, unit = self._decide(order, cause), order.unit
        decision = decisions[unit.trial_id]
        if decision.end_service:
            raise error
        if decision.end_trial and not decision.charge_attempt and unit.run_id in self._dispatcher.runs:
            await self._end_trial(order, str(error))
            return []
        for one in order.by_trial():
            self._dispatcher.requeue(
                unit.run_id, one.unit.trial_id, order.slot_id, charge_attempt=decision.charge_attempt
            )
        if decision.confirm_lease:
            await self._lease.confirm()
        if decision.pause_all:
            await self._pause_all(order, error, cause, now_seconds, decision.requeue_after_seconds)
        elif decision.pause_run:
            self.pause_run(unit.run_id, now_seconds)
        elif cause is Cause.SERVER_CRASHED:
            await self.record_crashes(now_seconds)
        elif decision.charge_attempt:
            return await self._count_attempts(order, error, decisions)
        return []

    async def _pause_all(
        self, order: Order, error: EasemlError, cause: Cause, now_seconds: float, pause_seconds: float
    ) -> None:
        """Wait for room, and on a full disk free what was pruned or rolled back. Note the first pause in the run's
        history, once a minute, if there is room for that.
        """
        if not self._pauses.begin(ALL, now_seconds, pause_seconds):
            return
        kind, waits = PAUSE_NOTES[cause]
        with contextlib.suppress(OutOfSpace, ServerBusy):
            if self._pauses.n_in_a_row(ALL) == 1 and now_seconds >= self._noted.get(cause, -math.inf) + NOTE_SECONDS:
                self._noted[cause] = now_seconds
                await self._runs.note(order.unit.run_id, order.unit.trial_id, kind, f"{error}; {waits}")
        if cause is Cause.DISK_FULL:
            with contextlib.suppress(OutOfSpace, ServerBusy):
                await self._space.reclaim()

    async def _count_attempts(
        self, order: Order, error: EasemlError, decisions: dict[int, RetryDecision]
    ) -> list[Effect]:
        """Note the attempts, and end the trials that have none left; not if the run is over, or the unit was recorded
        after all.
        """
        unit = order.unit
        if unit.run_id not in self._dispatcher.runs:
            return []
        if unit.kind == "train" and self._dispatcher.runs[unit.run_id].is_over:
            return []  # it was cut short at the end of the run's time
        is_open = await self._arms.renew(unit.run_id)
        for one in order.by_trial():
            run_id, trial_id = one.unit.run_id, one.unit.trial_id
            n_attempts = self._dispatcher.n_attempts(run_id, trial_id)
            if n_attempts:
                await self._runs.note(run_id, trial_id, "retry", f"attempt {n_attempts} failed: {error}")
                if decisions[trial_id].end_trial:
                    await self._end_trial(one, f"{n_attempts} attempts failed, the last: {error}")
        return [] if is_open else [CancelUnits(unit.run_id)]

    async def _end_trial(self, order: Order, reason: str) -> None:
        run_id, trial_id = order.unit.run_id, order.unit.trial_id
        self._dispatcher.end_trial(run_id, trial_id)
        await self._lease.confirm()
        await self._runs.fail_trial(run_id, trial_id, reason)
        self._procedures.trial_changed(run_id, trial_id)
