"""Runs whose rows make no sense: whatever they raise ends them with a reason, and no other run."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from easeml_db.coordinator.loop import Coordinator
from easeml_db.errors import InvalidData
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.run import Run
from easeml_db.words.run_check import check_run
from easeml_db.words.topology import Slot


def run_of(run_id: int, **changes: object) -> Run:
    return replace(new_run(run_id, n_trials=2, n_partitions=2, max_epochs=2), **changes)  # type: ignore[arg-type]


def with_trial(run: Run, **changes: object) -> Run:
    first, *others = run.trials
    return replace(run, trials=(replace(first, **changes), *others))  # type: ignore[arg-type]


SENSELESS = [
    (run_of(1, trials=()), "run 1 has no trials"),
    (run_of(1, holders=(frozenset({1}),)), "run 1: its dataset has 2 partition(s), and 1 are there"),
    (with_trial(run_of(1), n_partitions=0), "no partitions"),
    (with_trial(run_of(1), max_epochs=0), "trial 1: it has no epochs"),
    (with_trial(run_of(1), target_epochs=0), "its target"),
    (with_trial(run_of(1), n_steps_done=11), "more steps"),
    (with_trial(run_of(1), n_steps_done=-1), "more steps"),
    (with_trial(run_of(1), met=frozenset({2})), "met partitions"),
]


@pytest.mark.parametrize(("run", "reason"), SENSELESS)
def test_rows_that_nobody_could_serve_are_told_apart(run: Run, reason: str) -> None:
    with pytest.raises(InvalidData) as caught:
        check_run(run)
    assert reason in str(caught.value)


def test_rows_that_make_sense_pass() -> None:
    check_run(run_of(1))
    check_run(with_trial(run_of(1, holders=(frozenset(), frozenset({1}))), n_steps_done=10, target_epochs=2))


def served(world: SimulatedWorld) -> SimulatedWorld:
    """Serve until no run is open."""
    asyncio.run(Coordinator(SimulatedProcess(world).ports).serve(until_idle=True))
    return world


def world_of(*runs: Run) -> SimulatedWorld:
    return SimulatedWorld([Slot(1, "slot-1", 1)], runs, seconds_of=lambda unit, slot_id: 1.0)


@pytest.mark.parametrize(
    "senseless",
    [
        run_of(2, holders=(frozenset({1}),)),
        run_of(2, allocation="all of them"),
        run_of(2, architectures={}),
        with_trial(run_of(2), n_steps_done=11),
    ],
)
def test_a_run_that_makes_no_sense_fails_alone(senseless: Run) -> None:
    world = served(world_of(run_of(1), senseless, run_of(3)))
    assert [world.tables.run(run_id).status for run_id in (1, 2, 3)] == ["finished", "failed", "finished"]
    (reason,) = [text for kind, text in world.tables.notes if kind == "refused"]
    assert reason.startswith("the run cannot be served: ")


def test_a_run_that_cannot_be_read_fails_alone_whenever_it_comes() -> None:
    world = world_of(run_of(1), run_of(2))
    world.tables.unreadable = {2, 3}
    world.at(3.0, lambda: world.add_run(run_of(3)))
    served(world)
    assert [world.tables.run(run_id).status for run_id in (1, 2, 3)] == ["finished", "failed", "failed"]


def test_a_run_that_cannot_be_read_and_is_held_fails_once_it_is_not() -> None:
    world = world_of(run_of(1), run_of(2))
    world.tables.unreadable, world.tables.held = {2}, {2}
    world.at(5.0, lambda: world.tables.held.discard(2))
    served(world)
    assert [world.tables.run(run_id).status for run_id in (1, 2)] == ["finished", "failed"]
