"""Turns: no tenant waits longer than the set time for arms of others, whatever those are, and slots never idle."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.coordinator.loop import Coordinator
from easeml_db.decisions.tenancy.turns import Turns
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.tenant import Tenancy, Tenant
from easeml_db.words.topology import Slot

FOR_EVER = 1_000_000  # epochs


def world_of(n_slots: int, trials: dict[str, int], seconds: dict[str, float], **terms: object) -> SimulatedWorld:
    """A world with a run of endless trials, as many as `trials` says, for each tenant; `seconds` of their units."""
    slots = [Slot(number, f"slot-{number}", 1) for number in range(1, n_slots + 1)]
    names = dict(enumerate(trials, 1))
    world = SimulatedWorld(slots, seconds_of=lambda unit, slot_id: seconds[names[unit.run_id]], horizon_seconds=9_000.0)
    world.tables.tenancy = Tenancy(**terms)  # type: ignore[arg-type]
    for run_id, tenant in names.items():
        run = new_run(run_id, n_trials=trials[tenant], n_partitions=1, max_epochs=FOR_EVER, tenant=tenant)
        world.add_run(run)
    return world


def served(world: SimulatedWorld, until_seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Serve for so long; return beginning and end of each tenant's units."""
    world.at(until_seconds, world.stop)
    asyncio.run(Coordinator(SimulatedProcess(world).ports).serve())
    units: dict[str, list[tuple[float, float]]] = {run.tenant: [] for run in world.tables.runs_by_id.values()}
    for row in world.units:
        tenant = world.tables.runs_by_id[row.order.unit.run_id].tenant
        units[tenant].append((row.started_seconds, row.finished_seconds))
    return units


def longest_wait(units: list[tuple[float, float]], until_seconds: float) -> float:
    """Seconds for which a tenant had no slot at a stretch."""
    free_since, longest = 0.0, 0.0
    for started, finished in sorted(units):
        longest, free_since = max(longest, started - free_since), max(free_since, finished)
    return max(longest, until_seconds - free_since)


@settings(max_examples=15)
@given(
    n_slots=st.integers(1, 3),
    n_trials=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    unit_seconds=st.lists(st.sampled_from([0.3, 1.0, 4.0]), min_size=5, max_size=5),
    max_wait=st.sampled_from([5.0, 20.0, 60.0]),
)
def test_no_tenant_waits_longer_than_the_set_time_and_a_unit_for_each_turn(
    n_slots: int, n_trials: list[int], unit_seconds: list[float], max_wait: float
) -> None:
    tenants = {f"tenant-{k}": n for k, n in enumerate(n_trials)}
    seconds = dict(zip(tenants, unit_seconds, strict=False))
    until = 3 * (max_wait + 20.0)
    units = served(world_of(n_slots, tenants, seconds, max_wait_seconds=max_wait), until)
    turns_of_a_second = len(tenants) * 1.0
    bound = max(max_wait, turns_of_a_second) + (len(tenants) + 1) * max(seconds.values())
    assert max(longest_wait(units[tenant], until) for tenant in tenants) <= bound
    busy = sum(finished - started for rows in units.values() for started, finished in rows)
    n_usable = min(n_slots, sum(n_trials))
    assert busy >= n_usable * (until - max(seconds.values())) - 3 * n_usable * max(seconds.values())


def test_two_endless_trials_of_one_tenant_leave_the_other_half_of_the_time() -> None:
    units = served(world_of(1, {"mallory": 2, "vera": 2}, {"mallory": 1.0, "vera": 1.0}), 400.0)
    n_units = {tenant: len(rows) for tenant, rows in units.items()}
    assert n_units["vera"] == pytest.approx(n_units["mallory"], rel=0.2)
    assert longest_wait(units["vera"], 400.0) <= 32.0


def test_turns_last_in_proportion_to_weights() -> None:
    tenants = {name: Tenant(name, weight) for name, weight in (("heavy", 3.0), ("light", 1.0))}
    world = world_of(1, {"light": 1, "heavy": 1}, {"light": 1.0, "heavy": 1.0}, tenants=tenants)
    n_units = {tenant: len(rows) for tenant, rows in served(world, 800.0).items()}
    assert n_units["heavy"] / n_units["light"] == pytest.approx(3.0, rel=0.15)


def test_an_infinite_time_lets_the_first_arm_go_on() -> None:
    world = world_of(1, {"mallory": 1, "vera": 1}, {"mallory": 1.0, "vera": 1.0}, max_wait_seconds=math.inf)
    assert served(world, 300.0)["vera"] == []


def test_what_was_passed_over_goes_on_and_every_run_ends() -> None:
    world = world_of(2, {}, {})
    world.seconds_of = lambda unit, slot_id: 1.0
    for run_id, tenant in enumerate(("ann", "bob", "cid"), 1):
        world.add_run(new_run(run_id, n_trials=3, n_partitions=2, max_epochs=30, tenant=tenant))
    world.tables.tenancy = Tenancy(max_wait_seconds=6.0)
    asyncio.run(Coordinator(SimulatedProcess(world).ports).serve(until_idle=True))
    assert {run.status for run in world.tables.runs_by_id.values()} == {"finished"}
    assert set(Counter(unit.order.unit.run_id for unit in world.units).values()) == {3 * (2 * 30 + 1) * 2}
    busy = sum(unit.finished_seconds - unit.started_seconds for unit in world.units)
    assert busy >= 0.99 * 2 * max(unit.finished_seconds for unit in world.units)


def test_one_tenant_is_served_as_if_there_were_no_turns() -> None:
    worlds = []
    for max_wait in (0.5, math.inf):
        slots = [Slot(number, f"slot-{number}", 1) for number in (1, 2)]
        runs = [
            new_run(run_id, n_trials=4, n_partitions=2, max_epochs=3, architectures=("mlp", "linear"))
            for run_id in (1, 2)
        ]
        world = SimulatedWorld(slots, runs, seconds_of=lambda unit, slot_id: 1.0 + unit.trial_number)
        world.tables.tenancy = replace(world.tables.tenancy, max_wait_seconds=max_wait)
        asyncio.run(Coordinator(SimulatedProcess(world).ports).serve(until_idle=True))
        worlds.append(world)
    assert worlds[0].units == worlds[1].units


def one(tenant: str) -> float:
    return 1.0


def chosen(turns: Turns, now_seconds: float, wanting: str, working: str) -> str | None:
    """Whose turn it is once these tenants, a letter each, have slots."""
    turns.started(now_seconds, working)
    return turns.choose(now_seconds, set(wanting), one)


def test_turns_begin_after_half_the_time_and_a_turn_with_its_first_unit() -> None:
    turns = Turns(60.0)
    assert chosen(turns, 0.0, "ab", "a") is None
    assert chosen(turns, 29.0, "ab", "a") is None
    assert chosen(turns, 30.0, "ab", "a") == "b"
    assert chosen(turns, 50.0, "ab", "a") == "b"  # a long unit of a goes on
    assert chosen(turns, 51.0, "ab", "b") == "b"
    assert chosen(turns, 65.0, "ab", "b") == "b"
    assert chosen(turns, 66.0, "ab", "b") == "a"
    assert chosen(turns, 67.0, "b", "b") is None  # nothing is left of a


def test_the_policy_alone_decides_where_nobody_waits_long() -> None:
    turns = Turns(60.0)
    for second in range(0, 600, 10):
        assert chosen(turns, float(second), "ab", "ab"[second // 20 % 2]) is None


def test_a_tenant_that_cannot_use_its_turn_loses_it() -> None:
    turns = Turns(60.0)
    assert chosen(turns, 0.0, "abc", "a") is None
    assert chosen(turns, 30.0, "abc", "a") == "b"
    assert chosen(turns, 31.0, "ac", "a") == "c"  # what b had cannot be started any more
    assert chosen(turns, 61.0, "abc", "a") == "b"  # c had a turn and began nothing


def test_who_all_have_slots_share_them_without_turns() -> None:
    turns = Turns(60.0)
    assert chosen(turns, 0.0, "ab", "a") is None
    assert chosen(turns, 30.0, "ab", "a") == "b"
    for second in range(31, 300):
        assert chosen(turns, float(second), "ab", "ab") == "b"
    assert chosen(turns, 300.0, "ab", "b") == "b"
    assert chosen(turns, 314.0, "ab", "b") == "a"
