"""The executor of one simulated process: units take simulated time, sessions break, slots get stuck."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from easeml_db.coordinator.ports.messages import (
    Message,
    Order,
    Piloted,
    SlotReady,
    SlotStuck,
    SlotWaiting,
    UnitFailed,
    UnitRecorded,
)
from easeml_db.decisions.trial_groups.measuring import Sample
from easeml_db.errors import EasemlError, ServerCrashed, SlotLost
from easeml_db.simulated.life import Life
from easeml_db.simulated.rows import BrokenRule
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import PILOT

PILOT_SECONDS = 0.0
N_ITERATIONS = 40  # of a pilot that measures alone
UNIT_LEASE_SECONDS = 60.0
SILENT_SECONDS = 3.6  # a session that takes longer to open is reported


class SimulatedExecutor:
    """Executor in memory. Raises BrokenRule where an order breaks a rule of the trade."""

    def __init__(self, life: Life) -> None:
        self._life, self._world, self._tables = life, life.world, life.world.tables
        self._open_slots: set[int] = set()
        self._ready: set[int] = set()  # slots with a session
        self._broken: set[int] = set()  # of these, sessions that broke while they were idle
        self._running: dict[int, Order] = {}
        self._trials: set[int] = set()  # in a unit
        self._batch_failures: dict[int, dict[int, EasemlError]] = {}  # of members, by trial, by the slot of a batch

    async def open(self, slots: Sequence[Slot]) -> None:
        """Open sessions for these slots, and close those of all others."""
        self._life.call()
        slot_ids = {slot.slot_id for slot in slots}
        for slot_id in sorted(self._open_slots - slot_ids):
            self._ready.discard(slot_id)
            order = self._running.get(slot_id)
            if order is not None:
                self._answer_lost(slot_id, "the slot was taken away")
                self._say_ready(other for other in order.slot_ids if other in slot_ids)
        new, self._open_slots = slot_ids - self._open_slots, slot_ids
        for slot_id in sorted(new):
            self._connect(slot_id)

    async def start(self, order: Order) -> None:
        """Begin a unit or a gang and return at once; BrokenRule where that breaks a rule of the trade."""
        self._life.call()
        self._check(order)
        self._running |= dict.fromkeys(order.slot_ids, order)
        self._trials.update(_trials_of(order))
        started = self._world.now_seconds
        broken = [slot_id for slot_id in order.slot_ids if slot_id in self._broken]
        if broken:
            self._world.time.at(started, lambda: self.break_session(broken[0]))
            return
        refused = _refused(order, self._tables.recorder.open_unit)
        if order.is_batch:
            self._batch_failures[order.slot_id] = refused
        if refused and not order.is_batch:
            self._world.time.at(started, lambda: self._answer(order, UnitFailed(order, *refused.values())))
        else:
            self._run(order, started)

    def _run(self, order: Order, started: float) -> None:
        """Let a unit end after its time, a gang after the longest of its units, a whole round after all of them, a
        batch sooner; one that is stuck is given up after its lease, and ends much later."""
        is_pilot = order.unit.kind == PILOT
        ranks = order.alone()
        together = max if order.is_gang else sum
        seconds = PILOT_SECONDS if is_pilot else together(self._world.seconds_of(r.unit, r.slot_id) for r in ranks)
        seconds *= self._world.batch_share if order.is_batch else 1.0
        if order.measured_seconds:
            seconds = order.measured_seconds
            self._world.pilots_begun[self._world.device_of(order.slot_id), started] += 1
        stuck = {one.slot_id: at for one in ranks if (at := self._world.faults.stuck_seconds(one))}
        if stuck:
            self._world.time.at(started + UNIT_LEASE_SECONDS, lambda: self._give_up(order, tuple(stuck)))
            self._world.stuck |= {slot_id: started + stuck_seconds for slot_id, stuck_seconds in stuck.items()}
        self._world.time.at(started + max(seconds, *stuck.values(), 0.0), lambda: self._end_unit(order, started))

    def _give_up(self, order: Order, stuck: tuple[int, ...]) -> None:
        """Give up the slots that are stuck; the others of a gang work again."""
        if self._running.get(order.slot_id) is not order:
            return
        self._ready.difference_update(stuck)
        self._open_slots.difference_update(stuck)
        self._answer(order, SlotStuck(order, "a unit gave no sign of life", stuck))
        self._say_ready(slot_id for slot_id in order.slot_ids if slot_id not in stuck)

    async def cancel(self, slot_id: int) -> None:
        """Stop the slot's unit, and all of its gang; the sessions stay."""
        self._life.call()
        order = self._running.get(slot_id)
        if order is not None:
            self._answer_lost(slot_id, "canceling statement due to user request")
            self._say_ready(order.slot_ids)

    async def close(self) -> None:
        """Cancel running units and close all sessions. A dead process cannot."""
        if self._life.is_dead:
            return
        self._running.clear()
        self._trials.clear()
        self._open_slots.clear()
        self._ready.clear()
        self._world.time.leave(self._life)

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
        if order.is_gang and len(order.slot_ids) <= len(order.members):
            raise BrokenRule(f"a slot is in the gang {order.slot_ids} more than once")
        for slot_id in order.slot_ids:
            if slot_id not in self._ready:
                raise BrokenRule(f"slot {slot_id} is not open")
            if slot_id in self._running:
                raise BrokenRule(f"slot {slot_id} runs a unit already")
        trials = _trials_of(order)
        if self._trials.intersection(trials):
            raise BrokenRule(f"a trial of {trials} is in a unit already")
        if order.is_batch:
            self._check_batch(order, trials)

    def _check_batch(self, order: Order, trials: Sequence[int]) -> None:
        runs = {one.unit.run_id for one in order.by_trial()}
        keys = [self._tables.run(run_id).batch_keys.get(trial) for run_id in runs for trial in trials]
        if len(set(trials)) < len(trials) or len(runs) > 1 or len(set(keys)) > 1 or keys[0] is None:
            raise BrokenRule(f"trials {trials} of runs {runs} are no batch: their keys are {keys}")
        if len({one.unit.kind for one in order.by_trial()}) > 1:
            raise BrokenRule(f"the units of the batch on slot {order.slot_id} are of several kinds")

    def _say_ready(self, slot_ids: Iterable[int]) -> None:
        """Report that slots whose unit failed can work again; a broken session shows later."""
        for slot_id in slot_ids:
            if slot_id in self._ready:
                self._life.deliver(SlotReady(slot_id))

    def _connect(self, slot_id: int) -> None:
        now = self._world.now_seconds
        if self._world.ready_seconds(slot_id) > now + SILENT_SECONDS:
            self._world.time.at(now + SILENT_SECONDS, lambda: self._life.deliver(SlotWaiting(slot_id, "no session")))
        self._world.time.at(self._world.ready_seconds(slot_id), lambda: self._connected(slot_id))

    def _connected(self, slot_id: int) -> None:
        if slot_id not in self._open_slots or slot_id in self._ready or self._life.is_dead:
            return
        if self._world.is_down(slot_id):
            self._connect(slot_id)
            return
        self._ready.add(slot_id)
        self._life.deliver(SlotReady(slot_id))

    def _end_unit(self, order: Order, started_seconds: float) -> None:
        """Record a unit as its last transaction does, unless it was cancelled or lost."""
        if self._running.get(order.slot_id) is not order:
            self._world.end_stuck(order, started_seconds)
            return
        try:
            for one in order.alone():
                error = self._world.faults.failure_of(one)
                if error is not None and order.is_batch and not isinstance(error, SlotLost | ServerCrashed):
                    self._batch_failures[order.slot_id].setdefault(one.unit.trial_id, error)
                elif error is not None:
                    raise error
            if order.unit.kind == PILOT:
                self._end_pilot(order, started_seconds)
                return
            self._record(order, started_seconds)
        except SlotLost:
            self.break_session(order.slot_id)
        except ServerCrashed as crash:
            self._answer(order, UnitFailed(order, crash))
            for slot_id in order.slot_ids:
                self._ready.discard(slot_id)
                self._connect(slot_id)
        except EasemlError as refusal:
            self._answer(order, UnitFailed(order, refusal))
        else:
            self._answer_recorded(order, self._world.now_seconds - started_seconds)

    def _record(self, order: Order, started_seconds: float) -> None:
        """Record a unit, without those members of a batch that failed meanwhile."""
        now = self._world.now_seconds
        if not order.is_batch:
            self._tables.recorder.record(order, started_seconds, now)
            return
        failures, share = self._batch_failures[order.slot_id], (now - started_seconds) / len(order.by_trial())
        for place, one in enumerate(order.by_trial()):
            if one.unit.trial_id not in failures:
                first = started_seconds + place * share
                record = partial(self._tables.recorder.record, started_seconds=first, finished_seconds=first + share)
                failures |= _refused(one, record)

    def _end_pilot(self, order: Order, started_seconds: float) -> None:
        """End a pilot: its time is exactly that of a unit over its partition."""
        train, evaluate = (
            self._world.seconds_of(replace(order.unit, kind=kind), order.slot_id) for kind in ("train", "validate")
        )
        if not order.members:
            self._tables.recorder.record_pilot(order, train, evaluate)
        sample = self._sample(order, started_seconds) if order.measured_seconds and not order.members else None
        self._answer(order, Piloted(order, train, evaluate, sample))

    def _sample(self, order: Order, started_seconds: float) -> Sample:
        """Return iterations slowed by the pilots that began on the same device at the same time."""
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
            failures = self._batch_failures.pop(order.slot_id, {}) if order.is_batch else {}
            self._answer(order, UnitRecorded(order, seconds, self._world.pruned_bytes, failures))

    def _answer(self, order: Order, message: Message) -> None:
        if self._running.get(order.slot_id) is order:
            for slot_id in order.slot_ids:
                del self._running[slot_id]
            self._trials.difference_update(_trials_of(order))
            self._life.deliver(message)

    def _answer_lost(self, slot_id: int, reason: str) -> None:
        order = self._running.get(slot_id)
        if order is not None:
            self._answer(order, UnitFailed(order, SlotLost(reason)))


def _trials_of(order: Order) -> list[int]:
    return [one.unit.trial_id for one in order.by_trial()]


def _refused(order: Order, write: Callable[[Order], object]) -> dict[int, EasemlError]:
    """Write something about an order, about each member of a batch by itself; return the errors, by trial."""
    errors: dict[int, EasemlError] = {}
    for one in order.by_trial():
        try:
            write(one)
        except EasemlError as refusal:
            errors[one.unit.trial_id] = refusal
    return errors
