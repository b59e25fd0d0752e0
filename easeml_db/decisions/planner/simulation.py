"""Time and cost of a plan, by Monte Carlo (RubberBand, section 4.2).

The paper's graph has a node for the provider's queue, one for each new instance, one for each trial and a barrier,
stage after stage. Its longest path is the sum over stages of queue + slowest new instance + stage time, which is
computed here for all samples at once (tests build the graph). Instances that a later stage does not need are released
at the barrier, the oldest first: these have outlived a minimum. What an instance is billed more by the end of a stage
than by its start counts to that stage; so a minimum counts once, and never again in the plan for a rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from easeml_db.decisions.planner.draws import DEFAULT_SAMPLES, Draws
from easeml_db.decisions.planner.job import Job, Vector
from easeml_db.decisions.planner.prices import PriceList
from easeml_db.decisions.planner.stage_times import StageTimes
from easeml_db.errors import InvalidArgument


class Allocation(NamedTuple):
    """The slots of a stage: their number, and the place of their instance type in the price list."""

    type_number: int
    n_slots: int


class Held(NamedTuple):
    """The slots that are there before the first stage. `billed_ages`: for how many seconds their instances have been
    billed, as far as they are; that is paid. The other instances are billed from now on.
    """

    type_number: int
    n_slots: int
    billed_ages: tuple[float, ...] = ()


Plan = tuple[Allocation, ...]
NOTHING = Held(0, 0)


@dataclass(frozen=True)
class Prediction:
    """The expected time and cost of a plan: all arrays have shape (samples,), with one for each stage where stages are
    listed. `done`: the mean share of the work that is done before the job is cut short.
    """

    seconds: Vector
    cost: Vector
    stage_seconds: tuple[Vector, ...]
    stage_cost: tuple[Vector, ...]
    done: float = 1.0

    @cached_property
    def mean_seconds(self) -> float:
        """Expected time."""
        return float(self.seconds.mean())

    @cached_property
    def mean_cost(self) -> float:
        """Expected cost."""
        return float(self.cost.mean())


class _Group(NamedTuple):
    """Instances that became ready at the same time; `billed_seconds` of each are counted so far."""

    ready: Vector
    n_instances: int
    billed_seconds: Vector


class _State(NamedTuple):
    """The state at a barrier: the time, the instances held, oldest first, and the time of each stage so far.

    `bracket`: when the trials of the bracket under way are as far; `latest`: the same of all brackets beside which
    others began; `cut`: when the job is cut short; `work` and `done`: slot seconds of all stages, and of those before
    the cut."""

    now: Vector
    bracket: Vector
    latest: Vector
    type_number: int
    groups: tuple[_Group, ...]
    seconds: tuple[Vector, ...]
    costs: tuple[Vector, ...]
    cut: Vector | None = None
    work: Vector | float = 0.0
    done: Vector | float = 0.0


class Simulator:
    """Predicts plans for a job at a price list. Raises InvalidArgument if nothing is known of an architecture."""

    def __init__(self, job: Job, prices: PriceList, *, n_samples: int = DEFAULT_SAMPLES, seed: int = 0) -> None:
        self.job, self.prices = job, prices
        self.types = tuple(k for k, instance in enumerate(prices.types) if job.fits(instance.device_kind))
        if not self.types:
            job.profile(_first_unknown(job, prices), prices.types[0].device_kind)
        self.draws = Draws(job, n_samples, seed)
        self.times = StageTimes(job, self.draws)
        self._states: dict[tuple[Held, Plan], _State] = {}  # plans share their beginnings
        self._predicted: dict[tuple[Plan, Held], Prediction] = {}
        self._starts: dict[tuple[int, int, int], tuple[Vector, Vector]] = {}
        self._mean_starts: dict[tuple[int, int, int], tuple[float, float]] = {}

    @property
    def n_stages(self) -> int:
        """Stages of the job."""
        return len(self.job.stages)

    def predict(self, plan: Plan, held: Held = NOTHING) -> Prediction:
        """Return time and further cost of a plan, from where the slots `held` are there already and paid so far."""
        if len(plan) != self.n_stages:
            raise InvalidArgument(f"a plan: expected {self.n_stages} stages, got {len(plan)}")
        key = plan, held
        if key not in self._predicted:
            end = self._after(plan, held)
            done = 1.0 if end.cut is None else float(np.mean(end.done / np.maximum(end.work, 1e-12)))
            self._predicted[key] = Prediction(end.now, np.sum(end.costs, axis=0), end.seconds, end.costs, done)
        return self._predicted[key]

    def start_seconds(self, stage: int, type_number: int, n_new: int) -> tuple[Vector, Vector]:
        """Return seconds in the provider's queue, and until `n_new` instances are ready for trials after that."""
        key = stage, type_number, n_new
        if key not in self._starts:
            instance = self.prices.types[type_number]
            queue = self.draws.queue_seconds(stage, instance.queue)
            start = self.draws.slowest_start(stage, instance.initialisation, n_new)
            self._starts[key] = queue, start + self.times.session_seconds(stage, instance)
        return self._starts[key]

    def mean_start_seconds(self, stage: int, type_number: int, n_new: int) -> tuple[float, float]:
        """Return the means of `start_seconds`; zeros where nothing starts."""
        key = stage, type_number, n_new
        if key not in self._mean_starts:
            queue, start = self.start_seconds(*key) if n_new else (np.zeros(1), np.zeros(1))
            self._mean_starts[key] = float(queue.mean()), float(start.mean())
        return self._mean_starts[key]

    def _after(self, plan: Plan, held: Held) -> _State:
        """Return the state after the first stages."""
        if not plan:
            return self._begin(held)
        key = held, plan
        if key not in self._states:
            self._states[key] = self._next(self._after(plan[:-1], held), len(plan) - 1, plan[-1])
        return self._states[key]

    def _begin(self, held: Held) -> _State:
        zeros = np.zeros(self.draws.n_samples)
        instance = self.prices.types[held.type_number]
        ages = Counter(held.billed_ages)
        # Ready `age` seconds before the start, and billed for those already.
        groups = [_Group(zeros - age, ages[age], instance.billed(zeros + age)) for age in sorted(ages, reverse=True)]
        n_unbilled = instance.n_instances(held.n_slots) - ages.total()
        if n_unbilled:
            groups.append(_Group(zeros, n_unbilled, zeros))
        return _State(zeros, zeros, zeros, held.type_number, tuple(groups), (), ())

    def _next(self, before: _State, stage: int, allocation: Allocation) -> _State:
        """Resize, then train a stage up to its barrier."""
        type_number, n_slots = allocation
        instance = self.prices.types[type_number]
        is_other = type_number != before.type_number
        n_wanted = 0 if is_other else instance.n_instances(n_slots)
        groups = _without_oldest(before.groups, _n_held(before.groups) - n_wanted)
        now, cost = before.now, np.zeros(self.draws.n_samples)
        if not stage:
            now = now + self.job.margin_seconds
        n_new = instance.n_instances(n_slots) - _n_held(groups)
        if n_new > 0:
            queue, start = self.start_seconds(stage, type_number, n_new)
            # Billed from here on: the provider's queue is free, the initialisation after it is not.
            groups = (*groups, _Group(now + queue, n_new, np.zeros(self.draws.n_samples)))
            cost += n_new * instance.price_per_gb * self.job.data_gb
            now = now + queue + start
        time, ready = self.times.of(stage, instance, n_slots), now
        # A continued stage trains states of its bracket, which may not be there yet when the slots are.
        begun = np.maximum(now, before.bracket) if self.job.stages[stage].is_continued else now
        bracket, latest, now = begun + time.longest_seconds, before.latest, now + time.seconds
        if self.job.stages[stage].is_overlapped:
            latest = np.maximum(latest, bracket)
        if stage + 1 == self.n_stages:
            # Trials of an overlapped bracket may outlast the last stage.
            now = np.maximum(now, latest)
        cut = before.cut
        if not stage and self.job.cut is not None:
            cut = self.job.cut.moment(ready)
        busy, share = time.busy_seconds, np.ones(self.draws.n_samples)
        if cut is not None:
            end = np.minimum(now, np.maximum(cut, before.now))
            share = np.clip((end - ready) / np.maximum(now - ready, 1e-12), 0.0, 1.0)
            now, bracket, latest = end, np.minimum(bracket, end), np.minimum(latest, end)
        if instance.is_per_function:
            cost += share * busy * instance.price_per_slot_second
        else:
            billed = [instance.billed(np.maximum(now - group.ready, 0.0)) for group in groups]
            for group, until_now in zip(groups, billed, strict=True):
                cost += group.n_instances * instance.price_per_second * (until_now - group.billed_seconds)
            groups = tuple(group._replace(billed_seconds=b) for group, b in zip(groups, billed, strict=True))
        seconds = (*before.seconds, now - before.now)
        work, done = before.work + busy, before.done + share * busy
        return _State(now, bracket, latest, type_number, groups, seconds, (*before.costs, cost), cut, work, done)


def _n_held(groups: Sequence[_Group]) -> int:
    return sum(group.n_instances for group in groups)


def _without_oldest(groups: tuple[_Group, ...], n_instances: int) -> tuple[_Group, ...]:
    while n_instances > 0:
        oldest, groups = groups[0], groups[1:]
        if oldest.n_instances > n_instances:
            groups = (oldest._replace(n_instances=oldest.n_instances - n_instances), *groups)
        n_instances -= oldest.n_instances
    return groups


def _first_unknown(job: Job, prices: PriceList) -> str:
    kind = prices.types[0].device_kind
    return next(name for name in job.architectures if (name, kind) not in job.profiles)
