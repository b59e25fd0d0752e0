"""Runs whose rows an open transaction holds: put aside for growing pauses, while slots work for others."""

from __future__ import annotations

import asyncio

import pytest

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.pauses import Pauses
from easeml_db.decisions.retry import ROWS_PAUSE
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.topology import Slot

LAST_PAUSE_SECONDS = ROWS_PAUSE.most_seconds


def test_pauses_grow_up_to_seconds_and_begin_anew_once_a_unit_is_recorded() -> None:
    pauses: Pauses[int] = Pauses()
    now, lengths = 0.0, []
    for _ in range(8):
        assert pauses.begin(1, now, ROWS_PAUSE.seconds(pauses.n_in_a_row(1)))
        assert not pauses.begin(1, now, 60.0), "another unit of the same run met the same transaction"
        lengths.append(pauses.next_end() - now)
        now = pauses.next_end()
        assert pauses.take_ended(now) == [1]
    assert lengths == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, LAST_PAUSE_SECONDS, LAST_PAUSE_SECONDS])
    pauses.went_well(1)
    pauses.begin(1, now, ROWS_PAUSE.seconds(pauses.n_in_a_row(1)))
    assert pauses.next_end() - now == pytest.approx(0.1)
    assert pauses.first_end([1, 2]) == 0.0
    pauses.take_ended(now + 1.0)
    pauses.forget_unless(lambda run_id: False)
    assert (pauses.next_end(), pauses.n_in_a_row(1)) == (float("inf"), 0)


def test_slots_work_for_others_while_the_rows_of_a_run_are_held_and_nobody_is_to_blame() -> None:
    held = new_run(1, n_trials=4, n_partitions=1, max_epochs=5, tenant="mallory")
    other = new_run(2, n_trials=2, n_partitions=1, max_epochs=5, tenant="vera")
    slots = [Slot(number, f"slot-{number}", 1) for number in (1, 2)]
    world = SimulatedWorld(slots, [held, other], seconds_of=lambda unit, slot_id: 1.0)
    world.at(2.5, lambda: world.tables.held.add(1))
    world.at(60.0, lambda: world.tables.held.discard(1))
    asyncio.run(Coordinator(SimulatedProcess(world).ports).serve(until_idle=True))
    assert {run.status for run in world.tables.runs_by_id.values()} == {"finished"}
    ends = {run_id: [u.finished_seconds for u in world.units if u.order.unit.run_id == run_id] for run_id in (1, 2)}
    assert max(ends[2]) < 20.0
    assert not [second for second in ends[1] if 2.5 < second < 60.0]
    assert max(ends[1]) < 60.0 + LAST_PAUSE_SECONDS + 40.0
    assert {unit.order.attempt for unit in world.units} == {1}
    assert not [kind for kind, _ in world.tables.notes if kind == "retry"]


def test_a_run_whose_rows_are_held_at_its_end_ends_once_they_are_free() -> None:
    run = new_run(1, n_trials=1, n_partitions=1, max_epochs=1)
    world = SimulatedWorld([Slot(1, "slot-1", 1)], [run], seconds_of=lambda unit, slot_id: 1.0)
    finish, refusals = world.tables.runs.finish, []

    def finish_later(run_id: int, lease_number: int, now_seconds: float) -> bool:
        refusals.append(now_seconds)
        return len(refusals) > 3 and finish(run_id, lease_number, now_seconds)

    world.tables.runs.finish = finish_later  # type: ignore[method-assign]
    asyncio.run(Coordinator(SimulatedProcess(world).ports).serve(until_idle=True))
    assert world.tables.run(1).status == "finished"
    assert len(refusals) == 4
