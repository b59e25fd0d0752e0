"""One coordinator process in a simulated world: all four ports, with sessions of its own.

What it does to the tables stays when it is killed. Its units run on, as in a server that has not noticed yet,
and try to be recorded.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from easeml_db.coordinator.ports import (
    Message,
    Order,
    Piloted,
    SlotReady,
    SlotStuck,
    SlotWaiting,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.decisions.tenancy.opening import Belief, Opening
from easeml_db.decisions.trial_groups.allocation import AllocationLog
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile, Sample
from easeml_db.errors import EasemlError, SlotLost
from easeml_db.simulated.tables import BrokenRule
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import PastArm, Tenancy
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import PILOT

if TYPE_CHECKING:
    from easeml_db.simulated.world import SimulatedWorld


PILOT_SECONDS = 0.0
N_ITERATIONS = 40  # of a pilot that measures alone
UNIT_LEASE_SECONDS = 60.0
SILENT_SECONDS = 3.6  # a session that takes longer to open is told of


class Killed(BaseException):
    """The process is dead. Not an Exception, so that nobody handles it."""


class SimulatedProcess:
    """Store, Executor, Inbox and Clock of one coordinator. With `dies_at_call` = k the k-th call (from 1) of any
    method but `now_seconds` kills the process instead."""

    def __init__(self, world: SimulatedWorld, dies_at_call: int | None = None) -> None:
        self.inbox: deque[Message] = deque()
        self.lease_number = 0
        self.n_calls = 0
        self.n_heartbeats = 0
        self.is_dead = False
        self._world = world
        self._dies_at_call = dies_at_call
        self._wanted: set[int] = set()
        self._ready: set[int] = set()  # slots with a session
        self._broken: set[int] = set()  # of these, sessions that broke while they were idle
        self._running: dict[int, Order] = {}

    # Clock and Inbox

    def now_seconds(self) -> float:
        """Seconds since the world began."""
        return self._world.now_seconds

    async def next(self, timeout_seconds: float) -> Message | None:
        """Return the next message, or None after the timeout; meanwhile the clock moves."""
        self._call()
        await self._world.wait(self, timeout_seconds)
        return self.inbox.popleft() if self.inbox else None

    def deliver(self, message: Message) -> None:
        """Put a message into the inbox; the dead get none."""
        if not self.is_dead:
            self.inbox.append(message)

    # Store

    async def acquire_lease(self) -> int:
        """Wait until no other coordinator is active; return a lease number that no other ever had."""
        self._call()
        await self._world.lock(self)
        self.lease_number = self._world.tables.draw_lease()
        return self.lease_number

    async def holds_lease(self) -> bool:
        """Say whether the lease is still ours."""
        self._call()
        return self._world.tables.lease_number == self.lease_number

    async def heartbeat(self) -> None:
        """Give a sign of life."""
        self._call()
        self.n_heartbeats += 1

    async def slots(self) -> list[Slot]:
        """Return all slots, in whatever state."""
        self._call()
        return list(self._world.slots)

    async def lose_slot(self, slot_id: int, reason: str) -> None:
        """Mark a slot as lost: what its unit may still do is not recorded any more."""
        self._call()
        self._world.lose(slot_id)

    async def explain_slot(self, slot_id: int, reason: str | None) -> None:
        """Say why a slot that should work does not; None: it does."""
        self._call()

    async def recover_slots(self) -> list[int]:
        """Make active again the lost slots whose stuck unit has ended; return them."""
        self._call()
        return self._world.recover()

    async def plan_run(
        self, run_id: int, scheduler: str, simulated_seconds: float | None, bound_seconds: float | None, reason: str
    ) -> None:
        """Write down how a run is scheduled from now on."""
        self._call()
        self._world.tables.plans.append((run_id, scheduler))

    async def open_runs(self) -> list[Run]:
        """Return all queued and running runs, oldest first."""
        self._call()
        return self._world.tables.open_runs()

    async def read_run(self, run_id: int) -> Run | None:
        """Return an open run; None when it ended or is gone."""
        self._call()
        return next((run for run in self._world.tables.open_runs() if run.run_id == run_id), None)

    async def tenancy(self) -> Tenancy:
        """Return how tenants are served."""
        self._call()
        return self._world.tables.tenancy

    async def history(self) -> list[PastArm]:
        """Return the arms that runs have closed."""
        self._call()
        return list(self._world.tables.past_arms)

    async def policy_memory(self, policy: str) -> Mapping[str, Any]:
        """Return what this policy wrote down with its last decision."""
        self._call()
        memories = [opening.memory for opening in self._world.tables.openings if opening.policy == policy]
        return json.loads(json.dumps(memories[-1])) if memories else {}

    async def prior(self, run_id: int) -> Prior | None:
        """Return the prior with which a run's arms began; None for a run that has none yet."""
        self._call()
        return self._world.tables.priors.get(run_id)

    async def keep_prior(self, run_id: int, prior: Prior, arm_ids: Sequence[int]) -> None:
        """Write down the prior of a run, and about which arms it is."""
        self._call()
        self._world.tables.priors.setdefault(run_id, prior)

    async def open_arm(self, opening: Opening) -> int:
        """Write a decision down and open its arm; return the decision's number. StaleLease, NotFound."""
        self._call()
        return self._world.tables.open_arm(opening, self.lease_number)

    async def close_arm(self, run_id: int, arm_id: int) -> Arm | None:
        """Write down what an arm came to, once its trials are over; None when the run is gone."""
        self._call()
        return self._world.tables.close_arm(run_id, arm_id, self._world.quality_of(run_id, arm_id))

    async def trial_history(self, run_id: int, arm_id: int) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials, by trial_number."""
        self._call()
        return self._world.tables.trial_history(run_id, arm_id, self._world.score_of)

    async def apply_decisions(self, run_id: int, arm_id: int, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Start, continue and stop trials, all or none; no bytes are pruned."""
        self._call()
        self._world.tables.apply_decisions(run_id, arm_id, decisions, self.lease_number)
        return 0

    async def keep_beliefs(self, run_id: int, beliefs: Sequence[Belief]) -> None:
        """Write down what is believed of a run's arms now."""
        self._call()
        self._world.tables.beliefs[run_id] = list(beliefs)

    async def profiles(self, run_id: int) -> Mapping[tuple[str, str], MeasuredProfile]:
        """Return what is known of devices for the run's data set, by (architecture, kind of device)."""
        self._call()
        return dict(self._world.tables.profiles)

    async def keep_profile(self, run_id: int, architecture: str, device_kind: str, measured: MeasuredProfile) -> None:
        """Write down what was measured before a run's first units."""
        self._call()
        self._world.tables.profiles[architecture, device_kind] = measured

    async def keep_allocations(self, run_id: int, log: AllocationLog, labels: Mapping[int, str]) -> None:
        """Write down trial groups, labelled by number, and who got which devices."""
        self._call()
        self._world.tables.keep_allocations(run_id, self.lease_number, log)

    async def start_run(self, run_id: int) -> None:
        """Mark a queued run as running."""
        self._call()
        self._world.tables.start_run(run_id, self.now_seconds())

    async def fail_trial(self, run_id: int, trial_id: int, reason: str) -> None:
        """Mark a trial as failed, with the reason."""
        self._call()
        self._world.tables.fail_trial(trial_id)
        self._world.tables.notes.append(("failed", reason))

    async def finish_run(self, run_id: int) -> None:
        """End a run: stop what is left of its trials; failed when every trial failed, else finished."""
        self._call()
        self._world.tables.finish_run(run_id, self.now_seconds())

    async def note(self, run_id: int, trial_id: int | None, kind: str, message: str) -> None:
        """Write an event into the run's history."""
        self._call()
        self._world.tables.notes.append((kind, message))

    async def reclaim(self) -> int:
        """Count as done; return what the world says is kept."""
        self._call()
        self._world.n_reclaims += 1
        return self._world.live_bytes

    async def release_lease(self) -> None:
        """Give the lease back in good order."""
        self._call()
        self._world.unlock(self)

    # Executor

    async def open(self, slots: Sequence[Slot]) -> None:
        """Open sessions for these slots, and close those of all others."""
        self._call()
        wanted = {slot.slot_id for slot in slots}
        for slot_id in sorted(self._wanted - wanted):
            self._ready.discard(slot_id)
            order = self._running.get(slot_id)
            if order is not None:
                self._answer_lost(slot_id, "the slot was taken away")
                self._say_ready(other for other in order.slot_ids if other in wanted)
        new, self._wanted = wanted - self._wanted, wanted
        for slot_id in sorted(new):
            self._connect(slot_id)

    async def start(self, order: Order) -> None:
        """Begin a unit or a gang and return at once; BrokenRule where that breaks a rule of the trade."""
        self._call()
        self._check(order)
        self._running |= dict.fromkeys(order.slot_ids, order)
        started = self.now_seconds()
        broken = [slot_id for slot_id in order.slot_ids if slot_id in self._broken]
        if broken:
            self._world.at(started, lambda: self.break_session(broken[0]))
            return
        try:
            self._world.tables.open_unit(order)
        except EasemlError as error:
            refusal = error
            self._world.at(started, lambda: self._answer(order, UnitFailed(order, refusal)))
        else:
            self._run(order, started)

    def _run(self, order: Order, started: float) -> None:
        """Let a unit end after its time, a gang after the longest of its units; one that is stuck is given up after its
        lease, and ends much later."""
        is_pilot = order.unit.kind == PILOT
        ranks = order.alone()
        seconds = PILOT_SECONDS if is_pilot else max(self._world.seconds_of(one.unit, one.slot_id) for one in ranks)
        if order.measured_seconds:
            seconds = order.measured_seconds
            self._world.pilots_begun[self._world.device_of(order.slot_id), started] += 1
        stuck = {one.slot_id: at for one in ranks if (at := self._world.faults.stuck_seconds(one))}
        if stuck:
            self._world.at(started + UNIT_LEASE_SECONDS, lambda: self._give_up(order, tuple(stuck)))
            self._world.stuck |= {slot_id: started + stuck_seconds for slot_id, stuck_seconds in stuck.items()}
        self._world.at(started + max(seconds, *stuck.values(), 0.0), lambda: self._end_unit(order, started))

    def _give_up(self, order: Order, stuck: tuple[int, ...]) -> None:
        """Give up the slots that are stuck; the others of a gang work again."""
        if self._running.get(order.slot_id) is not order:
            return
        self._ready.difference_update(stuck)
        self._wanted.difference_update(stuck)
        self._answer(order, SlotStuck(order, "a unit gave no sign of life", stuck))
        self._say_ready(slot_id for slot_id in order.slot_ids if slot_id not in stuck)

    async def cancel(self, slot_id: int) -> None:
        """Stop the slot's unit, and all of its gang; the sessions stay."""
        self._call()
        order = self._running.get(slot_id)
        if order is not None:
            self._answer_lost(slot_id, "canceling statement due to user request")
            self._say_ready(order.slot_ids)

    async def close(self) -> None:
        """Cancel what runs and close all sessions. The dead cannot."""
        if self.is_dead:
            return
        self._running.clear()
        self._wanted.clear()
        self._ready.clear()
        self._world.leave(self)

    # What the world does to it

    def die(self) -> None:
        """End without a word: units under way go on."""
        self.is_dead = True
        self._world.leave(self)
        self._world.unlock(self)

    def break_session(self, slot_id: int) -> None:
        """Lose a session. It shows when a unit runs or is started; then a new one is opened."""
        order = self._running.get(slot_id)
        if order is not None:
            self._broken.discard(slot_id)
            self._ready.discard(slot_id)
            self._answer_lost(slot_id, "server closed the connection unexpectedly")
            self._say_ready(other for other in order.slot_ids if other != slot_id)
            self._connect(slot_id)
        elif slot_id in self._ready:
            self._broken.add(slot_id)

    def _check(self, order: Order) -> None:
        if len(set(order.slot_ids)) < len(order.slot_ids):
            raise BrokenRule(f"a slot is in the gang {order.slot_ids} more than once")
        for slot_id in order.slot_ids:
            if slot_id not in self._ready:
                raise BrokenRule(f"slot {slot_id} is not open")
            if slot_id in self._running:
                raise BrokenRule(f"slot {slot_id} runs a unit already")
        if any(other.unit.trial_id == order.unit.trial_id for other in self._running.values()):
            raise BrokenRule(f"trial {order.unit.trial_id} is in a unit already")

    def _say_ready(self, slot_ids: Iterable[int]) -> None:
        """Say of slots whose unit came to nothing that they can work again; a session that is broken shows later."""
        for slot_id in slot_ids:
            if slot_id in self._ready:
                self.deliver(SlotReady(slot_id))

    def _connect(self, slot_id: int) -> None:
        now = self.now_seconds()
        if self._world.ready_seconds(slot_id) > now + SILENT_SECONDS:
            self._world.at(now + SILENT_SECONDS, lambda: self.deliver(SlotWaiting(slot_id, "no session")))
        self._world.at(self._world.ready_seconds(slot_id), lambda: self._connected(slot_id))

    def _connected(self, slot_id: int) -> None:
        if slot_id not in self._wanted or slot_id in self._ready or self.is_dead:
            return
        if self._world.is_down(slot_id):
            self._connect(slot_id)
            return
        self._ready.add(slot_id)
        self.deliver(SlotReady(slot_id))

    def _end_unit(self, order: Order, started_seconds: float) -> None:
        """Record a unit as its last transaction does, unless it was cancelled or lost."""
        if self._running.get(order.slot_id) is not order:
            self._world.end_stuck(order, started_seconds)
            return
        failures = (self._world.faults.failure_of(one) for one in order.alone())
        error = next((failure for failure in failures if failure is not None), None)
        try:
            if error is not None:
                raise error
            if order.unit.kind == PILOT:
                self._end_pilot(order, started_seconds)
                return
            self._world.tables.record(order, started_seconds, self.now_seconds())
        except SlotLost:
            self.break_session(order.slot_id)
        except EasemlError as refusal:
            self._answer(order, UnitFailed(order, refusal))
        else:
            self._answer_recorded(order, self.now_seconds() - started_seconds)

    def _end_pilot(self, order: Order, started_seconds: float) -> None:
        """A pilot tells the truth about a unit over its partition."""
        train, evaluate = (
            self._world.seconds_of(replace(order.unit, kind=kind), order.slot_id) for kind in ("train", "validate")
        )
        if not order.members:
            self._world.tables.record_pilot(order, train, evaluate)
        sample = self._sample(order, started_seconds) if order.measured_seconds and not order.members else None
        self._answer(order, Piloted(order, train, evaluate, sample))

    def _sample(self, order: Order, started_seconds: float) -> Sample:
        """Iterations beside the pilots that began on the same device at the same time."""
        n_packed = max(1, self._world.pilots_begun[self._world.device_of(order.slot_id), started_seconds])
        iteration = order.measured_seconds / N_ITERATIONS
        n_iterations = int(N_ITERATIONS / self._world.slowdown_of(n_packed))
        iteration *= self._world.slowdown_of(n_packed)
        return Sample(order.unit.trial_id, tuple(started_seconds + k * iteration for k in range(n_iterations + 1)), 100)

    def _answer_recorded(self, order: Order, seconds: float) -> None:
        lost = [one.slot_id for one in order.alone() if self._world.faults.is_answer_lost(one)]
        if lost:
            self.break_session(lost[0])
        else:
            self._answer(order, UnitRecorded(order, seconds, self._world.pruned_bytes))

    def _answer(self, order: Order, message: Message) -> None:
        if self._running.get(order.slot_id) is order:
            for slot_id in order.slot_ids:
                del self._running[slot_id]
            self.deliver(message)

    def _answer_lost(self, slot_id: int, reason: str) -> None:
        order = self._running.get(slot_id)
        if order is not None:
            self._answer(order, UnitFailed(order, SlotLost(reason)))

    def _call(self) -> None:
        self.n_calls += 1
        if self.n_calls == self._dies_at_call:
            self.die()
        if self.is_dead:
            raise Killed
