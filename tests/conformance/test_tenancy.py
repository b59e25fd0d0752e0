"""Arms, priors and beliefs: an arm is opened once and closed once, whoever else is at the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.tenancy.opening import Belief
from easeml_db.errors import NotFound, StaleLease

if TYPE_CHECKING:
    from easeml_db.words.run import Run
    from tests.conformance.worlds.world import World


def prior_of(mean: float = 0.5) -> Prior:
    return Prior(np.full(2, mean), np.eye(2), 0.01, fitted={"n_runs": 3})


def beliefs_of(run: Run) -> list[Belief]:
    return [Belief(arm.arm_id, 0.5, 0.25, 0.9, 1.0, 2.0) for arm in run.arms]


@pytest.mark.covers("TenancyStore.tenancy", "TenancyStore.past_arms")
async def test_nobody_has_terms_or_a_past_before_anything_happened(world: World) -> None:
    await world.ports.lease.acquire()
    tenancy = await world.ports.tenancy.tenancy()
    assert (tenancy.policy, tenancy.prior, tenancy.seed, tenancy.tenants) == ("robust", "auto", 0, {})
    world.set_policy("greedy")
    assert (await world.ports.tenancy.tenancy()).policy == "greedy"
    assert await world.ports.tenancy.past_arms() == []


@pytest.mark.covers("TenancyStore.open_arm", "TenancyStore.policy_memory")
async def test_an_arm_is_opened_once_and_the_policy_remembers_it(world: World) -> None:
    await world.ports.lease.acquire()
    run = await world.run(world.ask_for_run())
    assert await world.ports.tenancy.policy_memory("hybrid") == {}
    number = await world.ports.tenancy.open_arm(world.opening(run))
    arm = (await world.run(run.run_id)).arms[0]
    assert (arm.opening, arm.bound, arm.is_closed) == (number, 0.9, False)
    assert await world.ports.tenancy.policy_memory("hybrid") == {"policy": {}, "unit_seconds": 2.0}
    assert await world.ports.tenancy.policy_memory("greedy") == {}
    with pytest.raises(StaleLease):
        await world.ports.tenancy.open_arm(world.opening(run))
    assert await world.ports.tenancy.open_arm(world.opening(run, arm=1)) > number


@pytest.mark.covers("TenancyStore.open_arm", stale="TenancyStore.open_arm")
async def test_an_arm_is_not_opened_under_a_stale_lease(world: World) -> None:
    await world.ports.lease.acquire()
    run = await world.run(world.ask_for_run())
    world.take_over()
    with pytest.raises(StaleLease):
        await world.ports.tenancy.open_arm(world.opening(run))
    assert await world.run(run.run_id) == run


@pytest.mark.covers("TenancyStore.open_arm")
async def test_no_arm_is_opened_of_a_run_that_is_held_or_over_or_gone(world: World) -> None:
    await world.ports.lease.acquire()
    runs = [await world.run(world.ask_for_run()) for _ in range(3)]
    world.cancel_run(runs[1].run_id)
    world.drop_run(runs[2].run_id)
    with world.held(runs[0].run_id):
        for run in runs:
            with pytest.raises(NotFound):
                await world.ports.tenancy.open_arm(world.opening(run))
    assert await world.run(runs[0].run_id) == runs[0]


@pytest.mark.covers("TenancyStore.close_arm", "TenancyStore.past_arms")
async def test_an_arm_is_closed_once_its_trials_are_over(world: World) -> None:
    await world.ports.lease.acquire()
    run = await world.run(world.ask_for_run())
    arm_id = run.arms[0].arm_id
    await world.ports.tenancy.open_arm(world.opening(run))
    early = await world.ports.tenancy.close_arm(run.run_id, arm_id)
    assert early is not None
    assert not early.is_closed
    world.end_trials(run.run_id)
    with world.held(run.run_id):
        held = await world.ports.tenancy.close_arm(run.run_id, arm_id)
    assert held is not None
    assert not held.is_closed
    closed = await world.ports.tenancy.close_arm(run.run_id, arm_id)
    assert closed is not None
    assert closed.is_closed
    assert closed.quality is not None
    assert closed.cost_seconds == 0.0  # no unit of it is recorded
    assert (await world.run(run.run_id)).arms[0] == closed
    assert [(arm.run_id, arm.name) for arm in await world.ports.tenancy.past_arms()] == [(run.run_id, closed.name)]


@pytest.mark.covers("TenancyStore.close_arm", stale="TenancyStore.close_arm")
async def test_an_arm_is_not_closed_under_a_stale_lease_nor_of_a_run_that_is_gone(world: World) -> None:
    await world.ports.lease.acquire()
    run, gone = await world.run(world.ask_for_run()), await world.run(world.ask_for_run())
    await world.ports.tenancy.open_arm(world.opening(run))
    world.end_trials(run.run_id)
    world.drop_run(gone.run_id)
    assert await world.ports.tenancy.close_arm(gone.run_id, gone.arms[0].arm_id) is None
    world.take_over()
    with pytest.raises(StaleLease):
        await world.ports.tenancy.close_arm(run.run_id, run.arms[0].arm_id)
    assert not (await world.run(run.run_id)).arms[0].is_closed


@pytest.mark.covers("RunStore.finish", "TenancyStore.open_arm")
async def test_the_end_of_a_run_closes_its_open_arms(world: World) -> None:
    await world.ports.lease.acquire()
    run = await world.run(world.ask_for_run())
    await world.ports.tenancy.open_arm(world.opening(run))
    await world.ports.runs.finish(run.run_id)
    assert world.run_status(run.run_id) == "finished"
    with pytest.raises(NotFound):
        await world.ports.tenancy.open_arm(world.opening(run, arm=1))


@pytest.mark.covers("TenancyStore.prior", "TenancyStore.keep_priors")
async def test_the_first_prior_of_a_run_stays(world: World) -> None:
    await world.ports.lease.acquire()
    run = await world.run(world.ask_for_run())
    arm_ids = [arm.arm_id for arm in run.arms]
    assert await world.ports.tenancy.prior(run.run_id) is None
    await world.ports.tenancy.keep_priors({run.run_id: (prior_of(0.25), arm_ids)})
    await world.ports.tenancy.keep_priors({run.run_id: (prior_of(0.75), arm_ids)})
    prior = await world.ports.tenancy.prior(run.run_id)
    assert prior is not None
    assert (prior.mean.tolist(), prior.covariance.tolist()) == ([0.25, 0.25], [[1.0, 0.0], [0.0, 1.0]])
    assert (prior.noise_variance, prior.link, prior.name, prior.fitted) == (0.01, "identity", "given", {"n_runs": 3})
    world.drop_run(run.run_id)
    assert await world.ports.tenancy.prior(run.run_id) is None


@pytest.mark.covers("TenancyStore.read_ahead", "TenancyStore.prior")
async def test_priors_that_are_read_at_once_are_those_that_are_read_one_by_one(world: World) -> None:
    await world.ports.lease.acquire()
    runs = [await world.run(world.ask_for_run()) for _ in range(3)]
    some = {run.run_id: (prior_of(k / 4), [arm.arm_id for arm in run.arms]) for k, run in enumerate(runs[:2], 1)}
    await world.ports.tenancy.read_ahead([run.run_id for run in runs])
    await world.ports.tenancy.keep_priors(some)
    for _ in range(2):  # what was read before it was written is forgotten
        found = [await world.ports.tenancy.prior(run.run_id) for run in runs]
        assert [None if prior is None else prior.mean.tolist() for prior in found] == [[0.25, 0.25], [0.5, 0.5], None]
        await world.ports.tenancy.read_ahead([run.run_id for run in runs])


@pytest.mark.covers("TenancyStore.keep_priors", stale="TenancyStore.keep_priors")
async def test_no_prior_is_kept_of_a_run_that_is_held_or_gone_or_under_a_stale_lease(world: World) -> None:
    await world.ports.lease.acquire()
    run, gone = await world.run(world.ask_for_run()), await world.run(world.ask_for_run())
    world.drop_run(gone.run_id)
    arm_ids = [arm.arm_id for arm in run.arms]
    with world.held(run.run_id):
        await world.ports.tenancy.keep_priors({run.run_id: (prior_of(), arm_ids)})
    await world.ports.tenancy.keep_priors({gone.run_id: (prior_of(), arm_ids)})
    world.take_over()
    await world.ports.tenancy.keep_priors({run.run_id: (prior_of(), arm_ids)})
    assert [await world.ports.tenancy.prior(each.run_id) for each in (run, gone)] == [None, None]


@pytest.mark.covers("TenancyStore.keep_beliefs", stale="TenancyStore.keep_beliefs")
async def test_beliefs_are_kept_of_a_run_that_is_there_and_under_the_lease(world: World) -> None:
    await world.ports.lease.acquire()
    run, gone = await world.run(world.ask_for_run()), await world.run(world.ask_for_run())
    world.drop_run(gone.run_id)
    with world.held(run.run_id):
        await world.ports.tenancy.keep_beliefs({run.run_id: beliefs_of(run)})
    await world.ports.tenancy.keep_beliefs({gone.run_id: beliefs_of(gone)})
    assert [world.n_beliefs(each.run_id) for each in (run, gone)] == [0, 0]
    for _ in range(2):
        await world.ports.tenancy.keep_beliefs({run.run_id: beliefs_of(run)})
        assert world.n_beliefs(run.run_id) == 2
    world.take_over()
    with pytest.raises(StaleLease):
        await world.ports.tenancy.keep_beliefs({run.run_id: beliefs_of(run)})


@pytest.mark.covers("TenancyStore.charge")
async def test_time_of_failed_units_adds_up(world: World) -> None:
    await world.ports.lease.acquire()
    assert await world.ports.tenancy.charge("ann", 1.5)
    assert await world.ports.tenancy.charge("ann", 2.0)
    assert world.charged("ann") == 3.5
