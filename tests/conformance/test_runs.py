"""Runs and trials: writes take effect under the lease that holds, on a run that is there and that nobody holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easeml_db.words.training_unit import next_unit

if TYPE_CHECKING:
    from easeml_db.words.run import Run
    from easeml_db.words.trial import Trial
    from tests.conformance.worlds.world import World

WRITES = ("start", "plan", "fail_trial", "fail", "finish")


async def write(world: World, name: str, run_id: int, trial_id: int) -> None:
    """Call one of the fenced writes."""
    runs = world.ports.runs
    match name:
        case "start":
            await runs.start(run_id)
        case "plan":
            await runs.plan(run_id, "rotation", 1.0, 1.0, "shorter")
        case "fail_trial":
            await runs.fail_trial(run_id, trial_id, "diverged")
        case "fail":
            await runs.fail(run_id, "makes no sense")
        case _:
            await runs.finish(run_id)


async def waiting_run(world: World) -> tuple[int, int]:
    """Take the lease and ask for a run; return its number and that of its first trial."""
    await world.ports.lease.acquire()
    run_id = world.ask_for_run()
    return run_id, (await world.run(run_id)).trials[0].trial_id


def seen(world: World, run_id: int) -> tuple[object, ...]:
    return world.run_status(run_id), world.trials(run_id), world.plan(run_id), world.events(run_id)


@pytest.mark.covers("RunStore.open_runs", "RunStore.read")
async def test_open_runs_are_read_with_arms_and_trials_until_they_are_over(world: World) -> None:
    await world.ports.lease.acquire()
    first, second = world.ask_for_run(), world.ask_for_run()
    assert await world.ports.runs.open_runs() == [first, second]
    run = await world.ports.runs.read(first)
    assert run is not None
    assert (run.status, run.allocation, run.max_seconds) == ("queued", "hopping", None)
    assert {arm.name for arm in run.arms} == {"linear", "mlp"}
    assert [(t.trial_number, t.n_partitions, t.max_epochs, t.n_steps_done, t.status) for t in run.trials] == [
        (1, 2, 2, 0, "waiting"),
        (2, 2, 2, 0, "waiting"),
    ]
    assert set(run.arm_of.values()) == {arm.arm_id for arm in run.arms}
    world.cancel_run(first)
    world.drop_run(second)
    assert await world.ports.runs.open_runs() == []
    assert [await world.ports.runs.read(run_id) for run_id in (first, second)] == [None, None]


@pytest.mark.covers("RunStore.read_ahead")
async def test_runs_that_are_read_at_once_are_those_that_are_read_one_by_one(world: World) -> None:
    await world.ports.lease.acquire()
    run_ids = [world.ask_for_run() for _ in range(3)]
    alone = [await world.ports.runs.read(run_id) for run_id in run_ids]
    world.drop_run(run_ids[1])
    await world.ports.runs.read_ahead(run_ids)
    assert [await world.ports.runs.read(run_id) for run_id in run_ids] == [alone[0], None, alone[2]]
    # What was read ahead is given out once.
    await world.ports.runs.start(run_ids[0])
    renewed = await world.ports.runs.read(run_ids[0])
    assert renewed is not None
    assert renewed.status == "running"


@pytest.mark.covers("RunStore.read_again")
async def test_a_run_that_is_read_again_is_as_if_all_of_it_were_read(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run(is_searched=True)
    runs, searches = world.ports.runs, world.ports.searches
    known = await world.run(run_id)
    world.pause_trials(run_id)
    numbers = [trial.trial_number for trial in known.trials]
    for decisions in (
        [],
        [{"kind": "continue", "trial_number": numbers[0], "target_epochs": 2}],
        [{"kind": "stop", "trial_number": numbers[1]}],
    ):
        for arm in known.arms:
            mine = [each for each in decisions if known.arm_of[_trial_id(known, each["trial_number"])] == arm.arm_id]
            await searches.apply_decisions(known, arm.arm_id, mine)
        again, whole = await runs.read_again(known), await world.run(run_id)
        assert again is not None
        assert _that_may_run(again) == _that_may_run(whole)
        assert again.arms == whole.arms
        assert [trial.trial_number for trial in again.trials] == numbers
        known = again
    await runs.fail_trial(run_id, known.trials[0].trial_id, "it diverged")
    again = await runs.read_again(known)
    assert again is not None
    assert again.trials[0].status == "failed"
    world.cancel_run(run_id)
    assert await runs.read_again(known) is None
    world.resume_run(run_id)
    assert await runs.read_again(known) == await world.run(run_id)


def _trial_id(run: Run, number: int) -> int:
    return next(trial.trial_id for trial in run.trials if trial.trial_number == number)


def _that_may_run(run: Run) -> list[Trial]:
    return [trial for trial in run.trials if trial.status in ("waiting", "running")]


@pytest.mark.covers("RunStore.start")
async def test_a_run_is_started_once(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run()
    await world.ports.runs.start(run_id)
    started = await world.run(run_id)
    assert started.status == "running"
    assert started.started_seconds is not None
    await world.ports.runs.start(run_id)
    assert await world.run(run_id) == started


@pytest.mark.covers("RunStore.plan")
async def test_the_last_plan_counts(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run()
    await world.ports.runs.plan(run_id, "rotation", 2.0, 1.0, "shorter")
    await world.ports.runs.plan(run_id, "random", None, None, "asked for")
    assert world.plan(run_id) == "random"


@pytest.mark.covers("RunStore.fail_trial", "RunStore.finish")
async def test_a_run_fails_when_every_trial_failed(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run()
    run = await world.run(run_id)
    for trial in run.trials:
        await world.ports.runs.fail_trial(run_id, trial.trial_id, "diverged")
        await world.ports.runs.fail_trial(run_id, trial.trial_id, "it failed already")
    assert [state for state, _ in world.trials(run_id)] == ["failed", "failed"]
    assert world.events(run_id).count("failed") == 2
    await world.ports.runs.finish(run_id)
    assert world.run_status(run_id) == "failed"


@pytest.mark.covers("RunStore.finish")
async def test_the_end_of_a_run_stops_what_is_left_of_its_trials(world: World) -> None:
    run_id, trial_id = await waiting_run(world)
    await world.ports.runs.fail_trial(run_id, trial_id, "diverged")
    await world.ports.runs.finish(run_id)
    assert [state for state, _ in world.trials(run_id)] == ["failed", "stopped"]
    assert world.run_status(run_id) == "finished"
    await world.ports.runs.finish(run_id)
    assert world.run_status(run_id) == "finished"


@pytest.mark.covers("RunStore.note")
async def test_a_note_goes_into_the_history_of_a_run_that_is_there(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run()
    await world.ports.runs.note(run_id, None, "retry", "attempt 1 failed")
    assert world.events(run_id)[-1] == "retry"
    gone = world.ask_for_run()
    world.drop_run(gone)
    await world.ports.runs.note(gone, None, "deadline", "its run is gone")
    assert "deadline" not in world.events(run_id)


@pytest.mark.covers(*(f"RunStore.{name}" for name in WRITES), stale=[f"RunStore.{name}" for name in WRITES])
@pytest.mark.parametrize("name", WRITES)
async def test_a_stale_coordinator_changes_nothing_about_a_run(world: World, name: str) -> None:
    run_id, trial_id = await waiting_run(world)
    before = seen(world, run_id)
    world.take_over()
    await write(world, name, run_id, trial_id)
    assert seen(world, run_id) == before


@pytest.mark.covers(*(f"RunStore.{name}" for name in WRITES))
@pytest.mark.parametrize("name", WRITES)
async def test_nothing_waits_for_a_user_that_holds_a_run(world: World, name: str) -> None:
    run_id, trial_id = await waiting_run(world)
    before = seen(world, run_id)
    with world.held(run_id):
        await write(world, name, run_id, trial_id)
        await world.ports.runs.note(run_id, None, "retry", "held")
    assert seen(world, run_id) == before


@pytest.mark.covers("RunStore.crashed")
async def test_a_crash_of_the_server_ends_the_open_trials_of_its_architecture_once(world: World) -> None:
    await world.ports.lease.acquire()
    run_id, other_id = world.ask_for_run(), world.ask_for_run()
    run, crashed = await world.run(run_id), world.ports.runs.crashed
    first = run.trials[0].trial_id
    alike = [number for number, name in run.architectures.items() if name == run.architectures[first]]
    with world.held(run_id):
        assert await crashed(run_id, first, "out of memory") == ([], False), "it is not recorded while rows are held"
        assert "crashed" not in world.events(run_id)
    ended, is_recorded = await crashed(run_id, first, "out of memory")
    assert (sorted(ended), is_recorded) == (sorted(alike), True)
    assert await crashed(run_id, first, "out of memory") == ([], True)
    assert sorted(world.events(run_id)[-1 - len(alike) :]) == ["crashed", *["failed"] * len(alike)], "once"
    statuses = {trial.trial_id: trial.status for trial in (await world.run(run_id)).trials}
    assert {number for number, status in statuses.items() if status == "failed"} == set(alike)
    assert {trial.status for trial in (await world.run(other_id)).trials} == {"waiting"}


@pytest.mark.covers("RunStore.has_crashed", "RunStore.lost")
async def test_a_server_that_was_away_has_not_crashed_and_that_is_counted_until_a_run_is_resumed(world: World) -> None:
    await world.ports.lease.acquire()
    assert not await world.ports.runs.has_crashed("1.0 / 2.0"), "another server, started at another moment"
    run_id = world.ask_for_run()
    first, second, *_ = (trial.trial_id for trial in (await world.run(run_id)).trials)
    lost = [await world.ports.runs.lost(run_id, trial_id, "away") for trial_id in (first, first, second)]
    assert lost == [1, 2, 1]
    world.cancel_run(run_id)
    world.resume_run(run_id)
    assert await world.ports.runs.lost(run_id, first, "away") == 1


@pytest.mark.covers("RunStore.fail")
async def test_a_run_that_cannot_be_served_fails_and_its_trials_are_cancelled(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run()
    with world.held(run_id):
        assert not await world.ports.runs.fail(run_id, "makes no sense")
    assert await world.ports.runs.fail(run_id, "makes\0 no sense")
    assert world.run_status(run_id) == "failed"
    assert {status for status, _ in world.trials(run_id)} == {"cancelled"}
    assert world.events(run_id)[-1] == "refused"
    assert await world.ports.runs.fail(run_id, "again")


@pytest.mark.covers("RunStore.finish")
async def test_a_run_that_a_user_holds_is_not_over_and_one_that_is_gone_is(world: World) -> None:
    await world.ports.lease.acquire()
    run_id, gone = world.ask_for_run(), world.ask_for_run()
    with world.held(run_id):
        assert not await world.ports.runs.finish(run_id)
    assert await world.ports.runs.finish(run_id)
    world.drop_run(gone)
    assert await world.ports.runs.finish(gone)


@pytest.mark.covers(*(f"RunStore.{name}" for name in WRITES))
@pytest.mark.parametrize("name", WRITES)
async def test_a_write_about_a_run_that_is_gone_is_no_error(world: World, name: str) -> None:
    run_id, trial_id = await waiting_run(world)
    world.drop_run(run_id)
    await write(world, name, run_id, trial_id)
    assert await world.ports.runs.read(run_id) is None


@pytest.mark.covers("RunStore.start", "RunStore.fail_trial", "RunStore.finish")
async def test_a_cancelled_run_stays_cancelled(world: World) -> None:
    run_id, trial_id = await waiting_run(world)
    world.cancel_run(run_id)
    for name in ("start", "fail_trial", "finish"):
        await write(world, name, run_id, trial_id)
    assert world.run_status(run_id) == "cancelled"
    assert [state for state, _ in world.trials(run_id)] == ["cancelled", "cancelled"]


@pytest.mark.covers("RunStore.begin_ending", stale=["RunStore.begin_ending"])
async def test_the_end_of_a_search_leaves_nothing_but_the_test_of_the_best_trial(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run(is_searched=True)
    runs = world.ports.runs
    assert not await runs.begin_ending(run_id), "nothing was measured"
    world.pause_trials(run_id)
    with world.held(run_id):
        assert not await runs.begin_ending(run_id)
    assert await runs.begin_ending(run_id)
    run = await world.run(run_id)
    assert (run.arms, run.search, run.max_seconds) == ((), None, None)
    assert [(trial.status, trial.max_epochs, trial.n_steps_done) for trial in run.trials] == [
        ("waiting", 1, 4),
        ("stopped", 2, 4),
    ]
    unit = next_unit(run.trials[0])
    assert unit is not None
    assert (unit.kind, unit.epoch) == ("test", 1)
    assert not await runs.begin_ending(run_id), "once is enough"
    world.take_over()
    other = world.ask_for_run(is_searched=True)
    world.pause_trials(other)
    assert not await runs.begin_ending(other)
    assert [state for state, _ in world.trials(other)] == ["paused", "paused"]


@pytest.mark.covers("RunStore.begin_ending")
async def test_a_run_whose_best_trial_was_tested_needs_no_ending(world: World) -> None:
    await world.ports.lease.acquire()
    run_id, gone = world.ask_for_run(), world.ask_for_run()
    world.end_trials(run_id)
    assert not await world.ports.runs.begin_ending(run_id)
    world.drop_run(gone)
    assert not await world.ports.runs.begin_ending(gone)
