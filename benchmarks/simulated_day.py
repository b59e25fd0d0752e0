"""What grows in a coordinator in a day of twenty tenants on the simulated clock, where nothing sleeps.

The loop itself serves eight slots that are busy four fifths of the day, with every heartbeat and look at its tables.
Each tenant starts its next run at its own pace. A run has 8 trials, 5 epochs and 2 partitions, a unit takes 2 to 6
seconds; one in a thousand is lost and runs again, one in ten thousand fails its trial, and some runs are cancelled.
Runs that ended are dropped an hour later, together with their rows in the simulated tables. So the memory of the
process is that of the coordinator: the median of its last third over that of its second.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from zlib import crc32

from comparison.measuring import Row, Timer, timed
from workload import Workload

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.ports.messages import Order
from easeml_db.errors import EasemlError, SlotLost, TrialFailed
from easeml_db.simulated import SimulatedProcess, SimulatedWorld
from easeml_db.simulated.faults import Faults
from easeml_db.simulated.new_runs import new_run
from easeml_db.words.topology import Slot

HOURS = 24.0
N_TENANTS, N_SLOTS, N_TRIALS, N_PARTITIONS, N_EPOCHS = 20, 8, 8, 2, 5
UNIT_SECONDS, BUSY = 4.0, 0.8
GROWTH = 1.05
MOST_PAST_ARMS = 200
"""That the simulated tables keep for priors, as the real ones keep those of the newest runs."""
N_UNITS = N_TRIALS * (2 * N_EPOCHS + 1) * N_PARTITIONS
PERIOD_SECONDS = N_TENANTS * N_UNITS * UNIT_SECONDS / (N_SLOTS * BUSY)
"""Of the runs of one tenant."""


@dataclass(frozen=True)
class Look:
    """The process at one moment."""

    n_bytes: int
    n_objects: int
    n_files: int


class Day:
    """A world in which tenants come and go for some hours, and what was seen of the process meanwhile."""

    def __init__(self, hours: float) -> None:
        self.seconds = 3600 * hours
        slots = [Slot(number, f"s{number}", 1) for number in range(1, N_SLOTS + 1)]
        self.world = SimulatedWorld(
            slots,
            seconds_of=_seconds_of,
            faults=Faults(failure_of=_failure_of),
            horizon_seconds=self.seconds + 36_000.0,
        )
        self.looks: list[Look] = []
        self.statuses: dict[str, int] = {}
        self.n_units = 0
        for tenant in range(N_TENANTS):
            self._start(tenant, 1 + tenant)
        for hour in range(int(2 * hours)):
            self.world.at(1800.0 * (1 + hour), self._look)
        self.world.at(self.seconds + 4 * PERIOD_SECONDS, self.world.stop)

    def serve(self) -> None:
        """Let the coordinator serve the hours, and a while longer, in which the last runs end and are dropped."""
        asyncio.run(Coordinator(SimulatedProcess(self.world).ports).serve())

    def _start(self, tenant: int, run_id: int) -> None:
        """A tenant starts a run, and later the next; the run before the last is dropped."""
        now = self.world.now_seconds
        run = new_run(
            run_id, n_trials=N_TRIALS, n_partitions=N_PARTITIONS, max_epochs=N_EPOCHS, seed=run_id,
            architectures=("mlp", "linear"), tenant=f"tenant_{tenant}",
        )  # fmt: skip
        self.world.add_run(run)
        if run_id % 50 == 0:
            self.world.at(now + PERIOD_SECONDS / 4, lambda: self._cancel(run_id))
        self.world.at(now + PERIOD_SECONDS + 3600.0, lambda: self._drop(run_id))
        pace = PERIOD_SECONDS * (0.75 + 0.5 * (run_id * 7919 % 101) / 101)
        if now + pace < self.seconds:
            self.world.at(now + pace, lambda: self._start(tenant, run_id + N_TENANTS))

    def _cancel(self, run_id: int) -> None:
        if self.world.tables.is_open(run_id):
            self.world.cancel_run(run_id)

    def _drop(self, run_id: int) -> None:
        if self.world.tables.is_open(run_id):
            self.world.at(self.world.now_seconds + 600.0, lambda: self._drop(run_id))
            return
        tables = self.world.tables
        status = tables.runs_by_id[run_id].status
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.n_units += sum(unit.order.unit.run_id == run_id for unit in tables.units)
        arms = {arm.arm_id for arm in tables.runs_by_id[run_id].arms}
        trials = {trial.trial_id for trial in tables.runs_by_id[run_id].trials}
        self.world.drop_run(run_id)
        tables.notes.clear()
        tables.plans = [each for each in tables.plans if each[0] != run_id]
        tables.openings = [each for each in tables.openings if each.arm_id not in arms]
        tables.allocations = [each for each in tables.allocations if each[0] != run_id]
        tables.recorder.forget(trials)
        tables.past_arms = tables.past_arms[-MOST_PAST_ARMS:]
        for trial_id in trials:
            tables.n_crashes.pop(trial_id, None)

    def _look(self) -> None:
        gc.collect()
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
        private = sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:")))
        self.looks.append(Look(1024 * private, len(gc.get_objects()), len(list(Path("/proc/self/fd").iterdir()))))


def measure(workload: Workload) -> Iterator[Row]:
    """Simulate a day, or as many hours as the environment variable SIMULATED_HOURS says."""
    hours = 2.0 if workload.is_quick else float(os.environ.get("SIMULATED_HOURS", HOURS))
    yield from rows_of(hours)


def rows_of(hours: float) -> Iterator[Row]:
    """Yield what grew in so many hours."""
    day = Day(hours)
    with timed() as timer:
        day.serve()
    yield from _rows(day, hours, timer)


def _rows(day: Day, hours: float, timer: Timer) -> Iterator[Row]:
    n_runs = sum(day.statuses.values())
    setting = f"{hours:g} hours, {N_TENANTS} tenants, {n_runs} runs, {day.n_units} units"
    third = max(1, len(day.looks) // 3)
    before, after = day.looks[third : 2 * third], day.looks[2 * third :]
    for name, value in {
        "memory of the process": lambda look: look.n_bytes / 2**20,
        "objects of Python": lambda look: look.n_objects,
        "open files": lambda look: look.n_files,
    }.items():
        first, last = median(map(value, before)), median(map(value, after))
        shown = f"{value(day.looks[0]):,.4g} at first, {first:,.4g}, then {last:,.4g}"
        yield Row(name, f"{shown}; {setting}", last / first, "x", at_most=GROWTH)
    failed = day.statuses.get("failed", 0) + day.statuses.get("queued", 0) + day.statuses.get("running", 0)
    yield Row("runs that failed or never ended", f"{day.statuses}; {setting}", failed, "", at_most=0)
    yield Row("the loop for an hour of the day", setting, float(timer.seconds) / hours, "s")


def _seconds_of(unit: object, slot_id: int) -> float:
    """Return 2 to 6 seconds, always the same for the same unit."""
    return UNIT_SECONDS * (0.5 + _drawn((unit, slot_id)) % 1009 / 1009)


def _failure_of(order: Order) -> EasemlError | None:
    drawn = _drawn((order.unit, order.attempt)) % 10_000
    if drawn < 1:
        return TrialFailed("a trial of the simulated day fails")
    return SlotLost("a session of the simulated day is lost") if drawn < 11 else None


def _drawn(of: object) -> int:
    """Return a number that is the same in every process, as hashes of text are not."""
    return crc32(repr(of).encode())


if __name__ == "__main__":
    for row in rows_of(float(os.environ.get("SIMULATED_HOURS", HOURS))):
        print(row.name, row.setting, f"{row.value:.4g} {row.unit}", row.holds)
