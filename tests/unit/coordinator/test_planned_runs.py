"""Planned runs in the coordinator's loop on a simulated clock: slots come and go stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from easeml_db.decisions.planner.job import Latency, StageKey
from easeml_db.decisions.planner.planning import Goal
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.replanning import Circumstances, Rest, replan
from easeml_db.decisions.planner.run_plan import PlannedStage, RunPlan
from easeml_db.decisions.planner.simulation import Held
from easeml_db.simulated import CloudFaults, SimulatedWorld, new_run
from easeml_db.simulated.plan_stores import SimulatedInstances, SimulatedProvisioner
from easeml_db.words.tenant import Tenancy, Tenant
from easeml_experiments.planner.executions import execution, known_rows, search_for, searched_run
from tests.unit.coordinator.planned_worlds import (
    LOCAL_SLOT,
    finished_seconds,
    first_plan,
    one_stage,
    planned_run,
    serve,
    world_with,
)

PRICES = PriceList("local", (LOCAL_SLOT,))


def test_a_run_has_the_slots_of_its_plan_and_gives_them_back():
    run = planned_run()
    plan = first_plan(run, PRICES, Goal(60.0), spread=0.0)
    world = world_with([run], [plan], n_slots=2, max_local_slots=8, spread=0.0)
    serve(world)
    assert world.tables.runs_by_id[1].status == "finished"
    assert [slot.slot_id for slot in world.slots] == [1, 2]
    assert all(slot.instance_id is None for slot in world.slots)
    stages = [world.tables.plans_table.stages[1, place] for place in range(1, len(plan.stages) + 1)]
    assert [stage.n_slots for stage in stages] == [stage.n_slots for stage in plan.stages]


SMALL = InstanceType(
    "small", "cpu", 1, 3600.0, minimum_seconds=1.0, queue=Latency(2.0), initialisation=Latency(3.0), max_instances=4
)
MACHINE = InstanceType(
    "machine", "cpu", 2, 3600.0, minimum_seconds=10.0, queue=Latency(2.0), initialisation=Latency(3.0), max_instances=6
)
CLOUD = PriceList("cloud", (MACHINE,))


def cloud_world(faults: CloudFaults | None = None, **options) -> SimulatedWorld:
    """A search of eight trials on machines of two slots, with a deadline that takes several of them at first."""
    run = planned_run()
    plan = first_plan(run, CLOUD, Goal(56.0), provisioner="cloud")
    faults = faults or CloudFaults(queue_seconds=lambda k: 2.0, start_seconds=lambda k: 3.0)
    return world_with([run], [plan], n_slots=1, cloud_faults=faults, **options)


def check_nothing_leaked(world: SimulatedWorld) -> None:
    """Every instance was started once for its request, and none is left: neither there nor in the tables."""
    assert world.cloud.alive() == []
    assert world.tables.plans_table.instances == {}
    requested = {instance.request_id for instance, _, _ in world.tables.plans_table.ended.values()}
    assert set(world.cloud.instances) <= requested
    assert [slot.slot_id for slot in world.slots] == [1]


def test_machines_of_a_provider_are_started_for_a_stage_and_stopped_after_it():
    world = cloud_world()
    serve(world)
    assert world.tables.runs_by_id[1].status == "finished"
    check_nothing_leaked(world)
    plan = world.tables.plans_table
    billed = sum(each.ends_seconds - each.billed_seconds for each in world.cloud.instances.values())
    assert len(world.cloud.instances) >= 2
    assert sum(cost for _, _, cost in plan.ended.values()) == pytest.approx(billed, rel=0.3)


def small_world(*, is_local: bool) -> SimulatedWorld:
    """Two trials, one of which goes on: two stages, with fewer slots in the second."""
    run = planned_run(n_configs=2, max_epochs=2)
    if is_local:
        plan = first_plan(run, PRICES, Goal(12.0), spread=0.1)
        return world_with([run], [plan], n_slots=1, max_local_slots=6, spread=0.1)
    plan = first_plan(run, PriceList("cloud", (SMALL,)), Goal(18.0), provisioner="cloud", spread=0.1)
    faults = CloudFaults(queue_seconds=lambda k: 2.0, start_seconds=lambda k: 3.0)
    return world_with([run], [plan], n_slots=1, cloud_faults=faults, spread=0.1)


def calls_about_instances(world: SimulatedWorld, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Serve a world; return the number of each call that asks for, starts, attaches, releases, stops or ends an
    instance, and of each call after one of these."""
    found: dict[int, None] = {}

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(port, *arguments, **named):
            found.update(dict.fromkeys((port._life.n_calls + 1, port._life.n_calls + 2)))
            return call(port, *arguments, **named)

        return count

    for port in (SimulatedInstances, SimulatedProvisioner):
        for name in {"request", "billed", "attach", "release", "end", "start", "stop"} & vars(port).keys():
            monkeypatch.setattr(port, name, counted(getattr(port, name)))
    serve(world)
    monkeypatch.undo()
    return list(found)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_killed_coordinator_leaves_no_instance_and_starts_none_twice(is_local, monkeypatch):
    """Killed at every call about an instance, and right after it, a successor goes on where it stood."""
    whole = small_world(is_local=is_local)
    calls = calls_about_instances(whole, monkeypatch)
    assert len(calls) > 15
    assert len({stage.n_slots for stage in whole.tables.plans_table.stages.values()}) > 1
    for k in calls:
        world = small_world(is_local=is_local)
        assert serve(world, dies_at_call=k).is_dead
        serve(world)
        assert world.tables.runs_by_id[1].status == "finished", k
        check_nothing_leaked(world)
        # The successor goes on with the instances that are there: it needs none more.
        assert len(world.cloud.instances) <= len(whole.cloud.instances), k


def tenant_runs(n_slots: int, weights: dict[str, float], **options) -> SimulatedWorld:
    """A planned run of one tenant, and a run of another that hops and wants all slots."""
    planned = planned_run(n_configs=8, max_epochs=4, tenant="one")
    other = new_run(2, n_trials=8, n_partitions=2, max_epochs=8, tenant="two")
    world = world_with([planned], [first_plan(planned, PRICES, Goal(25.0))], n_slots=n_slots, **options)
    world.tables.runs.add_run(other)
    terms = {name: Tenant(name, weight=weight) for name, weight in weights.items()}
    world.tables.tenancy = Tenancy(tenants=terms)
    return world


@pytest.mark.parametrize(("weight", "most"), [(1.0, 2), (3.0, 3), (100.0, 3)])
def test_a_planned_run_holds_no_more_than_its_tenants_share_and_leaves_a_slot_to_others(weight, most):
    world = tenant_runs(4, {"one": weight, "two": 1.0})
    serve(world)
    assert {run.status for run in world.tables.runs_by_id.values()} == {"finished"}
    last = max(unit.finished_seconds for unit in world.units if unit.order.unit.run_id == 2)
    stages = [s for s in world.tables.plans_table.stages.values() if s.ended_seconds and s.ended_seconds < last]
    assert stages
    assert max(stage.n_slots for stage in stages) == most


def test_the_last_slot_is_shared_and_the_plan_waits_for_its_turn():
    world = tenant_runs(1, {"one": 1.0, "two": 1.0})
    serve(world)
    assert {run.status for run in world.tables.runs_by_id.values()} == {"finished"}
    assert world.tables.plans_table.instances == {}


def test_nobody_else_trains_on_the_slots_of_a_planned_run():
    world = tenant_runs(2, {"one": 1.0, "two": 1.0}, max_local_slots=6)
    serve(world)
    added = {unit.order.slot_id for unit in world.units if unit.order.slot_id > 2}
    assert added
    assert {unit.order.unit.run_id for unit in world.units if unit.order.slot_id in added} == {1}


def test_a_run_that_reaches_max_cost_ends_with_what_it_has():
    run = planned_run()
    plan = replace(first_plan(run, CLOUD, provisioner="cloud"), max_cost=40.0)
    faults = CloudFaults(queue_seconds=lambda k: 2.0, start_seconds=lambda k: 3.0)
    world = world_with([run], [plan], n_slots=1, cloud_faults=faults)
    serve(world)
    assert world.tables.runs_by_id[1].status == "finished"
    assert ("max_cost", "max_cost is reached: it ends with what it has") in world.tables.notes
    costs = [cost for _, _, cost in world.tables.plans_table.ended.values()]
    assert 30.0 < sum(costs) <= 41.0
    check_nothing_leaked(world)


def test_instances_that_fail_or_die_are_replaced_and_cost_only_while_they_are_there():
    faults = CloudFaults(
        queue_seconds=lambda k: 2.0,
        start_seconds=lambda k: 3.0,
        is_failing=lambda k: k == 1,
        dies_after=lambda k: 4.0 if k == 2 else None,
    )
    world = cloud_world(faults)
    serve(world)
    assert world.tables.runs_by_id[1].status == "finished"
    check_nothing_leaked(world)
    ended = world.tables.plans_table.ended.values()
    assert sorted(status for _, status, _ in ended).count("failed") == 2
    assert sum(stage.n_failures for stage in world.tables.plans_table.stages.values()) == 2


def test_a_run_for_which_no_instance_ever_comes_up_fails_with_the_reason():
    world = cloud_world(CloudFaults(is_failing=lambda k: True))
    serve(world)
    assert world.tables.runs_by_id[1].status == "failed"
    assert any("no instance comes up: it did not come up" in text for _, text in world.tables.notes)
    check_nothing_leaked(world)


def test_a_run_whose_price_list_has_changed_fails_alone():
    runs = [planned_run(), new_run(2, n_trials=2, n_partitions=2, max_epochs=2)]
    plan = first_plan(runs[0], CLOUD, Goal(56.0), provisioner="cloud")
    renamed = replace(plan, prices=PriceList("cloud", (replace(MACHINE, name="larger"),)))
    world = world_with(runs, [renamed], n_slots=1, cloud_faults=CloudFaults())
    serve(world)
    assert {run_id: run.status for run_id, run in world.tables.runs_by_id.items()} == {1: "failed", 2: "finished"}
    assert any("has no instance type machine any more" in text for _, text in world.tables.notes)
    check_nothing_leaked(world)


def test_an_error_that_nobody_foresaw_in_a_plan_ends_its_run_alone(monkeypatch):
    def fail(*_arguments):
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr("easeml_db.coordinator.sizing.Sizing.surplus", fail)
    world = world_with(
        [planned_run(), new_run(2, n_trials=2, n_partitions=2, max_epochs=2)], [one_stage(1, 1)], n_slots=1
    )
    serve(world)
    assert {run_id: run.status for run_id, run in world.tables.runs_by_id.items()} == {1: "failed", 2: "finished"}


FOUR = InstanceType("four", "cpu", 4, 3600.0, max_instances=2)


def gang_world(width: int) -> SimulatedWorld:
    """Two trials on two machines of four slots, each trial on `width` of them."""
    run = new_run(1, n_trials=2, n_partitions=12, max_epochs=3, allocation="planned")
    stage = PlannedStage(StageKey(), "all", 2, FOUR.name, 8, 2, width, 60.0, 90.0)
    plan = RunPlan(1, 1, (stage,), PriceList("cloud", (FOUR,)), "cloud", 0.0, 60.0, 90.0, is_local=False)
    return world_with([run], [plan], n_slots=1, cloud_faults=CloudFaults())


@pytest.mark.parametrize("width", [2, 3, 4])
def test_each_gang_of_a_planned_run_lies_on_one_machine_and_stays_there(width):
    """In their order the slots of three would lie on two machines for the second trial."""
    world = gang_world(width)
    serve(world, is_replanning=False)
    assert world.tables.runs_by_id[1].status == "finished"
    machine_of = {
        slot: each.instance_id for each, _, _ in world.tables.plans_table.ended.values() for slot in each.slot_ids
    }
    gangs: dict[tuple[int, float], set[int]] = {}
    for unit in world.units:
        if unit.order.unit.kind == "train":
            gangs.setdefault((unit.order.unit.trial_id, unit.started_seconds), set()).add(unit.order.slot_id)
    assert {len(slots) for slots in gangs.values()} == {width}
    lies_on: dict[int, set[int]] = {}
    for (trial_id, _), slots in gangs.items():
        lies_on.setdefault(trial_id, set()).update(machine_of[slot] for slot in slots)
    assert [len(machines) for machines in lies_on.values()] == [1, 1]


@pytest.mark.parametrize("n_slots", [2, 4])
def test_brackets_that_overlap_take_as_long_as_planned(n_slots):
    """Hyperband begins its next bracket while few trials of the one before train, so that no slot is idle."""
    search = replace(search_for("hyperband", max_epochs=9), options_json='{"eta": 3, "n_parallel": 4}', n_configs=None)
    prices = PriceList("local", (replace(LOCAL_SLOT, max_instances=n_slots),))
    run = searched_run(1, search)
    plan = first_plan(run, prices, Goal(None, 1e9), spread=0.0)
    assert {stage.n_slots for stage in plan.stages[:-1]} == {n_slots}
    world = world_with([run], [plan], n_slots=n_slots, spread=0.0)
    serve(world)
    assert world.tables.runs_by_id[1].status == "finished"
    assert finished_seconds(world) == pytest.approx(plan.seconds_mean, rel=0.1)
    one_by_one = sum(
        max(stage.n_trials / n_slots, 1.0) * more for stage, more in zip(plan.stages, (1, 2, 6, 3, 6, 9), strict=True)
    )
    assert finished_seconds(world) < 4 * one_by_one  # seconds of an epoch


def test_a_plan_for_the_rest_knows_what_is_paid_of_the_machines_that_are_there(monkeypatch):
    """Each machine is paid for ten seconds at least: the money so far holds that, and the plan is told of it."""
    told: list[tuple[float, Circumstances, Held]] = []

    def spy(plan: RunPlan, rest: Rest, circumstances: Circumstances, reason: str):
        there = world.tables.plans_table.instances.values()
        paid = sum(each.cost_at(circumstances.now_seconds) for each in there if each.status != "releasing")
        told.append((paid, circumstances, rest.held))
        return replan(plan, rest, circumstances, reason)

    monkeypatch.setattr("easeml_db.decisions.planner.replanning.replan", spy)
    world = cloud_world(CloudFaults(lambda k: 2.0, lambda k: 3.0, lambda k: k == 1))
    serve(world)
    assert told
    for paid, circumstances, held in told:
        assert held.billed_ages == circumstances.billed_ages
        bills = [MACHINE.billed(np.array(age)) * MACHINE.price_per_second for age in held.billed_ages]
        assert float(sum(bills)) == pytest.approx(paid)


def test_trials_that_have_several_slots_keep_them_when_the_rest_is_planned_again():
    """Halving on machines of four slots with a deadline that takes gangs: each stage that ends is planned anew."""
    run = replace(planned_run(n_configs=4, max_epochs=4), joint_architectures=frozenset({"net0"}))
    known = {"trials": [*known_rows(["net0"], 0.0), *known_rows(["net0"], 0.0, n_slots=2)], "joint": ["net0"]}
    plan = first_plan(run, PriceList("cloud", (FOUR,)), Goal(12.0), provisioner="cloud", spread=0.0, known=known)
    assert [stage.width for stage in plan.stages] == [2, 2, 2]
    world = world_with([run], [plan], n_slots=1, cloud_faults=CloudFaults(), spread=0.0)
    world.tables.plans_table.known = known["trials"]
    world.tables.plans_table.joint = known["joint"]
    serve(world)
    assert world.tables.runs_by_id[1].status == "finished"
    revisions = [row for _, row in world.tables.plans_table.revisions]
    assert {row["reason"] for row in revisions} >= {"a stage has ended"}
    assert {stage["width"] for row in revisions for stage in row["stages"]} == {2}
    assert {unit.n_slots for unit in world.units if unit.order.unit.kind == "train"} == {2}
    assert finished_seconds(world) <= 12.0
    check_nothing_leaked(world)


def test_sessions_that_open_are_in_the_plan_as_they_are_in_the_run():
    """Slots of machines take five seconds to open their sessions, nothing else differs: the run ends as predicted."""
    run, start = planned_run(), {"cpu": {"session": 5.0}}
    plans = {
        told: first_plan(run, CLOUD, provisioner="cloud", spread=0.0, known={"starts": start} if told else None)
        for told in (True, False)
    }
    faults = CloudFaults(queue_seconds=lambda k: 2.0, start_seconds=lambda k: 3.0)
    world = world_with([run], [plans[True]], n_slots=1, cloud_faults=faults, spread=0.0, warm_seconds=5.0)
    serve(world)
    assert finished_seconds(world) == pytest.approx(plans[True].seconds_mean, rel=0.03)
    assert finished_seconds(world) > plans[False].seconds_mean + 4.0


@pytest.mark.parametrize("seed", [4, 12, 137, 169])
def test_a_run_whose_machine_dies_late_keeps_its_deadline_where_time_was_spared_for_that(seed):
    """Of the two hundred runs of the experiment, those that were late as long as plans used up their deadline."""
    is_kept, _ = execution(seed, is_replanning=True)
    assert is_kept


@pytest.mark.parametrize("seed", range(3))
def test_deadlines_are_kept_though_trials_differ_and_instances_fail(seed):
    """Units spread by 0.3, 2 % of instances fail; easeml experiments planner has two hundred such runs."""
    run = planned_run(n_configs=16)
    plan = first_plan(run, CLOUD, Goal(80.0, confidence=0.95), provisioner="cloud")
    faults = CloudFaults(lambda k: 2.0, lambda k: 3.0, lambda k: (k * 7 + seed) % 50 == 0)
    world = world_with([run], [plan], n_slots=1, cloud_faults=faults, seed=seed)
    serve(world)
    assert finished_seconds(world) <= 80.0


def test_a_run_whose_machines_are_still_starting_is_not_planned_again_for_that(monkeypatch):
    """Queue and start of a machine take a minute, as planned: it is not ahead when it has asked for it, nor behind
    ever after."""
    slow = replace(MACHINE, queue=Latency(40.0), initialisation=Latency(20.0))
    run = planned_run()
    plan = first_plan(run, PriceList("cloud", (slow,)), Goal(150.0), provisioner="cloud", spread=0.1)
    faults = CloudFaults(queue_seconds=lambda k: 40.0, start_seconds=lambda k: 20.0)
    world = world_with([run], [plan], n_slots=1, cloud_faults=faults, spread=0.1)
    table, made = world.tables.plans_table, []
    keep = table.keep

    def noted(run_id, row, plan, lease_number):
        made.append(plan.made_seconds)
        keep(run_id, row, plan, lease_number)

    monkeypatch.setattr(table, "keep", noted)
    serve(world)
    assert finished_seconds(world) <= 150.0
    assert min(made) > 60.0


def test_no_trial_goes_on_while_one_of_an_earlier_stage_waits_for_a_slot():
    """Some trials are let go on before the last ones of their rung are validated: these go first, else the stage ends
    late, and with it the run."""
    run = planned_run(n_configs=16)
    world = world_with([run], [first_plan(run, PRICES, Goal(400.0), spread=0.1)], n_slots=2, spread=0.1)
    serve(world)
    rung_of = {1: 1, 2: 2, 3: 4, 4: 4} | dict.fromkeys(range(5, 9), 8)
    units: dict[int, list[Any]] = {}
    for unit in sorted(world.units, key=lambda unit: unit.started_seconds):
        units.setdefault(unit.order.unit.trial_id, []).append(unit)
    waits = [
        (rung_of[after.order.unit.epoch], before.finished_seconds, after.started_seconds)
        for mine in units.values()
        for before, after in pairwise(mine)
        if rung_of[before.order.unit.epoch] == rung_of[after.order.unit.epoch]
    ]
    assert len(waits) > 50
    overtaking = [
        unit.order.unit
        for unit in world.units
        for rung, since, until in waits
        if rung < rung_of[unit.order.unit.epoch] and since < unit.started_seconds < until
    ]
    assert overtaking == []
