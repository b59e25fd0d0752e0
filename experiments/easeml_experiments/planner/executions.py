"""Planned runs carried out in simulation: a search on machines of a provider, with units that differ and machines that
fail. Are deadlines kept, and does planning again help?"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.settings import Settings
from easeml_db.decisions.hopper.allocation.registry import PLANNED
from easeml_db.decisions.planner.declared import declared_stages
from easeml_db.decisions.planner.documents import plan_rows
from easeml_db.decisions.planner.job import Job, Latency, architectures_of
from easeml_db.decisions.planner.knowledge import Knowledge
from easeml_db.decisions.planner.planning import Goal, make_plans
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.run_plan import RunPlan, planned_stages
from easeml_db.decisions.planner.simulation import Simulator
from easeml_db.decisions.procedures.proposal import begin_search
from easeml_db.simulated import CloudFaults, SimulatedProcess, SimulatedWorld
from easeml_db.words.instance import LOCAL
from easeml_db.words.run import Arm, Run, Search
from easeml_db.words.topology import Slot
from easeml_db.words.trial import Trial
from easeml_experiments.contract import Measure, at_least

Row = dict[str, Any]
N_PARTITIONS = 2
UNIT_SECONDS = 1.0
SPREAD, FAILURES, SLACK = 0.3, 0.02, 1.3
RATE = {"name": "rate", "kind": "float", "default": 0.1, "low": 0.0, "high": 1.0,
        "search": {"low": 0.01, "high": 1.0, "log": True}}  # fmt: skip
MACHINE = InstanceType(
    "machine", "cpu", 2, 3600.0, minimum_seconds=10.0, queue=Latency(2.0, 1.0), initialisation=Latency(3.0, 1.0),
    max_instances=8,
)  # fmt: skip
CLOUD = PriceList("cloud", (MACHINE,))


def executions(seed: int, n: int) -> list[Row]:
    """Return how many of `n` runs kept their deadline, and what they cost, with and without planning again."""
    rows: list[Row] = []
    for is_replanning in (True, False):
        found = [execution(seed + k, is_replanning=is_replanning) for k in range(n)]
        kept, costs = sum(is_kept for is_kept, _ in found), [cost for _, cost in found]
        rows.append({"is_replanning": is_replanning, "n_runs": n, "kept": kept / n, "mean_cost": sum(costs) / n})
    return rows


def measures(rows: Sequence[Row]) -> Iterator[Measure]:
    """Yield the share of deadlines that are kept."""
    for row in rows:
        where = f"{row['n_runs']} runs, units spread by {SPREAD}, {FAILURES:.0%} of machines fail"
        if row["is_replanning"]:
            yield at_least("deadlines kept, planning again", where, None, row["kept"], 0.98)
        else:
            yield Measure("deadlines kept, by the first plan", where, None, row["kept"])


def execution(seed: int, *, is_replanning: bool) -> tuple[bool, float]:
    """Return whether a run kept a deadline of 1.3 times the fastest plan's, and what it cost."""
    rng = random.Random(seed)
    run = searched_run(1, search_for(n_configs=rng.choice((8, 16))))
    fastest = first_plan(run, CLOUD, Goal(None, 1e9, confidence=0.95), provisioner="cloud")
    deadline = fastest.seconds_p95 * SLACK
    plan = first_plan(run, CLOUD, Goal(deadline, confidence=0.95), provisioner="cloud")
    faults = CloudFaults(
        lambda number: rng.lognormvariate(0.6, 0.4),
        lambda number: rng.lognormvariate(1.0, 0.3),
        lambda number: rng.random() < FAILURES,
        lambda number: rng.uniform(0.0, 60.0) if rng.random() < FAILURES else None,
    )
    world = planned_world([run], [plan], n_slots=1, seed=seed, cloud_faults=faults)
    process = SimulatedProcess(world)
    asyncio.run(Coordinator(process.ports, Settings(is_replanning=is_replanning)).serve(until_idle=True))
    cost = sum(cost for _, _, cost in world.tables.plans_table.ended.values())
    return max(unit.finished_seconds for unit in world.units) <= deadline, cost


# A search, its plan and its world


def search_for(
    procedure: str = "successive_halving", *, n_configs: int = 8, max_epochs: int = 8, n_arms: int = 1
) -> Search:
    """Return a search that lets half of its trials go on at each rung."""
    specs = [{"architecture": f"net{k}", "hyperparameters": [RATE]} for k in range(n_arms)]
    return Search(json.dumps(specs), None, procedure, n_configs, max_epochs, 5, json.dumps({"eta": 2}))


def searched_run(run_id: int, search: Search, *, allocation: str = PLANNED, tenant: str = "tenant") -> Run:
    """Return a run as easeml.select_models writes it down."""
    begun = json.loads(
        begin_search(
            search.architectures_json, None, search.procedure, search.n_configs, search.max_epochs, search.seed,
            search.options_json,
        )
    )  # fmt: skip
    arms = tuple(
        Arm(1000 * run_id + k, arm["architecture"], float(arm["planned_epochs"]), n_epochs=arm["planned_epochs"])
        for k, arm in enumerate(begun["arms"], 1)
    )
    arm_ids = {arm.name: arm.arm_id for arm in arms}
    trials = {
        Trial(
            100_000 * run_id + row["trial_number"], run_id, row["trial_number"], N_PARTITIONS, search.max_epochs, 0,
            "waiting", target_epochs=row["target_epochs"], bracket=row["bracket"],
        ): row
        for row in begun["trials"]
    }  # fmt: skip
    return Run(
        run_id, search.seed, "queued", None, None, tuple(trials),
        {trial.trial_id: row["architecture"] for trial, row in trials.items()}, "auto", tenant=tenant, arms=arms,
        arm_of={trial.trial_id: arm_ids[row["arm"]] for trial, row in trials.items()}, search=search,
        allocation=allocation,
    )  # fmt: skip


def unit_seconds(spread: float, seed: int = 0) -> Callable[[Any, int], float]:
    """Return how long units take: lognormal with mean 1; the same unit always takes the same time."""
    sigma = math.sqrt(math.log1p(spread**2))

    def seconds_of(unit: Any, slot_id: int) -> float:
        drawn = random.Random(f"{seed} {unit.trial_number} {unit.step} {unit.kind}").gauss(0.0, 1.0)
        return UNIT_SECONDS * math.exp(sigma * drawn - sigma**2 / 2)

    return seconds_of


def known_rows(names: Sequence[str], spread: float, n: int = 12, n_slots: int = 1) -> list[Row]:
    """Return what earlier trials took on so many slots each: an epoch is a train and a validate unit on each
    partition."""
    seconds = math.ceil(N_PARTITIONS / n_slots) * UNIT_SECONDS
    return [
        {"architecture": name, "device_kind": "cpu", "n_slots": n_slots, "is_same": True, "scale": 1,
         "epoch_seconds": 2 * seconds, "sd_seconds": spread * math.sqrt(2 * seconds * UNIT_SECONDS), "n_epochs": 4,
         "test_seconds": seconds}
        for name in names
        for _ in range(n)
    ]  # fmt: skip


def first_plan(
    run: Run,
    prices: PriceList,
    goal: Goal | None = None,
    *,
    provisioner: str = LOCAL,
    spread: float = SPREAD,
    known: Row | None = None,
) -> RunPlan:
    """Return the plan with which a run begins; `known`: what is known besides, as easeml.known_times says."""
    stages, goal = declared_stages(run.search) if run.search is not None else (), goal or Goal()
    names = architectures_of(stages)
    all_known = {
        "trials": known_rows(names, spread), "speedups": None, "curves": None, "max_slots": None, "data_gb": 0.0,
        "n_partitions": N_PARTITIONS, "whole": [], "joint": [], **(known or {}),
    }  # fmt: skip
    kinds = [each.device_kind for each in prices.types]
    simulator = Simulator(Job(stages, Knowledge(all_known, "d").profiles(names, kinds, is_local=False)), prices)
    rows = plan_rows(simulator, make_plans(simulator, goal)[0], "")
    total = rows[-1]
    return RunPlan(
        run.run_id, 1, planned_stages(rows[:-1]), prices, provisioner, 0.0, total["seconds_mean"],
        total["seconds_p95"], deadline_seconds=goal.deadline_seconds, max_cost=goal.max_cost,
        is_local=provisioner == LOCAL,
    )  # fmt: skip


def planned_world(
    runs: Sequence[Run], plans: Sequence[RunPlan], *, n_slots: int = 4, spread: float = SPREAD, seed: int = 0,
    **options: Any,
) -> SimulatedWorld:  # fmt: skip
    """Return a world in which these runs are asked for, with their plans."""
    slots = [Slot(i, f"slot-{i}", 1) for i in range(1, n_slots + 1)]

    def score_of(trial_number: int, epoch: int) -> float:
        return (trial_number * 37 % 101) / 101 + epoch / 1000

    world = SimulatedWorld(slots, runs, seconds_of=unit_seconds(spread, seed), score_of=score_of, **options)
    world.tables.begun |= {trial.trial_id: ({}, None, 0) for run in runs for trial in run.trials}
    names = {name for run in runs for name in run.architectures.values()}
    world.tables.plans_table.known = [*known_rows(sorted(names), spread)]
    world.tables.plans_table.plans = {plan.run_id: plan for plan in plans}
    return world
