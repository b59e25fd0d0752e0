"""A simulated world of slots, runs and faults, with its own clock: what a coordinator meets, without a server.

    world = SimulatedWorld(slots, runs, seconds_of=lambda unit, slot_id: 1.0)
    world.at(5.0, lambda: world.cancel_run(1))
    asyncio.run(Coordinator(SimulatedProcess(world).ports).serve(until_idle=True))

Nothing sleeps: the clock jumps to the next event when every active process waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from easeml_db.coordinator.ports.messages import (
    Message,
    Order,
    RunChanged,
    SlotsChanged,
    StopRequested,
    TenantsChanged,
)
from easeml_db.errors import EasemlError
from easeml_db.simulated.cloud import Cloud, CloudFaults
from easeml_db.simulated.faults import Faults, QualityOf, SecondsOf, SlowdownOf, half, no_slowdown, same
from easeml_db.simulated.rows import BrokenRule, RecordedUnit, ScoreOf
from easeml_db.simulated.tables import Tables
from easeml_db.simulated.time import SimulatedTime, Waiting
from easeml_db.words.run import Run
from easeml_db.words.tenant import Tenancy
from easeml_db.words.topology import Slot


class Holder(Waiting, Protocol):
    """A process that may hold the lease, and is notified of changes by others."""

    def deliver(self, message: Message) -> None:
        """Put a message into its inbox."""


class Process(Holder, Protocol):
    """A coordinator process, as the world sees it."""

    def break_session(self, slot_id: int) -> None:
        """Lose a session."""


class SimulatedWorld:
    """Tables, slots and time. `seconds_of(unit, slot_id)` is how long a unit takes; opening a session takes
    `warm_seconds`; `quality_of(run_id, arm_id)` is the quality that an arm reaches, `score_of(trial_number, epoch)`
    what a procedure sees of a trial, `slowdown_of(n)` how much slower each of n pilots on one device is; a batch takes
    `batch_share` of what its units take one after another. `cloud_faults` gives the fates of instances,
    `max_local_slots` how many slots this server may have with those that planned runs add. Raises BrokenRule when the
    clock passes `horizon_seconds`, because then some process waits for ever.
    """

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
        quality_of: QualityOf = half,
        score_of: ScoreOf = same,
        slowdown_of: SlowdownOf = no_slowdown,
        batch_share: float = 0.5,
        horizon_seconds: float = 20_000.0,
        cloud_faults: CloudFaults | None = None,
        max_local_slots: int = 0,
    ) -> None:
        self.tables = Tables(runs, quality_of=quality_of, score_of=score_of)
        self.slots = tuple(slots)
        self.seconds_of, self.faults = seconds_of, faults or Faults()
        self.slowdown_of, self.batch_share = slowdown_of, batch_share
        self.pilots_begun: Counter[tuple[str, float]] = Counter()  # by device and time
        self.time = SimulatedTime(horizon_seconds)
        self.cloud = Cloud(self.time, cloud_faults)
        self.n_base_slots, self.max_local_slots = max((slot.slot_id for slot in slots), default=0), max_local_slots
        self.pruned_bytes, self.live_bytes, self.n_reclaims = pruned_bytes, live_bytes, 0
        self.n_task_looks = 0
        self.stuck: dict[int, float] = {}  # until when, by slot
        self._warm_seconds = warm_seconds
        self._down_until: dict[int, float] = {}
        self._processes: list[Process] = []
        self._holder: Holder | None = None

    @property
    def units(self) -> list[RecordedUnit]:
        """All recorded units, in the order in which they were recorded."""
        return self.tables.units

    @property
    def now_seconds(self) -> float:
        """Seconds since the world began."""
        return self.time.now_seconds

    def enter(self, process: Process) -> None:
        """Add a coordinator process."""
        self._processes.append(process)

    # What happens, now or later

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action for when the clock shows `seconds`."""
        self.time.at(seconds, action)

    def add_run(self, run: Run) -> None:
        """Add a run, as a user does."""
        self.tables.runs.add_run(run)
        self._notify(RunChanged(run.run_id))

    def cancel_run(self, run_id: int) -> None:
        """Cancel a run, as a user does."""
        self.tables.runs.cancel_run(run_id)
        self._notify(RunChanged(run_id))

    def resume_run(self, run_id: int) -> None:
        """Resume a run, as a user does."""
        self.tables.runs.resume_run(run_id)
        self._notify(RunChanged(run_id))

    def drop_run(self, run_id: int) -> None:
        """Drop a run as a user; as in SQL, only the cancel of an open run is reported."""
        if any(run.run_id == run_id for run in self.tables.open_runs()):
            self.cancel_run(run_id)
        self.tables.runs.drop_run(run_id)

    def set_tenancy(self, tenancy: Tenancy) -> None:
        """Change the policy or a tenant's terms, as an administrator does."""
        self.tables.tenancy = tenancy
        self._notify(TenantsChanged())

    def set_slots(self, slots: Sequence[Slot]) -> None:
        """Change the table of slots, as an administrator does."""
        self.slots = tuple(slots)
        self._notify(SlotsChanged())

    def lose(self, slot_id: int) -> None:
        """Give a slot up, as the coordinator does."""
        self.tables.lost_slots.add(slot_id)
        self.slots = tuple(replace(slot, status="lost") if slot.slot_id == slot_id else slot for slot in self.slots)

    def recover(self) -> list[int]:
        """Make active again the lost slots that are stuck no more; return them."""
        free = [slot for slot in self.tables.lost_slots if self.stuck.get(slot, 0.0) <= self.now_seconds]
        self.tables.lost_slots -= set(free)
        self.slots = tuple(replace(slot, status="active") if slot.slot_id in free else slot for slot in self.slots)
        return free

    def end_stuck(self, order: Order, started_seconds: float) -> None:
        """Wake a unit that was given up, and let it try to be recorded; BrokenRule if it can."""
        if any(slot_id in self.tables.lost_slots for slot_id in order.slot_ids):
            with contextlib.suppress(EasemlError):
                for one in order.by_trial():
                    self.tables.recorder.record(one, started_seconds, self.now_seconds)
                raise BrokenRule(f"a slot of {order.slot_ids} was given up, and its unit was recorded all the same")

    def lose_slot(self, slot_id: int, down_seconds: float = 0.0) -> None:
        """Break all sessions of a slot, and let none be opened for a while."""
        self._down_until[slot_id] = self.now_seconds + down_seconds
        for process in self._processes:
            process.break_session(slot_id)

    def stop(self) -> None:
        """Ask the active coordinator to stop."""
        self._notify(StopRequested())

    def cut_off(self) -> None:
        """Take the lock from the active coordinator without its noticing: another can take over while it runs."""
        self._holder = None

    def _notify(self, message: Message) -> None:
        if self._holder is not None:
            self._holder.deliver(message)

    # What processes ask of it

    async def lock(self, process: Holder) -> None:
        """Wait for the one lock."""
        while self._holder is not None:
            await asyncio.sleep(0)
        self._holder = process
        self.time.enter(process)

    def unlock(self, process: Holder) -> None:
        """Free the lock if this process has it."""
        if self._holder is process:
            self._holder = None

    def device_of(self, slot_id: int) -> str:
        """Return the device of a slot; a slot that was taken away has none."""
        return next((slot.device_name for slot in self.slots if slot.slot_id == slot_id), "")

    def is_down(self, slot_id: int) -> bool:
        """Return whether no session of this slot can be opened now."""
        return self._down_until.get(slot_id, 0.0) > self.now_seconds

    def ready_seconds(self, slot_id: int) -> float:
        """Return when a session that is requested now will be open."""
        return max(self.now_seconds, self._down_until.get(slot_id, 0.0)) + self._warm_seconds
