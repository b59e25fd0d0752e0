"""Procedures in the coordinator's loop, in a simulated world: what is trained does not depend on what goes wrong."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.ports.messages import Order
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.procedures import PROCEDURES
from easeml_db.decisions.procedures.contract import PlannedRung
from easeml_db.decisions.procedures.creation import create_procedure
from easeml_db.decisions.procedures.proposal import begin_search
from easeml_db.errors import EasemlError, SlotLost, TrialFailed
from easeml_db.simulated import Faults, Killed, SimulatedProcess, SimulatedWorld
from easeml_db.words.run import Run, Search
from easeml_db.words.tenant import PastArm, Tenancy, Tenant
from easeml_db.words.topology import Slot
from easeml_experiments.planner.executions import N_PARTITIONS as P
from easeml_experiments.planner.executions import searched_run
from tests.unit.procedures.conftest import RATE

STAGED = sorted(name for name, factory in PROCEDURES.items() if not factory.description.is_one_shot)
# What they train does not depend on the order in which trials end.
ORDERLY = ("successive_halving", "hyperband", "sync_bohb", "pbt")


def search_of(procedure: str, *, n_arms: int = 1, max_epochs: int = 4, n_configs: int | None = None) -> Search:
    specs = [{"architecture": f"net{k}", "hyperparameters": [RATE]} for k in range(n_arms)]
    options: dict[str, Any] = {"n_parallel": 2} if "n_parallel" in PROCEDURES[procedure].description.options else {}
    if procedure == "tpe":
        options["n_startup"] = 3
    if "eta" in PROCEDURES[procedure].description.options:
        options["eta"] = 2
    return Search(json.dumps(specs), None, procedure, n_configs, max_epochs, 5, json.dumps(options))


def run_of(run_id: int, search: Search) -> Run:
    """What easeml.select_models writes down."""
    return searched_run(run_id, search, allocation="hopping", tenant="")


def world_of(runs: Sequence[Run], n_slots: int = 2, faults: Faults | None = None) -> SimulatedWorld:
    slots = [Slot(i, f"slot-{i}", 1) for i in range(1, n_slots + 1)]
    world = SimulatedWorld(slots, runs, seconds_of=seconds_of, score_of=score_of, faults=faults)
    for run in runs:
        begun = begin_search(run.search.architectures_json, None, run.search.procedure, run.search.n_configs,
                             run.search.max_epochs, run.search.seed, run.search.options_json)  # fmt: skip
        for row in json.loads(begun)["trials"]:
            world.tables.begun[100_000 * run.run_id + row["trial_number"]] = row["config"], None, 0
    return world


def seconds_of(unit: Any, slot_id: int) -> float:
    return 0.5 + (unit.trial_number * 7 + unit.partition_number * 3) % 5 / 3


def score_of(trial_number: int, epoch: int) -> float:
    """Fixed, different for each trial, now and then no number."""
    return math.nan if trial_number % 11 == 7 else (trial_number * 37 % 101) / 101 + epoch / 1000


def serve(world: SimulatedWorld, dies_at_call: int | None = None, max_attempts: int = 3) -> bool:
    """Run one coordinator until no run is open; say whether it got there."""
    process = SimulatedProcess(world, dies_at_call)
    try:
        options = Settings(max_attempts=max_attempts)
        asyncio.run(Coordinator(process.ports, options).serve(until_idle=True))
    except Killed:
        return False
    return True


def trained(world: SimulatedWorld, run_id: int = 1) -> dict[int, tuple[Any, ...]]:
    """Config, state and epochs of each trial, by number."""
    run = world.tables.run(run_id)
    return {
        trial.trial_number: (
            *world.tables.begun[trial.trial_id],
            trial.status,
            trial.n_steps_done // (2 * P),
        )
        for trial in run.trials
    }


def check(world: SimulatedWorld, run: Run) -> None:
    """The run is over, no trial went on after its end, no more was trained than planned."""
    ended = world.tables.run(run.run_id)
    assert ended.status == "finished"
    assert {trial.status for trial in ended.trials} <= {"finished", "stopped", "failed"}
    assert all(arm.is_closed for arm in ended.arms)
    assert run.search is not None
    for arm in run.arms:
        plan = create_procedure(run.search, arm=arm.name)
        trials = [trial for trial in ended.trials if ended.arm_of[trial.trial_id] == arm.arm_id]
        assert len(trials) <= plan.n_trials()
        n_epochs = sum(t.n_steps_done // (2 * P) - world.tables.begun[t.trial_id][2] for t in trials)
        assert n_epochs <= total_epochs(plan.preview())
    epochs = [(u.order.unit.trial_id, u.order.unit.kind, u.order.unit.step) for u in world.units]
    assert len(epochs) == len(set(epochs))


def total_epochs(plan: Sequence[PlannedRung]) -> int:
    return sum(rung.total_epochs for rung in plan)


@pytest.mark.parametrize("n_arms", [1, 3])
@pytest.mark.parametrize("procedure", STAGED)
def test_every_procedure_runs_to_its_end_inside_every_arm(procedure: str, n_arms: int) -> None:
    run = run_of(1, search_of(procedure, n_arms=n_arms))
    world = world_of([run], n_slots=3)
    assert serve(world)
    check(world, run)
    finished = [trial for trial in world.tables.run(1).trials if trial.status == "finished"]
    assert {world.tables.run(1).arm_of[trial.trial_id] for trial in finished} == {arm.arm_id for arm in run.arms}
    assert all(u.order.unit.kind != "test" or u.order.unit.epoch == 4 for u in world.units)


@pytest.mark.parametrize("procedure", ORDERLY)
def test_what_orderly_procedures_train_does_not_depend_on_the_number_of_slots(procedure: str) -> None:
    results = []
    for n_slots in (1, 2, 5):
        world = world_of([run_of(1, search_of(procedure, n_arms=2))], n_slots=n_slots)
        assert serve(world)
        results.append(trained(world))
    assert results[0] == results[1] == results[2]


def test_a_race_opens_the_arm_of_an_architecture_late_where_epochs_are_dear_and_at_once_where_they_are_not() -> None:
    """Of three architectures the second takes ten times as long as the first; one slot. Then of three alike."""

    def n_epochs_before_the_third(slow: float) -> int:
        search = search_of("race", n_arms=3, max_epochs=40, n_configs=3)
        run = run_of(1, replace(search, options_json='{"n_parallel": 1}'))
        seconds = {1: 1.0, 2: slow, 3: slow}
        slots = [Slot(1, "slot-1", 1)]
        world = SimulatedWorld(
            slots, [run], seconds_of=lambda unit, _: seconds[unit.trial_number], score_of=lambda k, epoch: epoch / k
        )
        for trial in run.trials:
            world.tables.begun[trial.trial_id] = {}, None, 0
        assert serve(world)
        assert {trial.n_steps_done // (2 * P) for trial in world.tables.run(1).trials} == {40}, "none is forgotten"
        numbers = [unit.order.unit.trial_number for unit in world.units]
        return numbers[: numbers.index(3)].count(1) // (2 * P)

    assert n_epochs_before_the_third(1.0) <= 8 < 15 <= n_epochs_before_the_third(10.0)


@pytest.mark.parametrize("max_seconds", [None, 1000.0])
def test_a_race_goes_on_until_the_deadline_of_its_tenant_however_long_its_architectures_might_take(
    max_seconds: float | None,
) -> None:
    """No run before took less than 4,000 seconds for as much; the deadline is in 200."""
    search = replace(search_of("race", n_arms=2, max_epochs=40, n_configs=4), options_json='{"n_parallel": 1}')
    run = replace(run_of(1, search), tenant="anna", max_seconds=max_seconds)
    tenancy = Tenancy(tenants={"anna": Tenant("anna", deadline_seconds=200.0)})
    world = SimulatedWorld(
        [Slot(1, "slot-1", 1)], [run], seconds_of=lambda _unit, _slot: 1.0, score_of=lambda k, epoch: epoch / k,
    )  # fmt: skip
    world.tables.tenancy = tenancy
    world.tables.past_arms += [PastArm(900 + k, "classification", f"net{k}", 0.5, 4000.0, 80.0) for k in range(2)]
    for trial in run.trials:
        world.tables.begun[trial.trial_id] = {}, None, 0
    assert serve(world)
    assert world.tables.run(1).status == "finished"
    assert {unit.order.unit.trial_number for unit in world.units} >= {1, 2}
    assert len(world.units) > 190, "the slot is never idle"


@pytest.mark.parametrize("n_slots", [1, 2])
@pytest.mark.parametrize("policy", ["hybrid", "round_robin", "greedy"])
def test_a_race_does_not_lose_its_slot_to_a_run_behind_it_where_it_is_another_architectures_turn(
    policy: str, n_slots: int
) -> None:
    """The other run has one architecture, and 1,600 units to train."""
    race = replace(search_of("race", n_arms=3, max_epochs=40, n_configs=9), options_json='{"n_parallel": 1}')
    other = search_of("tpe", max_epochs=20, n_configs=20)
    world = world_of([run_of(1, race), run_of(2, other)], n_slots=n_slots)
    world.tables.tenancy = Tenancy(policy=policy)
    world.tables.past_arms += [PastArm(900 + k, "classification", f"net{k}", 0.5, 400.0, 80.0) for k in range(3)]
    assert serve(world)
    times = sorted((u.started_seconds, u.finished_seconds) for u in world.units if u.order.unit.run_id == 1)
    assert max(later[0] - earlier[1] for earlier, later in pairwise(times)) < 10.0, "the race is never idle for long"
    assert {world.tables.run(k).status for k in (1, 2)} == {"finished"}


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(STAGED), st.integers(1, 3), st.integers(1, 3), st.lists(st.integers(5, 300), max_size=4), st.data()
)
def test_kills_and_lost_sessions_change_nothing_that_is_decided(
    procedure: str, n_arms: int, n_slots: int, kills: list[int], data: st.DataObject
) -> None:
    lost = data.draw(st.sets(st.integers(0, 60), max_size=4))
    count = iter(range(10**6))

    def failure_of(order: Order) -> EasemlError | None:
        return SlotLost("gone") if next(count) in lost else None

    run = run_of(1, search_of(procedure, n_arms=n_arms))
    world = world_of([run], n_slots, Faults(failure_of=failure_of))
    for dies_at_call in [*kills, None]:
        if serve(world, dies_at_call, max_attempts=10**9):
            break
    check(world, run)
    if procedure in ORDERLY:
        quiet = world_of([run], 1)
        assert serve(quiet)
        assert trained(world) == trained(quiet)


@pytest.mark.parametrize("procedure", STAGED)
def test_failed_trials_are_the_worst_and_stop_nobody(procedure: str) -> None:
    def failure_of(order: Order) -> EasemlError | None:
        is_cursed = order.unit.trial_number % 3 == 1 and order.unit.kind == "train" and order.unit.epoch >= 1
        return TrialFailed("diverged") if is_cursed else None

    run = run_of(1, search_of(procedure))
    world = world_of([run], faults=Faults(failure_of=failure_of))
    assert serve(world)
    check(world, run)
    states = {trial.trial_number: trial.status for trial in world.tables.run(1).trials}
    assert all((states[number] == "failed") == (number % 3 == 1) for number in states)


@pytest.mark.parametrize("procedure", ORDERLY)
@settings(max_examples=10, deadline=None)
@given(at_seconds=st.floats(1.0, 25.0))
def test_a_run_that_is_cancelled_and_resumed_decides_as_if_nothing_had_been(procedure: str, at_seconds: float) -> None:
    run = run_of(1, search_of(procedure))
    world = world_of([run])
    quiet = world_of([run])
    assert serve(quiet)
    is_cancelled = []

    def cancel() -> None:
        if world.tables.open_runs():
            world.cancel_run(1)
            is_cancelled.append(True)

    world.at(at_seconds, cancel)
    assert serve(world)
    if is_cancelled:
        assert "waiting" not in {trial.status for trial in world.tables.run(1).trials}
        world.resume_run(1)
        assert serve(world)
    assert trained(world) == trained(quiet)


def test_a_time_limit_stops_trials_that_wait_for_a_decision() -> None:
    run = replace(run_of(1, search_of("successive_halving", max_epochs=8)), max_seconds=7.0)
    world = world_of([run])
    assert serve(world)
    ended = world.tables.run(1)
    assert ended.status == "finished"
    assert {trial.status for trial in ended.trials} == {"stopped"}


def test_a_config_that_a_tenant_wrote_into_a_table_ends_that_run_and_no_other() -> None:
    good, bad = run_of(1, search_of("tpe", n_configs=6)), run_of(2, search_of("tpe", n_configs=6))
    world = world_of([good, bad])
    for trial in bad.trials:  # a hyperparameter that is not in the space
        world.tables.begun[trial.trial_id] = {"rate": "fast"}, None, 0
    assert serve(world)
    check(world, good)
    assert world.tables.run(2).status == "failed"
    assert any(kind == "refused" and "procedure cannot go on" in text for kind, text in world.tables.notes)


def test_two_runs_search_side_by_side() -> None:
    runs = [run_of(1, search_of("hyperband", n_arms=2)), run_of(2, search_of("asha", n_arms=1))]
    world = world_of(runs, n_slots=3)
    assert serve(world)
    for run in runs:
        check(world, run)


def test_trials_know_their_bracket() -> None:
    run = run_of(1, search_of("hyperband", n_arms=2, max_epochs=4))
    world = world_of([run])
    assert serve(world)
    plan = create_procedure(run.search, arm="net0").preview()  # type: ignore[arg-type]
    n_trials = {rung.bracket: 2 * rung.n_trials for rung in plan if rung.rung == 0}
    assert Counter(trial.bracket for trial in world.tables.run(1).trials) == n_trials


def test_a_run_passes_the_packages_that_the_page_on_the_architecture_names() -> None:
    page = (Path(__file__).parents[3] / "docs/design/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \d \| `(\S+)` \|", page, re.MULTILINE)
    assert len(named) == 9
    entered: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("easeml_db."):
            entered.add("/".join(module.split(".")[: 3 if ".decisions." in module else 2]))

    sys.setprofile(note)
    try:
        assert serve(world_of([run_of(1, search_of("asha", n_arms=2))]))
    finally:
        sys.setprofile(None)
    outside = {"sql", "easeml_db/postgres", "plpy/easeml_plpy"}  # simulated here
    assert entered - {"easeml_db/words", "easeml_db/simulated"} == set(named) - outside
