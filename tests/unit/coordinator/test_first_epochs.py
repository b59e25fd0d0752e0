"""No trial trains on for long while another of its run has nothing to show: a leaderboard ranks all of them early."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from easeml_db.coordinator.loop import Coordinator
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.run import Run
from easeml_db.words.topology import Slot
from easeml_db.words.training_unit import TrainingUnit

SECONDS = {1: 1.0, 2: 3.0, 3: 1.2}  # of a unit, by trial number


def epochs_validated(run: Run, n_slots: int) -> list[int]:
    """Serve a run; return the trials in the order in which their epochs were validated."""

    def seconds_of(unit: TrainingUnit, slot_id: int) -> float:
        return SECONDS[unit.trial_number] * (1.0 if unit.kind == "train" else 0.3)

    slots = [Slot(k, f"slot-{k}", 1) for k in range(1, n_slots + 1)]
    world = SimulatedWorld(slots, [run], seconds_of=seconds_of)
    asyncio.run(Coordinator(SimulatedProcess(world).ports).serve(until_idle=True))
    p = run.trials[0].n_partitions
    units = sorted(world.units, key=lambda unit: unit.finished_seconds)
    orders = [unit.order.unit for unit in units if unit.order.unit.kind == "validate"]
    return [unit.trial_number for unit in orders if (unit.step + 1) % p == 0]


@pytest.mark.parametrize("n_slots", [1, 2])
@pytest.mark.parametrize("scheduler", ["auto", "longest_remaining"])
def test_each_trial_has_its_first_epoch_before_another_has_a_third(scheduler: str, n_slots: int) -> None:
    run = replace(new_run(1, n_trials=3, n_partitions=2, max_epochs=30), scheduler=scheduler)
    order = epochs_validated(run, n_slots)
    assert Counter(order) == {1: 30, 2: 30, 3: 30}
    assert max(order.index(trial) for trial in (1, 2, 3)) <= 2 * 3 - 2
    until_all = order[: max(order.index(trial) for trial in (1, 2, 3)) + 1]
    assert max(Counter(until_all).values()) <= 2


def test_a_time_limit_finds_all_trials_equally_far() -> None:
    run = replace(new_run(1, n_trials=3, n_partitions=2, max_epochs=300), max_seconds=200.0)
    counts = Counter(epochs_validated(run, 1))
    assert set(counts) == {1, 2, 3}
    assert max(counts.values()) - min(counts.values()) <= 2
    assert min(counts.values()) >= 5
