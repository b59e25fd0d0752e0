"""Arms, tenants and policies in the coordinator's loop, in a simulated world: who is served, and what kills change."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.coordinator.loop import Coordinator
from easeml_db.decisions.tenancy.policies import POLICIES
from easeml_db.errors import SlotLost
from easeml_db.simulated import Faults, Killed, SimulatedProcess, SimulatedWorld, new_run
from easeml_db.simulated.executor import SimulatedExecutor
from easeml_db.words.run import Run
from easeml_db.words.tenant import PastArm, Tenancy, Tenant
from easeml_db.words.topology import Slot

NAMES = ("mlp", "linear", "lenet")


def slots(n: int) -> list[Slot]:
    return [Slot(i, f"slot-{i}", 1) for i in range(1, n + 1)]


def run_of(run_id: int, tenant: str, n_trials: int = 3, architectures: tuple[str, ...] = NAMES, **options: Any) -> Run:
    return new_run(
        run_id, n_trials=n_trials, n_partitions=2, max_epochs=1, tenant=tenant, architectures=architectures, **options
    )


def one_second(unit: Any, slot_id: int) -> float:
    return 1.0


def quality(run_id: int, arm_id: int) -> float:
    """Fixed for each arm, different for each."""
    return (run_id * 7 + arm_id * 13) % 10 / 10


def world_of(
    runs: list[Run],
    n_slots: int = 1,
    tenancy: Tenancy | None = None,
    seconds_of: Callable[[Any, int], float] = one_second,
) -> SimulatedWorld:
    world = SimulatedWorld(slots(n_slots), runs, seconds_of=seconds_of, quality_of=quality)
    world.tables.tenancy = tenancy or Tenancy()
    return world


def serve(world: SimulatedWorld, dies_at_call: int | None = None) -> bool:
    """Run one coordinator until no run is open; say whether it got there."""
    process = SimulatedProcess(world, dies_at_call)
    try:
        asyncio.run(Coordinator(process.ports).serve(until_idle=True))
    except Killed:
        return False
    return True


def served(world: SimulatedWorld) -> list[int]:
    """Runs in the order in which arms were opened for them."""
    return [opening.run_id for opening in world.tables.openings]


def check_complete(world: SimulatedWorld, runs: list[Run]) -> None:
    """Every run finished, and every arm was opened once and closed with what it came to."""
    for run in runs:
        ended = world.tables.run(run.run_id)
        assert ended.status == "finished"
        assert all(trial.status == "finished" for trial in ended.trials)
        assert [arm.quality for arm in ended.arms] == [quality(run.run_id, arm.arm_id) for arm in ended.arms]
        assert all(arm.opening is not None and arm.closing is not None for arm in ended.arms)
    opened = [(opening.run_id, opening.arm_id) for opening in world.tables.openings]
    assert sorted(opened) == sorted((run.run_id, arm.arm_id) for run in runs for arm in run.arms)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_serves_each_run_once_first_and_all_arms_in_the_end(policy: str) -> None:
    runs = [run_of(1, "anna"), run_of(2, "ben"), run_of(3, "cora")]
    world = world_of(runs, tenancy=Tenancy(policy))
    assert serve(world)
    check_complete(world, runs)
    assert served(world)[:3] == [1, 2, 3]
    assert {opening.policy for opening in world.tables.openings} == {policy}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(POLICIES)),
    st.integers(1, 3),
    st.lists(st.integers(1, 120), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_kills_open_no_arm_twice_and_forget_none(policy: str, n_slots: int, kills: list[int], n_runs: int) -> None:
    runs = [run_of(i, f"tenant{i}", n_trials=4, architectures=NAMES[: 1 + i % 3]) for i in range(1, n_runs + 1)]
    world = world_of(runs, n_slots, Tenancy(policy))
    for dies_at_call in [*kills, None]:
        if serve(world, dies_at_call):
            break
    check_complete(world, runs)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_a_coordinator_that_is_killed_between_decisions_makes_those_that_would_have_come(policy: str) -> None:
    def after_kills(*kills: int) -> list[tuple[int, int]]:
        world = world_of(
            [run_of(i, f"tenant{i}", n_trials=6) for i in (1, 2, 3)], tenancy=Tenancy(policy, max_wait_seconds=math.inf)
        )
        for dies_at_call in [*kills, None]:
            serve(world, dies_at_call)
        return [(opening.run_id, opening.arm_id) for opening in world.tables.openings]

    undisturbed = after_kills()
    assert len(undisturbed) == 9
    assert all(after_kills(*[at] * 30) == undisturbed for at in (60, 75, 90))


def test_a_policy_is_changed_while_runs_go_on() -> None:
    runs = [run_of(i, f"tenant{i}") for i in (1, 2)]
    world = world_of(runs, tenancy=Tenancy("round_robin"))
    world.at(7.0, lambda: world.set_tenancy(Tenancy("greedy")))
    assert serve(world)
    check_complete(world, runs)
    assert [opening.policy for opening in world.tables.openings] == ["round_robin"] * 2 + ["greedy"] * 4
    assert served(world) == [1, 2, 1, 1, 2, 2]


def test_weights_give_turns_in_their_proportion() -> None:
    names = tuple(f"net{k}" for k in range(8))
    runs = [run_of(i, f"tenant{i}", n_trials=8, architectures=names) for i in (1, 2)]
    world = world_of(runs, tenancy=Tenancy("round_robin", tenants={"tenant2": Tenant("tenant2", weight=3.0)}))
    assert serve(world)
    assert served(world)[2:10].count(2) == 6


def test_runs_of_one_tenant_share_its_weight() -> None:
    names = tuple(f"net{k}" for k in range(8))
    tenants = {1: "anna", 2: "anna", 3: "ben"}
    runs = [run_of(i, tenant, n_trials=8, architectures=names) for i, tenant in tenants.items()]
    world = world_of(runs, tenancy=Tenancy("round_robin"))
    assert serve(world)
    assert served(world)[3:15].count(3) == 6


def test_no_more_slots_than_allowed_work_for_a_tenant() -> None:
    runs = [run_of(1, "anna", n_trials=6), run_of(2, "ben", n_trials=6)]
    world = world_of(runs, 4, Tenancy(tenants={"anna": Tenant("anna", max_slots=1)}))
    assert serve(world)
    check_complete(world, runs)
    of_anna = sorted((u.started_seconds, u.finished_seconds) for u in world.units if u.order.unit.run_id == 1)
    assert all(a[1] <= b[0] for a, b in pairwise(of_anna))
    of_ben = sorted((u.started_seconds, u.finished_seconds) for u in world.units if u.order.unit.run_id == 2)
    assert sum(a[1] > b[0] for a, b in pairwise(of_ben)) > 0  # the others may use the rest at once


def test_a_run_ends_at_its_tenants_deadline_with_what_it_has() -> None:
    runs = [run_of(1, "anna", n_trials=6), run_of(2, "ben")]
    world = world_of(runs, tenancy=Tenancy("round_robin", tenants={"anna": Tenant("anna", deadline_seconds=15.0)}))
    assert serve(world)
    ended = world.tables.run(1)
    assert ended.status == "finished"
    assert [arm.is_closed for arm in ended.arms].count(True) == 1  # the second would have ended after the deadline
    assert max(u.finished_seconds for u in world.units if u.order.unit.run_id == 1) <= 15.0
    assert world.tables.run(2).status == "finished"


def test_a_near_deadline_goes_before_the_policy() -> None:
    runs = [run_of(1, "anna", n_trials=6), run_of(2, "ben", n_trials=6)]
    tenants = {"ben": Tenant("ben", deadline_seconds=50.0)}
    world = world_of(runs, tenancy=Tenancy("round_robin", tenants=tenants))
    assert serve(world)
    assert [(one.run_id, one.decision.phase) for one in world.tables.openings[:4]] == [
        (1, "first_service"), (2, "first_service"), (1, "round_robin"), (2, "last_call"),
    ]  # fmt: skip
    assert [arm.is_closed for arm in world.tables.run(2).arms].count(True) == 2  # no time for the third
    assert all(arm.is_closed for arm in world.tables.run(1).arms)


def test_a_late_tenant_is_served_next_and_one_that_cancels_no_more() -> None:
    runs = [run_of(1, "anna", n_trials=9), run_of(2, "ben", n_trials=9)]
    late = run_of(3, "cora")
    world = world_of(runs, tenancy=Tenancy("round_robin"))
    world.at(16.0, lambda: world.add_run(late))
    world.at(40.0, lambda: world.cancel_run(2))
    assert serve(world)
    assert served(world)[:3] == [1, 2, 3]
    assert world.tables.run(2).status == "cancelled"
    assert served(world).count(2) < 3
    assert [world.tables.run(i).status for i in (1, 3)] == ["finished", "finished"]


def test_a_cancelled_run_that_is_resumed_goes_on_with_its_open_arm() -> None:
    run = run_of(1, "anna", n_trials=6)
    world = world_of([run])
    world.at(3.0, lambda: world.cancel_run(1))
    world.at(20.0, lambda: world.resume_run(1))
    process = SimulatedProcess(world)
    world.at(200.0, world.stop)
    asyncio.run(Coordinator(process.ports).serve())
    check_complete(world, [run])


def test_slots_have_work_while_arms_wait() -> None:
    """The makespan of a run alone is that of its work: opening arms one after another leaves no slot idle."""
    names = tuple(f"net{k}" for k in range(6))
    run = run_of(1, "anna", n_trials=12, architectures=names, scheduler="longest_remaining")
    world = world_of([run], 4)
    assert serve(world)
    makespan = max(unit.finished_seconds for unit in world.units)
    work = sum(unit.finished_seconds - unit.started_seconds for unit in world.units)
    assert makespan <= work / 4 + 6.0  # a trial's life


def test_costs_are_timed_before_the_first_decision_and_the_cheap_arm_goes_first() -> None:
    """Nothing is known of any arm but what the pilots say: the cheaper ones have the larger bounds."""
    run = run_of(1, "anna", n_trials=3)
    prices = {"mlp": 5.0, "linear": 1.0, "lenet": 9.0}
    price = {trial.trial_id: prices[run.architectures[trial.trial_id]] for trial in run.trials}
    world = world_of([run], seconds_of=lambda unit, slot_id: price[unit.trial_id])
    assert serve(world)
    names = {arm.arm_id: arm.name for arm in run.arms}
    assert [names[opening.arm_id] for opening in world.tables.openings] == ["linear", "mlp", "lenet"]
    seconds = {names[opening.arm_id]: opening.cost_seconds for opening in world.tables.openings}
    assert seconds == pytest.approx({"linear": 6.0, "mlp": 30.0, "lenet": 54.0})


def test_what_past_runs_came_to_makes_the_prior_of_later_ones() -> None:
    run = run_of(9, "anna", n_trials=3)
    names = [arm.name for arm in run.arms]
    world = world_of([run])
    world.tables.past_arms += [
        PastArm(past, "classification", name, min(0.2 + 0.3 * k + 0.02 * past, 1.0), 3.0 * (k + 1), 2.0)
        for past in range(1, 7)
        for k, name in enumerate(names)
    ]
    assert serve(world)
    prior = world.tables.priors[9]
    assert prior.name == "empirical_logit"
    assert prior.fitted["n_tenants"] == 6
    assert prior.mean.argmax() == 2
    assert not [unit for unit in world.units if unit.order.unit.kind == "pilot"]
    assert world.tables.openings[0].cost_seconds in (pytest.approx(3.0), pytest.approx(6.0), pytest.approx(9.0))


def test_a_tenant_can_read_how_it_stood_when_it_waited() -> None:
    runs = [run_of(i, f"tenant{i}") for i in (1, 2)]
    world = world_of(runs, tenancy=Tenancy("greedy"))
    assert serve(world)
    opening = next(one for one in world.tables.openings if one.decision.phase == "greedy" and len(one.standings) == 2)
    assert [standing.is_chosen for standing in opening.standings].count(True) == 1
    chosen = next(standing for standing in opening.standings if standing.is_chosen)
    assert chosen.run_id == opening.run_id
    assert chosen.gap == pytest.approx(opening.decision.gap)
    assert opening.row()["memory"]["policy"]["runs"] == [1, 2]


def test_a_run_that_is_being_timed_is_not_passed_over() -> None:
    """With two slots and arms of one trial, the first run could take its second arm while the others are timed."""
    runs = [run_of(i, f"tenant{i}") for i in (1, 2, 3)]
    world = world_of(runs, 2)
    assert serve(world)
    assert served(world)[:3] == [1, 2, 3]
    check_complete(world, runs)


def test_a_run_whose_partitions_no_slot_holds_keeps_nobody_else_from_the_slots() -> None:
    stranded = run_of(1, "anna", n_trials=6, holders=[[7], [7]])
    other = run_of(2, "ben")
    world = world_of([stranded, other], 2)
    world.at(300.0, lambda: world.set_slots([*slots(2), Slot(3, "slot-3", 7)]))
    assert serve(world)
    assert max(u.finished_seconds for u in world.units if u.order.unit.run_id == 2) < 300.0
    assert [world.tables.run(i).status for i in (1, 2)] == ["finished", "finished"]


# What one tenant can do to the others


def known(*names: str) -> list[PastArm]:
    """A past in which every arm was tried, so that nothing has to be timed."""
    return [
        PastArm(900 + past, "classification", name, 0.5 + 0.1 * past, 3.0, 2.0) for past in range(3) for name in names
    ]


def test_a_pilot_that_always_comes_to_nothing_fails_its_trial_and_holds_nobody_up() -> None:
    runs = [run_of(1, "anna", n_trials=6), run_of(2, "ben", n_trials=8, architectures=("a", "b", "c", "d"))]

    def failure_of(order: Any) -> SlotLost | None:
        return SlotLost("out of memory") if order.unit.trial_id == 200001 and order.unit.kind == "pilot" else None

    world = SimulatedWorld(
        slots(2), runs, seconds_of=one_second, quality_of=quality, faults=Faults(failure_of=failure_of)
    )
    world.tables.past_arms += known(*NAMES)
    assert serve(world)
    assert [world.tables.run(i).status for i in (1, 2)] == ["finished", "finished"]
    assert [trial.status for trial in world.tables.run(2).trials].count("failed") == 1


def test_a_run_that_is_cancelled_and_resumed_around_a_decision_still_ends() -> None:
    run = run_of(1, "anna", n_trials=6)
    world = world_of([run])
    world.tables.past_arms += known(*NAMES)
    process = SimulatedProcess(world)
    open_arm, calls = process.ports.tenancy.open_arm, iter(range(100))

    async def disturbed(opening: Any) -> int:
        if next(calls) != 1:
            return await open_arm(opening)
        world.cancel_run(1)
        try:
            return await open_arm(opening)
        finally:
            world.resume_run(1)

    process.ports.tenancy.open_arm = disturbed  # type: ignore[method-assign]
    asyncio.run(Coordinator(process.ports).serve(until_idle=True))
    check_complete(world, [run])


def test_a_deadline_is_judged_by_all_slots_and_not_by_those_that_happen_to_be_ready() -> None:
    run = run_of(1, "anna", n_trials=8, architectures=("mlp",))
    tenancy = Tenancy(tenants={"anna": Tenant("anna", deadline_seconds=30.0)})
    world = world_of([run], 8, tenancy)  # 40 seconds of work: in time on eight slots, not on the first one alone
    world.tables.past_arms += [PastArm(900, "classification", "mlp", 0.5, 40.0, 2.0)]
    assert serve(world)
    check_complete(world, [run])
    assert max(unit.finished_seconds for unit in world.units) < 30.0


def test_trials_that_can_use_one_slot_alone_leave_the_others_to_others() -> None:
    bound = run_of(1, "anna", n_trials=8, architectures=("mlp",), holders=[[1], [1]])
    free = run_of(2, "ben", n_trials=4, architectures=("mlp",))
    places = [Slot(i, f"slot-{i}", 1 if i == 1 else 2) for i in range(1, 5)]
    world = SimulatedWorld(places, [bound, free], seconds_of=one_second, quality_of=quality)
    world.tables.past_arms += known(*NAMES)
    assert serve(world)
    check_complete(world, [bound, free])
    assert min(unit.started_seconds for unit in world.units if unit.order.unit.run_id == 2) < 2.0


def test_newcomers_are_served_while_another_is_timed_and_nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("easeml_db.simulated.executor.PILOT_SECONDS", 10.0)
    names, unknown = tuple(f"k{i}" for i in range(40)), tuple(f"u{i}" for i in range(12))
    runs = [run_of(1, "anna", n_trials=40, architectures=names)]
    world = world_of(runs, 8, Tenancy(tenants={"cora": Tenant("cora", max_slots=1)}))
    world.tables.past_arms += known(*names)
    world.at(8.0, lambda: world.add_run(run_of(2, "cora", n_trials=12, architectures=unknown)))
    world.at(8.5, lambda: world.add_run(run_of(3, "dan", n_trials=8, architectures=names[:4])))
    assert serve(world)
    started = sorted(unit.started_seconds for unit in world.units if unit.order.unit.run_id == 1)
    assert max(b - a for a, b in pairwise(started)) < 12.0  # five seconds, and a trial's life
    assert min(unit.started_seconds for unit in world.units if unit.order.unit.run_id == 3) < 20.0


def test_what_was_cut_short_is_no_lesson() -> None:
    cut = run_of(1, "anna", n_trials=3, max_seconds=3.0)
    world = world_of([cut])
    assert serve(world)
    assert world.tables.past_arms == []


def test_slow_pilots_of_the_first_run_do_not_use_up_the_moment_of_the_next() -> None:
    def seconds_of(unit: Any, slot_id: int) -> float:
        return 1.0

    world = world_of([run_of(1, "anna"), run_of(2, "ben")], n_slots=2, seconds_of=seconds_of)
    run_pilot = SimulatedExecutor._run

    def slow(self: SimulatedExecutor, order: Any, started: float) -> None:
        if order.unit.kind == "pilot":  # the first of a session imports what trains
            world.at(started + 3.0, lambda: run_pilot(self, order, started + 3.0))
        else:
            run_pilot(self, order, started)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedExecutor, "_run", slow)
        assert serve(world)
    assert sorted(served(world)[:2]) == [1, 2]
