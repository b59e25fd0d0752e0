"""A world of slots, runs and faults with a clock of its own: what a coordinator meets, without a server.

    world = SimulatedWorld(slots, runs, seconds_of=lambda unit, slot_id: 1.0)
    world.at(5.0, lambda: world.cancel_run(1))
    process = world.process()
    asyncio.run(Coordinator(process, process, process, process).serve(until_idle=True))

Nothing sleeps: the clock jumps to the next event when every active process waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from easeml_db.coordinator.ports import Message, Order, RunChanged, SlotsChanged, Stop, TenantsChanged
from easeml_db.errors import EasemlError
from easeml_db.simulated.process import SimulatedProcess
from easeml_db.simulated.tables import BrokenRule, RecordedUnit, ScoreOf, Tables
from easeml_db.words.run import Run
from easeml_db.words.tenant import Tenancy
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import TrainingUnit

SecondsOf = Callable[[TrainingUnit, int], float]


SlowdownOf = Callable[[int], float]
QualityOf = Callable[[int, int], float]


def _half(run_id: int, arm_id: int) -> float:
    return 0.5


def _same(trial_number: int, epoch: int) -> float:
    return 0.5


def _no_slowdown(n_packed: int) -> float:
    return 1.0


def _no_failure(order: Order) -> EasemlError | None:
    return None


def _no_loss(order: Order) -> bool:
    return False


def _not_stuck(order: Order) -> float:
    return 0.0


@dataclass(frozen=True)
class Faults:
    """What goes wrong with units when they end, of a gang with any of its ranks: `failure_of` says with which error
    (TrialFailed: the trial's own; SlotLost: nothing was recorded); with `is_answer_lost` the unit is recorded and its
    session breaks. A unit with `stuck_seconds` > 0 is given up after its lease, goes on all the same and tries to be
    recorded after that time."""

    failure_of: Callable[[Order], EasemlError | None] = _no_failure
    is_answer_lost: Callable[[Order], bool] = _no_loss
    stuck_seconds: Callable[[Order], float] = _not_stuck


class SimulatedWorld:
    """Tables, slots and time. `seconds_of(unit, slot_id)` is how long a unit takes; opening a session takes
    `warm_seconds`; `quality_of(run_id, arm_id)` is what an arm comes to, `score_of(trial_number, epoch)` what a
    procedure sees of a trial, `slowdown_of(n)` how much slower each of n pilots on one device is. BrokenRule when the
    clock passes `horizon_seconds`: then somebody waits for ever."""

    def __init__(
        self,
        slots: Sequence[Slot],
        runs: Iterable[Run] = (),
        *,
        seconds_of: SecondsOf,
        faults: Faults | None = None,
        warm_seconds: float = 0.0,
        pruned_bytes: int = 1000,
        live_bytes: int = 0,
        quality_of: QualityOf = _half,
        score_of: ScoreOf = _same,
        slowdown_of: SlowdownOf = _no_slowdown,
        horizon_seconds: float = 20_000.0,
    ) -> None:
        self.tables = Tables(runs)
        self.quality_of, self.score_of = quality_of, score_of
        self.slots = tuple(slots)
        self.seconds_of, self.faults = seconds_of, faults or Faults()
        self.slowdown_of = slowdown_of
        self.pilots_begun: Counter[tuple[str, float]] = Counter()  # by device and time
        self.now_seconds = 0.0
        self.pruned_bytes, self.live_bytes, self.n_reclaims = pruned_bytes, live_bytes, 0
        self.stuck: dict[int, float] = {}  # until when, by slot
        self._warm_seconds, self._horizon_seconds = warm_seconds, horizon_seconds
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = count()
        self._down_until: dict[int, float] = {}
        self._processes: list[SimulatedProcess] = []
        self._holder: SimulatedProcess | None = None
        self._active: list[SimulatedProcess] = []
        self._deadlines: dict[SimulatedProcess, float] = {}

    @property
    def units(self) -> list[RecordedUnit]:
        """All recorded units, in the order in which they were recorded."""
        return self.tables.units

    def process(self, dies_at_call: int | None = None) -> SimulatedProcess:
        """Return the ports of one more coordinator process."""
        self._processes.append(SimulatedProcess(self, dies_at_call))
        return self._processes[-1]

    # What happens, now or later

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen when the clock stands at `seconds`."""
        heapq.heappush(self._events, (max(seconds, self.now_seconds), next(self._counter), action))

    def add_run(self, run: Run) -> None:
        """Somebody asks for a run."""
        self.tables.add_run(run)
        self._notify(RunChanged(run.run_id))

    def cancel_run(self, run_id: int) -> None:
        """Somebody cancels a run."""
        self.tables.cancel_run(run_id)
        self._notify(RunChanged(run_id))

    def resume_run(self, run_id: int) -> None:
        """Somebody resumes a run."""
        self.tables.resume_run(run_id)
        self._notify(RunChanged(run_id))

    def drop_run(self, run_id: int) -> None:
        """Somebody drops a run; as in SQL, only the cancel of an open one is told."""
        if any(run.run_id == run_id for run in self.tables.open_runs()):
            self.cancel_run(run_id)
        self.tables.drop_run(run_id)

    def set_tenancy(self, tenancy: Tenancy) -> None:
        """Somebody changes the policy, or a tenant's terms."""
        self.tables.tenancy = tenancy
        self._notify(TenantsChanged())

    def set_slots(self, slots: Sequence[Slot]) -> None:
        """Somebody changes the table of slots."""
        self.slots = tuple(slots)
        self._notify(SlotsChanged())

    def lose(self, slot_id: int) -> None:
        """The coordinator gives a slot up."""
        self.tables.lost_slots.add(slot_id)
        self.slots = tuple(replace(slot, state="lost") if slot.slot_id == slot_id else slot for slot in self.slots)

    def recover(self) -> list[int]:
        """Make active again the lost slots that are stuck no more; return them."""
        free = [slot for slot in self.tables.lost_slots if self.stuck.get(slot, 0.0) <= self.now_seconds]
        self.tables.lost_slots -= set(free)
        self.slots = tuple(replace(slot, state="active") if slot.slot_id in free else slot for slot in self.slots)
        return free

    def end_stuck(self, order: Order, started_seconds: float) -> None:
        """A unit that was given up wakes and tries to be recorded; BrokenRule if it can."""
        if any(slot_id in self.tables.lost_slots for slot_id in order.slot_ids):
            with contextlib.suppress(EasemlError):
                self.tables.record(order, started_seconds, self.now_seconds)
                raise BrokenRule(f"a slot of {order.slot_ids} was given up, and its unit was recorded all the same")

    def lose_slot(self, slot_id: int, down_seconds: float = 0.0) -> None:
        """All sessions of a slot break, and none can be opened for a while."""
        self._down_until[slot_id] = self.now_seconds + down_seconds
        for process in self._processes:
            process.break_session(slot_id)

    def stop(self) -> None:
        """Somebody wants the active coordinator to end."""
        self._notify(Stop())

    def cut_off(self) -> None:
        """The active coordinator loses its lock without noticing: another can take over while it goes on."""
        self._holder = None

    def _notify(self, message: Message) -> None:
        if self._holder is not None:
            self._holder.deliver(message)

    # What processes ask of it

    async def lock(self, process: SimulatedProcess) -> None:
        """Wait for the one lock."""
        while self._holder is not None:
            await asyncio.sleep(0)
        self._holder = process
        self._active.append(process)

    def unlock(self, process: SimulatedProcess) -> None:
        """Free the lock if this process has it."""
        if self._holder is process:
            self._holder = None

    def leave(self, process: SimulatedProcess) -> None:
        """Wait for this process no more."""
        self._deadlines.pop(process, None)
        if process in self._active:
            self._active.remove(process)

    def device_of(self, slot_id: int) -> str:
        """The device of a slot; a slot that was taken away has none."""
        return next((slot.device_name for slot in self.slots if slot.slot_id == slot_id), "")

    def is_down(self, slot_id: int) -> bool:
        """Say whether no session of this slot can be opened now."""
        return self._down_until.get(slot_id, 0.0) > self.now_seconds

    def ready_seconds(self, slot_id: int) -> float:
        """Say when a session that is asked for now will be open."""
        return max(self.now_seconds, self._down_until.get(slot_id, 0.0)) + self._warm_seconds

    async def wait(self, process: SimulatedProcess, timeout_seconds: float) -> None:
        """Return when the process has a message or its time is over."""
        await asyncio.sleep(0)  # others have their turn; no time passes
        # A wait always ends later, also one so short that the sum rounds to now.
        deadline = max(self.now_seconds + timeout_seconds, math.nextafter(self.now_seconds, math.inf))
        self._deadlines[process] = deadline if timeout_seconds > 0 else self.now_seconds
        while self._is_waiting(process):
            if all(self._is_waiting(other) for other in self._active):
                self._advance(min(self._deadlines.values()))
            else:
                await asyncio.sleep(0)
        self._deadlines.pop(process, None)

    def _is_waiting(self, process: SimulatedProcess) -> bool:
        return not process.inbox and self._deadlines.get(process, 0.0) > self.now_seconds

    def _advance(self, limit_seconds: float) -> None:
        """Let the next thing happen, or the time pass up to the limit."""
        if self.now_seconds > self._horizon_seconds:
            raise BrokenRule(f"no end after {self.now_seconds} seconds")
        if self._events and self._events[0][0] <= limit_seconds:
            self.now_seconds, _, action = heapq.heappop(self._events)
            action()
        else:
            self.now_seconds = limit_seconds
