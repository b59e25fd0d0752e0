"""The plan for a goal: the cheapest that keeps a deadline, or the fastest for a sum of money.

Candidates are all worthwhile plans (`trade_offs`), what algorithm 2 makes of one, two and three times the cheapest
static cluster, the static and the naive elastic plans themselves; the best is improved step by step. So no plan is
predicted dearer than the best static one, nor later than the deadline. All of them are judged by the same simulation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from easeml_db.decisions.planner.baselines import naive_elastic_plans, static_plans
from easeml_db.decisions.planner.greedy import optimise, warm_starts
from easeml_db.decisions.planner.job import Vector
from easeml_db.decisions.planner.simulation import NOTHING, Allocation, Held, Plan, Prediction, Simulator
from easeml_db.decisions.planner.steps import options
from easeml_db.decisions.planner.trade_offs import trade_offs
from easeml_db.errors import InvalidArgument

_Item = TypeVar("_Item")
MAX_SIMULATED = 400  # plans out of the trade-offs
MAX_GREEDY_STEPS = 60
MAX_IMPROVEMENTS = 12
PLANNED, STATIC, NAIVE_ELASTIC = "planned", "static", "naive_elastic"


@dataclass(frozen=True)
class Goal:
    """The limits of a plan: a deadline, a sum of money, both or nothing. `confidence`: the probability of keeping them
    (None: on average). Raises InvalidArgument.
    """

    deadline_seconds: float | None = None
    max_cost: float | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("deadline", self.deadline_seconds), ("max_cost", self.max_cost)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidArgument(f"{name}: expected a number above 0, got {value:g}")
        if self.confidence is not None and not 0.5 <= self.confidence < 1:
            raise InvalidArgument(f"confidence: expected at least 0.5 and less than 1, got {self.confidence:g}")

    def seconds(self, prediction: Prediction) -> float:
        """Return the time that is held against the deadline."""
        return self._of(prediction.seconds)

    def cost(self, prediction: Prediction) -> float:
        """Return the cost that is held against the sum."""
        return self._of(prediction.cost)

    def allows(self, prediction: Prediction) -> bool:
        """Return whether a plan keeps the limits."""
        return self.is_in_time(prediction) and (self.max_cost is None or self.cost(prediction) <= self.max_cost)

    def is_in_time(self, prediction: Prediction) -> bool:
        """Return whether a plan keeps the deadline."""
        return self.deadline_seconds is None or self.seconds(prediction) <= self.deadline_seconds

    def chance(self, prediction: Prediction) -> float | None:
        """Return the share of samples in which a plan keeps the limits; None if there are none."""
        if self.deadline_seconds is None and self.max_cost is None:
            return None
        in_time = prediction.seconds <= (self.deadline_seconds or math.inf)
        return float((in_time & (prediction.cost <= (self.max_cost or math.inf))).mean())

    def rank(self, prediction: Prediction) -> tuple[float, float, float]:
        """Return the quantities to minimise: the share of work that is cut off, then cost, then time; with a sum and no
        deadline, time before cost.
        """
        undone = round(1.0 - prediction.done, 9)
        cost, seconds = prediction.mean_cost, prediction.mean_seconds
        if self.deadline_seconds is None and self.max_cost is not None:
            return undone, seconds, cost
        return undone, cost, seconds

    def _of(self, values: Vector) -> float:
        return float(values.mean() if self.confidence is None else np.quantile(values, self.confidence))


@dataclass(frozen=True)
class Alternative:
    """A plan and its prediction."""

    name: str
    plan: Plan
    prediction: Prediction


def make_plans(simulator: Simulator, goal: Goal, held: Held = NOTHING) -> list[Alternative]:
    """Return the plan, and the best static and naive elastic ones if any keep the limits. Raises InvalidArgument if no
    plan keeps them; the error names the fastest, or the cheapest in time, and its cost.
    """
    search = _Search(simulator, goal, held)
    static = search.best(static_plans(simulator))
    naive = search.best(naive_elastic_plans(simulator))
    frontier = _thinned(trade_offs(simulator, held))
    plan = search.best([*search.improved_starts(static), *frontier, *filter(None, (static, naive))])
    if plan is None:
        raise search.refusal(frontier)
    candidates = ((PLANNED, search.improved(plan)), (STATIC, static), (NAIVE_ELASTIC, naive))
    return [Alternative(name, chosen, search.predict(chosen)) for name, chosen in candidates if chosen is not None]


def best_plan(simulator: Simulator, goal: Goal, held: Held = NOTHING) -> Alternative | None:
    """Return the plan alone, None where no plan keeps the limits."""
    search = _Search(simulator, goal, held)
    static = search.best(static_plans(simulator))
    plan = search.best(
        [*search.improved_starts(static), *_thinned(trade_offs(simulator, held)), *filter(None, [static])]
    )
    if plan is None:
        return None
    improved = search.improved(plan)
    return Alternative(PLANNED, improved, search.predict(improved))


def plan_frontier(simulator: Simulator, n_points: int, held: Held = NOTHING) -> list[Alternative]:
    """Return up to `n_points` plans from the fastest to the cheapest, none both slower and dearer than another."""
    search = _Search(simulator, Goal(), held)
    plans = [*_thinned(trade_offs(simulator, held)), *filter(None, [search.best(static_plans(simulator))])]
    predicted = sorted(
        ((search.predict(plan), plan) for plan in plans), key=lambda one: (one[0].mean_seconds, one[0].mean_cost)
    )
    points: list[tuple[Prediction, Plan]] = []
    for prediction, plan in predicted:
        if not points or prediction.mean_cost < points[-1][0].mean_cost * (1 - 1e-9):
            points.append((prediction, plan))
    return [Alternative(str(k), plan, prediction) for k, (prediction, plan) in enumerate(_spread(points, n_points), 1)]


class _Search:
    """Compares plans for one goal."""

    def __init__(self, simulator: Simulator, goal: Goal, held: Held) -> None:
        self._simulator, self._goal, self._held = simulator, goal, held

    def predict(self, plan: Plan) -> Prediction:
        """Return the prediction of a plan."""
        return self._simulator.predict(plan, self._held)

    def best(self, plans: Iterable[Plan]) -> Plan | None:
        """Return the best plan that keeps the limits."""
        allowed = [(self._goal.rank(one), plan) for plan in plans if self._goal.allows(one := self.predict(plan))]
        # Between plans of equal rank the plan itself decides, so that one seed gives one plan.
        return min(allowed, default=(None, None))[1]

    def improved_starts(self, static: Plan | None) -> Iterator[Plan]:
        """Yield the results of algorithm 2 from its warm starts."""
        # `optimise` predicts from nothing held, which would be wrong of a run that holds slots.
        if static is None or self._held != NOTHING:
            return
        for start in warm_starts(self._simulator, static):
            if self._goal.allows(self.predict(start)):
                yield optimise(self._simulator, start, self._goal.allows, max_steps=MAX_GREEDY_STEPS)

    def improved(self, plan: Plan) -> Plan:
        """Change one stage, or two at once, to the next option up or down, as long as that helps."""
        for _ in range(MAX_IMPROVEMENTS):
            better = self.best(_Neighbours(self._simulator, plan).plans())
            if better is None or self._goal.rank(self.predict(better)) >= self._goal.rank(self.predict(plan)):
                return plan
            plan = better
        return plan

    def refusal(self, plans: Sequence[Plan]) -> InvalidArgument:
        """Return the error that says what would be possible."""
        goal, deadline = self._goal, self._goal.deadline_seconds
        predictions = [self.predict(plan) for plan in plans]
        fastest = min(predictions, key=lambda one: (goal.seconds(one), goal.cost(one)))
        in_time = [one for one in predictions if goal.is_in_time(one)]
        if deadline is not None and not in_time:
            return InvalidArgument(
                f"deadline: expected at least {_seconds(_rounded_up(goal.seconds(fastest)))}, the fastest plan,"
                f" got {_seconds(deadline)}",
                hint=f"The fastest plan costs {_money(goal.cost(fastest))}."
                " Allow more time, fewer trials or fewer epochs; with max_seconds it may end unfinished.",
            )
        cheapest = min(in_time, key=lambda one: (goal.cost(one), goal.seconds(one)))
        within = "" if deadline is None else f" within {_seconds(deadline)}"
        return InvalidArgument(
            f"max_cost: expected at least {_money(_rounded_up(goal.cost(cheapest)))}, the cheapest plan{within},"
            f" got {_money(goal.max_cost)}",
            hint=f"That plan takes {_seconds(goal.seconds(cheapest))}. Allow more money, or more time.",
        )


class _Neighbours:
    """Plans that differ little from one."""

    def __init__(self, simulator: Simulator, plan: Plan) -> None:
        self._plan = plan
        self._moves = [self._near(options(simulator, stage, k), stage) for stage, (k, _) in enumerate(plan)]

    def plans(self) -> Iterator[Plan]:
        """Yield them: one stage changed, or two neighbouring ones."""
        for stage, near in enumerate(self._moves):
            for n_slots in near:
                changed = self._changed(self._plan, stage, n_slots)
                yield changed
                # Two stages of one size need no new instances between them, so to change only one of them may not pay.
                if stage + 1 < len(self._plan):
                    for other in self._moves[stage + 1]:
                        yield self._changed(changed, stage + 1, other)

    def _near(self, numbers: Sequence[int], stage: int) -> list[int]:
        """Return the options next to a stage's present one, and the options of its neighbouring stages."""
        now = self._plan[stage]
        smaller, larger = [n for n in numbers if n < now.n_slots], [n for n in numbers if n > now.n_slots]
        beside = [
            allocation.n_slots
            for allocation in self._plan[max(0, stage - 1) : stage + 2]
            if allocation.type_number == now.type_number and allocation.n_slots != now.n_slots
        ]
        return list(dict.fromkeys([*smaller[-2:], *larger[:2], *beside]))

    @staticmethod
    def _changed(plan: Plan, stage: int, n_slots: int) -> Plan:
        return (*plan[:stage], Allocation(plan[stage].type_number, n_slots), *plan[stage + 1 :])


def _thinned(plans: Sequence[Plan]) -> list[Plan]:
    return _spread(plans, MAX_SIMULATED)


def _spread(items: Sequence[_Item], most: int) -> list[_Item]:
    """Return at most a number of items, including the first and the last."""
    if len(items) <= most:
        return list(items)
    places = np.linspace(0, len(items) - 1, most).round().astype(int)
    return [items[k] for k in places]


def _rounded_up(value: float) -> float:
    """Return the value rounded up to three digits, so that a request for exactly that value succeeds."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0 else 1.0
    return math.ceil(value / unit - 1e-9) * unit


def _money(cost: float | None) -> str:
    return f"{cost or 0:.2f}" if not cost or cost >= 0.1 else f"{cost:.3g}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.3g} s"
