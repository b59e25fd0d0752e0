"""What one decision of the coordinator takes with a thousand segments, ten thousand trials and a hundred tenants.

The real loop runs on the simulated world, each measurement in a process of its own, whose largest memory is read at
the end. Each segment has a slot; each tenant has a run of a hundred trials, on a dataset whose ten partitions lie on
ten segments. In the last setting each partition has three copies, so a segment has those of three tenants. A decision
is a unit that is started: the loop handles its answer and chooses what follows.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

from comparison.measuring import Row
from workload import Workload

from easeml_db.coordinator.loop import Coordinator
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.topology import Slot

N_SEGMENTS, N_TENANTS, N_TRIALS, N_PARTITIONS = 1_000, 100, 100, 10
MOST_MS, MOST_GB = 1.0, 2.0


def measure(workload: Workload) -> Iterator[Row]:
    """Yield the milliseconds of a decision and the gigabytes of the process, for one and for three copies."""
    for n_copies in (1, 3):
        sizes = [100, 10, 10, n_copies] if workload.is_quick else [N_SEGMENTS, N_TENANTS, N_TRIALS, n_copies]
        found = [_apart(sizes) for _ in range(workload.repeats(3))]
        n_units, n_all = found[0]["n_units"], sizes[1] * sizes[2]
        setting = (
            f"{sizes[0]} simulated segments of a slot, {n_all} trials of {sizes[1]} tenants, {n_copies} copies of"
            f" {N_PARTITIONS} partitions, {n_units:.0f} units; median of {len(found)}, loop and simulation together"
        )
        milliseconds, gigabytes = (median(each[name] for each in found) for name in ("milliseconds", "gigabytes"))
        yield Row("a decision with many segments", setting, milliseconds, "ms", at_most=MOST_MS)
        yield Row("memory with many segments", setting, gigabytes, "GB", at_most=MOST_GB)


def _apart(sizes: list[int]) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def once(n_segments: int, n_tenants: int, n_trials: int, n_copies: int) -> dict[str, float]:
    """Run it; return what it took."""
    slots = [Slot(i, f"slot-{i}", i) for i in range(1, n_segments + 1)]
    runs = []
    for tenant in range(n_tenants):
        holders = [
            {1 + (tenant * N_PARTITIONS + part + copy * 7 * N_PARTITIONS) % n_segments for copy in range(n_copies)}
            for part in range(N_PARTITIONS)
        ]
        more = {"holders": holders, "tenant": f"tenant-{tenant}", "seed": tenant}
        runs.append(new_run(tenant + 1, n_trials=n_trials, n_partitions=N_PARTITIONS, max_epochs=1, **more))
    world = SimulatedWorld(slots, runs, seconds_of=lambda unit, slot_id: 1.0 + (unit.step * 7 + slot_id) % 5 / 10)
    process = SimulatedProcess(world)
    started = time.process_time()
    asyncio.run(Coordinator(process.ports).serve(until_idle=True))
    seconds = time.process_time() - started
    n_units = len(world.units)
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"milliseconds": seconds / n_units * 1e3, "gigabytes": gigabytes, "n_units": n_units}


if __name__ == "__main__":
    print(json.dumps(once(*map(int, sys.argv[1:]))))
