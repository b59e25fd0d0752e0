"""Replanning: a new plan for the rest of a run, from the slots that it holds and the time and money that are left.

Limits that can no longer be kept are approached as closely as possible: if the deadline is lost, the plan is the
fastest for the money; if the money does not suffice, the cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from easeml_db.decisions.planner.documents import plan_rows
from easeml_db.decisions.planner.forecast_documents import rest_of
from easeml_db.decisions.planner.job import Cut, Job, architectures_of
from easeml_db.decisions.planner.planning import PLANNED, Alternative, Goal, best_plan
from easeml_db.decisions.planner.prices import InstanceType, PriceList
from easeml_db.decisions.planner.run_plan import RunPlan, planned_stages
from easeml_db.decisions.planner.simulation import NOTHING, Allocation, Held, Prediction, Simulator
from easeml_db.errors import EasemlError

SAMPLES = 40
CONFIDENCE = 0.95
ENDING_EPOCHS = 0.5  # a test takes no longer than the validation of an epoch, which is about half of it at most
LEAST_SECONDS, LEAST_COST = 1e-3, 1e-9


@dataclass(frozen=True)
class Circumstances:
    """The resources of a run: instances held of one type, the cost so far, and by type the largest number of instances
    that it may have (absent: as many as the price list says). `ages` of those held that may still be starting: whether
    each is up, and the seconds since it came up, or was requested. `billed_ages`: the seconds since those held that are
    billed have been, whose minimum charges are in the cost so far.
    """

    now_seconds: float
    cost: float
    held_type: str = ""
    n_held: int = 0
    most: Mapping[str, int] | None = None
    ages: tuple[tuple[bool, float], ...] = ()
    billed_ages: tuple[float, ...] = ()


class Rest:
    """The rest of a run, ready to be predicted. Raises NotReady, InvalidArgument if nothing is known of it."""

    def __init__(self, plan: RunPlan, standing: Mapping[str, Any], circumstances: Circumstances) -> None:
        self._plan, self._now = plan, circumstances
        self._stages, knowledge = rest_of(standing, is_on_own_slots=plan.is_local)
        self._types = _available_types(plan.prices, circumstances)
        self._simulator: Simulator | None = None
        self.ending_seconds = 0.0  # of the test of the best trial, which no stage has
        if self._stages and self._types:
            kinds = [instance.device_kind for instance in self._types]
            profiles = knowledge.profiles(architectures_of(self._stages), kinds, is_local=False)
            if not any(load.is_tested for stage in self._stages for load in stage.loads):
                self.ending_seconds = ENDING_EPOCHS * max(profile.seconds(1) for profile in profiles.values())
            sessions = [profile.session_seconds for (_, kind), profile in profiles.items() if kind == self._held_kind()]
            waiting = self._starting_seconds(max(sessions, default=0.0))
            job = Job(
                self._stages, profiles, data_gb=standing["knowledge"]["data_gb"], margin_seconds=waiting,
                cut=self._cut(standing.get("seconds_to_limit")),
            )  # fmt: skip
            prices = PriceList(plan.prices.name, self._types)
            self._simulator = Simulator(job, prices, n_samples=SAMPLES, seed=standing["seed"])
        self.notes = "; ".join(knowledge.notes)

    def _cut(self, seconds_to_limit: float | None) -> Cut | None:
        """Return when a run with max_seconds is cut short: in time for its test before the deadline, too."""
        if seconds_to_limit is None:
            return None
        deadline = math.inf if self._plan.deadline_seconds is None else self._plan.deadline_seconds
        latest = deadline - self._now.now_seconds - self.ending_seconds
        return Cut(max(0.0, seconds_to_limit), max(0.0, latest * (1 - 1e-9)), is_begun=True)

    @property
    def simulator(self) -> Simulator | None:
        """The simulator of the rest; None if nothing is left, or no instance is available."""
        return self._simulator

    @property
    def held(self) -> Held:
        """The instances that the run holds, in the simulator's form."""
        number = self._number(self._now.held_type)
        if number is None or not self._now.n_held:
            return NOTHING
        return Held(number, self._now.n_held * self._types[number].n_slots, self._now.billed_ages)

    @property
    def replacement_seconds(self) -> float:
        """How long it takes to replace an instance that dies."""
        waits = [latency for instance in self._types for latency in (instance.queue, instance.initialisation)]
        return sum(latency.mean_seconds + latency.sd_seconds for latency in waits) / max(1, len(self._types))

    def _held_kind(self) -> str | None:
        number = self._number(self._now.held_type)
        return None if number is None else self._types[number].device_kind

    def _starting_seconds(self, session_seconds: float) -> float:
        """Return for how long, on average, the held instances will not train yet: a recent request is no reason to
        count a run as ahead of its plan.
        """
        number = self._number(self._now.held_type)
        if number is None or not self._now.n_held:
            return 0.0
        instance = self._types[number]
        up_after = instance.queue.mean_seconds + instance.initialisation.mean_seconds
        left = (
            max(0.0, session_seconds - age) if is_up else max(0.0, up_after - age) + session_seconds
            for is_up, age in self._now.ages
        )
        return sum(left) / self._now.n_held

    def as_planned(self) -> Prediction | None:
        """Predict the rest with the slots that the plan gives its stages; None where that cannot be."""
        if self._simulator is None:
            return None
        sizes = []
        for stage in self._stages:
            planned = self._plan.stage_of([stage.key])
            number = None if planned is None else self._number(planned.instance_type)
            if planned is None or number is None or planned.n_slots > self._types[number].most_slots:
                return None
            sizes.append(Allocation(number, planned.n_slots))
        return self._simulator.predict(tuple(sizes), self.held)

    def _number(self, instance_type: str) -> int | None:
        return next((k for k, instance in enumerate(self._types) if instance.name == instance_type), None)


def leaves_plan(plan: RunPlan, prediction: Prediction, now_seconds: float, ending_seconds: float = 0.0) -> str | None:
    """Return why a run has left its plan, or None if it has not. It has left it if its expected end is later than the
    plan's end in 95 of 100 cases, if its own end in 95 of 100 cases is earlier than the plan's expected end, or if its
    deadline is at risk and was not when it was planned.
    """
    ends = now_seconds + prediction.seconds - plan.made_seconds
    most = math.inf if plan.deadline_seconds is None else plan.deadline_seconds - plan.made_seconds - ending_seconds
    if plan.seconds_p95 <= most < float(np.quantile(ends, CONFIDENCE)):
        return f"the deadline is at risk: {np.quantile(ends, CONFIDENCE):.0f} s may be needed, {most:.0f} s there are"
    if float(ends.mean()) > plan.seconds_p95:
        return f"behind: {ends.mean():.0f} s are expected in all, planned were {plan.seconds_p95:.0f} s at most"
    if float(np.quantile(ends, CONFIDENCE)) < plan.seconds_mean:
        return f"ahead: {ends.mean():.0f} s are expected in all, planned were {plan.seconds_mean:.0f} s"
    return None


@dataclass(frozen=True)
class Replanned:
    """A new plan for the rest of a run, its row with its stages, and why it was made."""

    plan: RunPlan
    row: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class Replanning:
    """The question how to plan the rest of a run, asked for a `reason`, or (None) only if it has left its plan."""

    plan: RunPlan
    standing: Mapping[str, Any]
    circumstances: Circumstances
    reason: str | None = None

    def answer(self) -> Replanned | None:
        """Return the new plan; None if none is needed, or nothing is left. Raises EasemlError if there is none."""
        rest = Rest(self.plan, self.standing, self.circumstances)
        reason = self.reason or self._why(rest)
        if reason is None or rest.simulator is None:
            return None
        return Replanned(*replan(self.plan, rest, self.circumstances, reason), reason)

    def _why(self, rest: Rest) -> str | None:
        prediction = rest.as_planned()
        if prediction is None:
            return None
        return leaves_plan(self.plan, prediction, self.circumstances.now_seconds, rest.ending_seconds)


def replan(plan: RunPlan, rest: Rest, circumstances: Circumstances, reason: str) -> tuple[RunPlan, dict[str, Any]]:
    """Return the plan for the rest, and the row of it with its stages. Raises EasemlError if nothing is left, or no
    instance is available.
    """
    simulator = rest.simulator
    if simulator is None:
        raise EasemlError("nothing can be planned: no instance is to be had")
    within_limits = _within(plan, rest, circumstances, simulator)
    money = None if plan.max_cost is None else plan.max_cost - circumstances.cost
    alternative = within_limits or _as_good_as_can_be(simulator, money, rest.held)
    rows = plan_rows(simulator, alternative, rest.notes)
    row = rows[-1] | {
        "revision": plan.revision + 1, "reason": reason, "is_within_limits": within_limits is not None,
        "cost_before": circumstances.cost, "stages": rows[:-1],
    }  # fmt: skip
    renewed = replace(
        plan, revision=row["revision"], stages=planned_stages(rows[:-1]), made_seconds=circumstances.now_seconds,
        seconds_mean=row["seconds_mean"], seconds_p95=row["seconds_p95"], cost_before=circumstances.cost,
    )  # fmt: skip
    return renewed, row


def _within(plan: RunPlan, rest: Rest, now: Circumstances, simulator: Simulator) -> Alternative | None:
    """Return the plan that keeps the limits, preferably one that still does if an instance dies."""
    spare = rest.replacement_seconds if plan.deadline_seconds is not None else 0.0
    # Without a spare the two are the same number, and one search is enough.
    for seconds in dict.fromkeys((rest.ending_seconds + spare, rest.ending_seconds)):
        goal = _goal(plan, now, seconds)
        alternative = None if goal is None else best_plan(simulator, goal, rest.held)
        if alternative is not None:
            return alternative
    return None


def _goal(plan: RunPlan, now: Circumstances, ending_seconds: float) -> Goal | None:
    """Return what is left of the limits; None if one of them is lost already."""
    deadline = plan.deadline_seconds
    seconds = None if deadline is None else deadline - now.now_seconds - ending_seconds
    cost = None if plan.max_cost is None else plan.max_cost - now.cost
    if (seconds is not None and seconds < LEAST_SECONDS) or (cost is not None and cost < LEAST_COST):
        return None
    return Goal(seconds, cost, CONFIDENCE)


def _as_good_as_can_be(simulator: Simulator, money: float | None, held: Held) -> Alternative:
    """Return the fastest plan for the money that is left, else the cheapest. None: it may cost whatever it costs."""
    # `Goal` ranks by time where it has a sum and no deadline, so the fastest plan of all needs a sum that no plan
    # reaches. `Goal()` ranks by cost.
    most = 1e12 if money is None else money
    for_money = (Goal(None, most, CONFIDENCE), Goal(None, most)) if most >= LEAST_COST else ()
    for looser in (*for_money, Goal()):
        alternative = best_plan(simulator, looser, held)
        if alternative is not None:
            return alternative
    raise EasemlError(f"{PLANNED}: there is no plan at all")


def _available_types(prices: PriceList, now: Circumstances) -> tuple[InstanceType, ...]:
    """Return the instance types of which the run may have any, with how many."""
    available = []
    for instance in prices.types:
        most = (now.most or {}).get(instance.name)
        if most is None:
            available.append(instance)
        elif most > 0:
            available.append(replace(instance, max_instances=min(most, instance.max_instances or most)))
    return tuple(available)
