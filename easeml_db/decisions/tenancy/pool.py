"""Open runs in one pool: which run is served next, and with which of its arms.

A run is a bandit; runs of one tenant share its weight. The pool is a cache of the tables: it is rebuilt from runs whose
arms carry their openings and closings, and continues as if it had never stopped. It keeps only the arms of a run, each
as the run's bandit knows it; all other knowledge of a run is the dispatcher's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from easeml_db.decisions.bandits.prior import Prior
from easeml_db.decisions.bandits.priors import make_prior
from easeml_db.decisions.tenancy.arm_costs import ArmCosts
from easeml_db.decisions.tenancy.arm_rules import ARM_RULES
from easeml_db.decisions.tenancy.history import History
from easeml_db.decisions.tenancy.opening import Belief, Opening, Standing, finite
from easeml_db.decisions.tenancy.policies import description, make_policy
from easeml_db.decisions.tenancy.recorded_standings import ToldRuns
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.selector import PolicyDecision, Selector
from easeml_db.words.run import Arm, Run
from easeml_db.words.tenant import PastArm, Tenancy


class Pool:
    """Bandits of all open runs, under one policy."""

    def __init__(self, tenancy: Tenancy | None = None, history: History | None = None) -> None:
        self.history = history or History()
        self._arms: dict[int, tuple[Arm, ...]] = {}  # by run, as its bandit knows them
        self._most_seconds: dict[int, float] = {}  # that an arm of each run takes
        self._runs_of: dict[str, set[int]] = {}  # by tenant
        self._costs = ArmCosts(self.history)
        self._tenancy = tenancy or Tenancy()
        self._told = ToldRuns()
        self._selector = self._new_selector()

    # Policy and terms

    def set_tenancy(self, tenancy: Tenancy) -> None:
        """Set the policy and the tenants' settings; a new policy starts afresh from the runs' bandits."""
        before, self._tenancy = self._tenancy, tenancy
        if (before.policy, before.seed) != (tenancy.policy, tenancy.seed):
            bandits, self._selector = self._selector.bandits, self._new_selector()
            tenants = {run_id: name for name, run_ids in self._runs_of.items() for run_id in run_ids}
            for run_id in sorted(self._arms):
                bandit = self._bandit_of(run_id, self._arms[run_id], bandits[run_id].prior)
                self._selector.join(run_id, bandit, tenant=tenants[run_id], most_seconds=self._most_seconds[run_id])
        for name in self._runs_of:
            self._renew_terms(name)

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore the memory that the policy of an earlier process recorded with its last decision, after all runs were
        added.
        """
        if memory:
            self._selector.remember(memory["policy"])
            self._costs.unit_seconds = float(memory["unit_seconds"])
            self._renew_all_costs()

    def _new_selector(self) -> Selector[int]:
        policy = make_policy(self._tenancy.policy, seed=self._tenancy.seed)
        return Selector(policy, ARM_RULES[description(self._tenancy.policy).arm_rule])

    def _renew_terms(self, name: str) -> None:
        tenant, run_ids = self._tenancy.tenant(name), self._runs_of.get(name, set())
        deadline = math.inf if tenant.deadline_seconds is None else tenant.deadline_seconds
        if run_ids:
            self._selector.share_terms(run_ids, weight=tenant.weight / len(run_ids), deadline_seconds=deadline)

    # Runs

    def __contains__(self, run_id: int) -> bool:
        return run_id in self._arms

    def prior_of(self, run: Run) -> Prior:
        """Return the prior belief about a run's arms, before any of them is opened."""
        names = [arm.name for arm in run.arms]
        return make_prior(self._tenancy.prior, self.history.qualities(run.task, names, without=run.run_id))

    def put_run(self, run: Run, prior: Prior, *, is_race: bool = False) -> None:
        """Add a run, or renew it from the tables; `prior` is the one that it began with. In a race each arm has its
        share of the time, however short that is, so that a deadline keeps none from opening.
        """
        before = self._arms.get(run.run_id)
        if before == run.arms:
            return
        self._costs.put(run.run_id, run.arms)
        # It refuses arms and priors that do not belong together: then nothing has joined.
        bandit = self._bandit_of(run.run_id, run.arms, prior)
        self._arms[run.run_id] = run.arms
        if before is None:
            most_seconds = math.inf if run.max_seconds is None else run.max_seconds
            self._most_seconds[run.run_id] = 0.0 if is_race else most_seconds
            self._selector.join(run.run_id, bandit, tenant=run.tenant, most_seconds=self._most_seconds[run.run_id])
        else:
            self._selector.replace(run.run_id, bandit)
        self._runs_of.setdefault(run.tenant, set()).add(run.run_id)
        self._renew_terms(run.tenant)
        self._renew_unit()

    def _bandit_of(self, run_id: int, arms: Sequence[Arm], prior: Prior) -> RunBandit:
        """Return a bandit with a run's past, whose belief is of the kind that the policy asks."""
        is_robust = description(self._tenancy.policy).is_robust
        bandit = RunBandit(prior, self._costs.in_units(run_id), is_robust=is_robust)
        for event in _past(arms):
            event(bandit)
        return bandit

    def drop_run(self, run_id: int) -> None:
        """Remove a run."""
        self._costs.drop(run_id)
        self._told.drop(run_id)
        self._most_seconds.pop(run_id, None)
        if self._arms.pop(run_id, None) is not None:
            self._selector.leave(run_id)
            tenant = next(name for name, run_ids in self._runs_of.items() if run_id in run_ids)
            self._runs_of[tenant].discard(run_id)
            self._renew_terms(tenant)

    def set_seconds(self, run_id: int, seconds: Mapping[int, float]) -> None:
        """Set the times measured by pilots and units, in seconds on one slot, by arm."""
        if run_id in self._arms and self._costs.set_timed(run_id, self._arms[run_id], seconds):
            self._renew_costs(run_id)
            self._renew_unit()

    def arm_closed(self, run: Run, arm: Arm) -> None:
        """Record the result of an arm of a run."""
        run_id = run.run_id
        if run_id not in self._arms or arm.quality is None or arm.cost_seconds is None:
            return
        place = self._put_arm(run_id, arm)
        if arm.is_complete:
            self.history.add(PastArm(run_id, run.task, arm.name, arm.quality, arm.cost_seconds, arm.work))
        self._selector.finish(run_id, place, arm.quality)
        self._costs.put(run_id, self._arms[run_id])
        self._renew_costs(run_id)
        self._renew_unit()

    # Decisions

    def choose(self, now_seconds: float, *, n_slots: int, blocked: Collection[int] = ()) -> Opening | None:
        """Return the arm to open now, or None. Blocked runs are skipped: their tenant has all slots that it may have,
        or their arms are not timed yet. Expected seconds, for deadlines, are those of an arm on all slots.
        """
        selector = self._selector
        n_runs = int(selector.standings.can_open.sum())
        seconds_per_cost = self._costs.unit_seconds / max(n_slots, 1)
        decision = selector.choose(now_seconds, blocked=blocked, seconds_per_cost=seconds_per_cost)
        if decision is None:
            return None
        arms, bandit = self._arms[decision.run], selector.bandits[decision.run]
        memory = {"policy": selector.memory(decision.policy), "unit_seconds": self._costs.unit_seconds}
        return Opening(
            decision.run, arms[decision.arm].arm_id, self._tenancy.policy, decision,
            decision.cost * self._costs.unit_seconds, bandit.t,
            tuple(arms[arm].arm_id for arm in decision.pending), n_runs,
            tuple(_with(standing, decision) for standing in self._standings(decision.run)), memory,
        )  # fmt: skip

    def opened(self, opening: Opening, number: int) -> None:
        """Carry out a decision that is recorded under this number."""
        self._selector.begin(opening.decision)
        self._told.told(standing.run_id for standing in opening.standings)
        arm = self._arms[opening.run_id][opening.decision.arm]
        self._put_arm(opening.run_id, replace(arm, opening=number, bound=opening.decision.bound))

    def _put_arm(self, run_id: int, arm: Arm) -> int:
        """Renew an arm of a run; return its place."""
        arms = self._arms[run_id]
        place = next(k for k, other in enumerate(arms) if other.arm_id == arm.arm_id)
        self._arms[run_id] = (*arms[:place], arm, *arms[place + 1 :])
        return place

    def served_runs(self) -> list[int]:
        """Return the runs of which an arm has been opened."""
        return [run_id for run_id in self._arms if self._selector.bandits[run_id].t > 1]

    def overdue_runs(self, now_seconds: float) -> list[int]:
        """Return the runs whose tenant's deadline has passed."""
        return [key for key, deadline in self._selector.deadlines().items() if now_seconds >= deadline]

    def untimed_arms(self, run_id: int) -> list[int]:
        """Return the arms of unknown cost, in a run that has others to compare them with."""
        arms = self._arms[run_id]
        untimed = [arm.arm_id for arm in arms if not arm.is_open and not self.history.knows_cost(arm.name)]
        return untimed if len(arms) > 1 else []

    @property
    def policy(self) -> str:
        """Return the name of the policy."""
        return self._tenancy.policy

    def beliefs(self, run_id: int) -> list[Belief]:
        """Return the beliefs about a run's arms, in their order."""
        bandit = self._selector.bandits[run_id]
        return [
            Belief(
                arm.arm_id, float(bandit.posterior.mean[k]), math.sqrt(bandit.variance[k]),
                float(bandit.bounds[k]) if bandit.offered[k] else None, float(bandit.costs[k]),
                float(bandit.costs[k]) * self._costs.unit_seconds,
            )
            for k, arm in enumerate(self._arms[run_id])
        ]  # fmt: skip

    def _standings(self, chosen: int) -> list[Standing]:
        """Return the standings of runs with an arm left, which a choice has not changed; of very many, of some."""
        columns = self._selector.standings
        places = {self._selector.key(place): place for place in np.flatnonzero(columns.can_open).tolist()}
        recorded = self._told.choose({run_id: float(columns.gap[place]) for run_id, place in places.items()}, chosen)
        return [_standing(run_id, columns, place) for run_id, place in places.items() if run_id in recorded]

    # Costs

    def _renew_costs(self, run_id: int) -> None:
        self._selector.bandits[run_id].set_costs(self._costs.in_units(run_id))
        self._selector.refresh(run_id)

    def _renew_unit(self) -> None:
        if self._costs.renew_unit():
            self._renew_all_costs()

    def _renew_all_costs(self) -> None:
        for run_id in self._arms:
            self._renew_costs(run_id)


def _past(arms: Sequence[Arm]) -> Iterator[Callable[[RunBandit], None]]:
    """Return the openings and closings of a run's arms, in the order in which they happened."""
    moments: list[tuple[int, Callable[[RunBandit], None]]] = []
    for k, arm in enumerate(arms):
        if arm.opening is not None:
            bound = math.inf if arm.bound is None else arm.bound
            moments.append((arm.opening, lambda bandit, k=k, bound=bound: bandit.begun(k, bound)))  # type: ignore[misc]
        if arm.closing is not None and arm.quality is not None:
            quality = arm.quality
            moments.append((arm.closing, lambda bandit, k=k, quality=quality: bandit.finish(k, quality)))  # type: ignore[misc]
    return (event for _, event in sorted(moments, key=lambda moment: moment[0]))


def _standing(run_id: int, columns: Any, place: int) -> Standing:
    return Standing(
        run_id, False, False, finite(float(columns.sig[place])), float(columns.gap[place]),
        float(columns.score[place]), float(columns.best[place]),
    )  # fmt: skip


def _with(standing: Standing, decision: PolicyDecision[int]) -> Standing:
    return replace(
        standing,
        is_candidate=standing.run_id in decision.candidates,
        is_chosen=standing.run_id == decision.run,
    )
