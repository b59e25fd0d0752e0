"""What procedures decide is done all or not at all; what is known of devices stays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from easeml_db.decisions.procedures.contract import StopTrial
from easeml_db.decisions.trial_groups.allocation import AllocationLog, NewGroup
from easeml_db.decisions.trial_groups.measuring import MeasuredProfile
from easeml_db.decisions.trial_groups.profile import Profile
from easeml_db.errors import NotFound, NotReady, StaleLease

if TYPE_CHECKING:
    from easeml_db.words.run import Run
    from tests.conformance.worlds.world import World


async def paused_run(world: World) -> Run:
    """A run of a search whose trials wait for decisions after their first epoch."""
    run_id = world.ask_for_run(is_searched=True)
    world.pause_trials(run_id)
    return await world.run(run_id)


def first_arm(run: Run) -> tuple[int, int]:
    """Return the arm of the first trial, and the trial's number."""
    return run.arm_of[run.trials[0].trial_id], run.trials[0].trial_number


def started(number: int) -> dict[str, Any]:
    return {
        "kind": "start", "trial_number": number, "architecture": "linear", "config": {"learning_rate": 0.3},
        "target_epochs": 1, "bracket": 0, "parent": None, "inherited_epochs": 0,
    }  # fmt: skip


def profile(alpha: float) -> MeasuredProfile:
    return MeasuredProfile(Profile(alpha=alpha, c=2), 0.5, 2, 1, True, {"rounds": [1.0]})


LOG = AllocationLog(groups=(NewGroup(1, (1, 2)),))


@pytest.mark.covers("SearchStore.trial_history")
async def test_a_procedure_sees_the_trials_of_its_arm_by_number(world: World) -> None:
    await world.ports.lease.acquire()
    run = await paused_run(world)
    arm_id, number = first_arm(run)
    history = await world.ports.searches.trial_history(run, arm_id)
    assert number in [trial.trial_number for trial in history]
    assert [t.trial_number for t in history] == sorted(t.trial_number for t in history)
    assert {(t.status, t.target_epochs, t.parent, t.inherited_epochs) for t in history} == {("paused", 1, None, 0)}
    assert {t.config["architecture"] for t in history} == {run.architectures[run.trials[0].trial_id]}
    one = next(trial for trial in run.trials if trial.trial_number == number)
    other = next(trial for trial in run.trials if run.arm_of[trial.trial_id] != arm_id)
    some = await world.ports.searches.trial_history(run, arm_id, [one.trial_id, other.trial_id])
    assert some == [trial for trial in history if trial.trial_number == number]


@pytest.mark.covers("SearchStore.trial_history", "SearchStore.apply_decisions")
async def test_nothing_follows_from_trials_that_a_cancel_ended_and_a_resume_opened_again(world: World) -> None:
    await world.ports.lease.acquire()
    run = await paused_run(world)
    arm_id, number = first_arm(run)
    stop = {"kind": "stop", "trial_number": number}
    world.cancel_run(run.run_id)
    with pytest.raises(NotFound):
        await world.ports.searches.trial_history(run, arm_id)
    world.resume_run(run.run_id)
    for question in (
        world.ports.searches.trial_history(run, arm_id),
        world.ports.searches.apply_decisions(run, arm_id, [stop]),
    ):
        with pytest.raises(NotFound):
            await question
    again = await world.run(run.run_id)
    assert {trial.status for trial in await world.ports.searches.trial_history(again, arm_id)} == {"paused"}
    await world.ports.searches.apply_decisions(again, arm_id, [stop])
    world.drop_run(run.run_id)
    with pytest.raises(NotFound):
        await world.ports.searches.trial_history(again, arm_id)


@pytest.mark.covers("Answering.ask")
async def test_a_question_is_answered_or_raises_what_it_raises(world: World) -> None:
    stop = partial(StopTrial, 3)
    assert world.ports.answering.ask("anna", stop, 60.0).result(60) == StopTrial(3)
    refused = partial(exec, "from easeml_db.errors import NotReady; raise NotReady('it cannot go on')")
    with pytest.raises(NotReady, match="it cannot go on"):
        world.ports.answering.ask("anna", refused, 60.0).result(60)


@pytest.mark.covers("SearchStore.apply_decisions")
async def test_trials_are_started_continued_and_stopped(world: World) -> None:
    await world.ports.lease.acquire()
    run = await paused_run(world)
    arm_id, number = first_arm(run)
    new = 1 + max(trial.trial_number for trial in run.trials)
    go_on = {"kind": "continue", "trial_number": number, "target_epochs": 2}
    assert await world.ports.searches.apply_decisions(run, arm_id, [go_on, started(new)]) == 0
    trials = {trial.trial_number: trial for trial in (await world.run(run.run_id)).trials}
    assert (trials[number].status, trials[number].target_epochs) == ("waiting", 2)
    assert (trials[new].status, trials[new].target_epochs, trials[new].n_steps_done) == ("waiting", 1, 0)
    other = next(trial for trial in run.trials if run.arm_of[trial.trial_id] != arm_id)
    stop = {"kind": "stop", "trial_number": other.trial_number}
    await world.ports.searches.apply_decisions(run, run.arm_of[other.trial_id], [stop])
    trials = {trial.trial_number: trial for trial in (await world.run(run.run_id)).trials}
    assert trials[other.trial_number].status == "stopped"


@pytest.mark.covers("SearchStore.apply_decisions")
async def test_decisions_are_applied_all_or_none(world: World) -> None:
    await world.ports.lease.acquire()
    run = await paused_run(world)
    arm_id, number = first_arm(run)
    stop = {"kind": "stop", "trial_number": number}
    with pytest.raises(StaleLease):  # a trial can be stopped once
        await world.ports.searches.apply_decisions(run, arm_id, [stop, stop])
    with pytest.raises(StaleLease):  # the number is taken
        await world.ports.searches.apply_decisions(run, arm_id, [stop, started(number)])
    assert await world.run(run.run_id) == run


@pytest.mark.covers("SearchStore.apply_decisions", stale="SearchStore.apply_decisions")
async def test_no_decision_is_applied_under_a_stale_lease_or_to_a_run_that_is_held_or_over_or_gone(
    world: World,
) -> None:
    await world.ports.lease.acquire()
    run, over, gone = [await paused_run(world) for _ in range(3)]
    world.cancel_run(over.run_id)
    world.drop_run(gone.run_id)
    with world.held(run.run_id):
        for each in (run, over, gone):
            arm_id, number = first_arm(each)
            with pytest.raises(NotFound):
                await world.ports.searches.apply_decisions(each, arm_id, [{"kind": "stop", "trial_number": number}])
    world.take_over()
    arm_id, number = first_arm(run)
    with pytest.raises(StaleLease):
        await world.ports.searches.apply_decisions(run, arm_id, [{"kind": "stop", "trial_number": number}])
    assert await world.run(run.run_id) == run


@pytest.mark.covers("AllocationStore.profiles", "AllocationStore.keep_profile")
async def test_the_newest_profile_of_an_architecture_counts(world: World) -> None:
    await world.ports.lease.acquire()
    run_id = world.ask_for_run()
    assert await world.ports.allocations.profiles(run_id) == {}
    for alpha in (1.25, 1.5):
        await world.ports.allocations.keep_profile(run_id, "mlp", "cpu", profile(alpha))
    known = await world.ports.allocations.profiles(run_id)
    assert {key: each.profile for key, each in known.items()} == {("mlp", "cpu"): profile(1.5).profile}
    assert {(each.eps_seconds, each.n_packed, each.n_devices, each.is_bounded) for each in known.values()} == {
        (0.5, 2, 1, True)
    }


@pytest.mark.covers("AllocationStore.profiles", "AllocationStore.keep_profile", stale="AllocationStore.keep_profile")
async def test_no_profile_is_kept_under_a_stale_lease_or_for_a_run_that_is_held_or_gone(world: World) -> None:
    await world.ports.lease.acquire()
    run_id, gone = world.ask_for_run(), world.ask_for_run()
    world.drop_run(gone)
    with world.held(run_id):
        await world.ports.allocations.keep_profile(run_id, "mlp", "cpu", profile(1.25))
    await world.ports.allocations.keep_profile(gone, "mlp", "cpu", profile(1.25))
    world.take_over()
    await world.ports.allocations.keep_profile(run_id, "mlp", "cpu", profile(1.25))
    assert await world.ports.allocations.profiles(run_id) == {}
    assert await world.ports.allocations.profiles(gone) == {}


@pytest.mark.covers("AllocationStore.keep_allocations", stale="AllocationStore.keep_allocations")
async def test_groups_are_recorded_under_the_lease_of_a_run_that_nobody_holds(world: World) -> None:
    await world.ports.lease.acquire()
    run_id, gone = world.ask_for_run(), world.ask_for_run()
    world.drop_run(gone)
    with world.held(run_id):
        await world.ports.allocations.keep_allocations(run_id, LOG, {1: "trials"})
    await world.ports.allocations.keep_allocations(gone, LOG, {1: "trials"})
    assert (world.n_allocations(run_id), world.n_allocations(gone)) == (0, 0)
    await world.ports.allocations.keep_allocations(run_id, LOG, {1: "trials"})
    assert world.n_allocations(run_id) == 1
    world.take_over()
    with pytest.raises(StaleLease):
        await world.ports.allocations.keep_allocations(run_id, AllocationLog(groups=(NewGroup(2, (1,)),)), {2: "x"})
    assert world.n_allocations(run_id) == 1
