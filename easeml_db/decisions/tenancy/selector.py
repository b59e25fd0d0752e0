"""The decision: a run, then one of its arms; and a record of its reasons.

Rules before any policy, in this order:

    first service   each run once before any twice, in order of arrival
    last call       a run whose deadline leaves less than twice the time of its next arm; the earliest deadline first

An arm that would end after its run's deadline is not opened; no arm takes longer than its run may. A decision reads
columns only. Its cost grows with the arms of the one run that is served, and with the number of runs only as a few
numpy operations do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Generic, TypeVar

import numpy as np

from easeml_db.decisions.tenancy.arm_rules import ArmRule
from easeml_db.decisions.tenancy.arm_scores import make_arm_scores
from easeml_db.decisions.tenancy.contract import Choice, Policy
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.standings import Standings
from easeml_db.errors import InvalidArgument

Key = TypeVar("Key", bound=Hashable)
LAST_CALL = 2.0  # times the seconds of the next arm


@dataclass(frozen=True)
class PolicyDecision(Generic[Key]):
    """Serve this run with this arm. `bound`, `mean`, `deviation`, `cost`, `beta`: of the arm, before it is opened;
    `best` and `sig` of the run; `candidates`: the runs among which the rule `phase` chose."""

    run: Key
    arm: int
    phase: str
    bound: float
    mean: float
    deviation: float
    cost: float
    beta: float
    best: float
    sig: float
    gap: float
    score: float
    pending: tuple[int, ...]
    history_weight: float | None = None  # of the expert that trusts the history, where there are several
    candidates: frozenset[Key] = field(default=frozenset(), compare=False)
    policy: Policy | None = field(default=None, compare=False, repr=False)  # as it is once this is carried out


class Selector(Generic[Key]):
    """All runs' bandits, and the columns by which a policy compares them. Keys say which run is which."""

    def __init__(self, policy: Policy, arm_rule: ArmRule) -> None:
        self.policy, self._scores = policy, make_arm_scores(arm_rule)
        self.standings = Standings()
        self.bandits: dict[Key, RunBandit] = {}
        self._keys: list[Key] = []
        self._places: dict[Key, int] = {}
        self._deadlines: dict[Key, float] = {}  # seconds on the caller's clock
        self._most_seconds: dict[Key, float] = {}  # that a run with a time limit takes

    # Runs

    def join(
        self,
        key: Key,
        bandit: RunBandit,
        *,
        tenant: Hashable = None,
        weight: float = 1.0,
        deadline_seconds: float = math.inf,
        most_seconds: float = math.inf,
    ) -> None:
        """Add a run behind the others, of a tenant (None: one of its own). `most_seconds`: for how long it trains at
        most.
        """
        if key in self._places:
            raise InvalidArgument(f"run {key!r} has joined already")
        _check_weight(weight)
        self._places[key] = len(self._keys)
        self._keys.append(key)
        self._scores.join(("run", key) if tenant is None else tenant)
        self.bandits[key], self._most_seconds[key] = bandit, most_seconds
        self.standings.grow()
        self.set_terms(key, weight=weight, deadline_seconds=deadline_seconds)
        self.refresh(key)
        self.policy.renew()

    def leave(self, key: Key) -> None:
        """Forget a run; those behind it move up."""
        place = self._places[key]
        del self.bandits[key], self._keys[place]
        self._places = {other: k for k, other in enumerate(self._keys)}
        self._deadlines.pop(key, None)
        self._most_seconds.pop(key, None)
        self.standings.drop(place)
        self._scores.leave(place, self.standings)
        self.policy.renew(place)

    def replace(self, key: Key, bandit: RunBandit) -> None:
        """Replace a run's bandit; its place, weight and deadline stay."""
        self.bandits[key] = bandit
        self.refresh(key)
        self.policy.renew()

    def set_terms(self, key: Key, *, weight: float, deadline_seconds: float = math.inf) -> None:
        """Change a run's weight and deadline. Raises InvalidArgument."""
        _check_weight(weight)
        self.standings.weight[self._places[key]] = weight
        if self._deadlines.pop(key, None) is not None:
            self.refresh(key)  # its next arm may have been one that the old deadline allowed
        if deadline_seconds < math.inf:
            self._deadlines[key] = deadline_seconds

    def share_terms(self, keys: Collection[Key], *, weight: float, deadline_seconds: float = math.inf) -> None:
        """Change weight and deadline of several runs, in one step where none has a deadline. Raises InvalidArgument."""
        if deadline_seconds == math.inf and self._deadlines.keys().isdisjoint(keys):
            _check_weight(weight)
            self.standings.weight[[self._places[key] for key in keys]] = weight
            return
        for key in keys:
            self.set_terms(key, weight=weight, deadline_seconds=deadline_seconds)

    def key(self, place: int) -> Key:
        """Return the run at a place of the standings."""
        return self._keys[place]

    def deadlines(self) -> Mapping[Key, float]:
        """Return the deadlines of the runs that have one, in seconds on the caller's clock."""
        return self._deadlines

    def refresh(self, key: Key) -> None:
        """Copy a bandit's numbers into the columns, after it has changed."""
        place, bandit, columns = self._places[key], self.bandits[key], self.standings
        columns.can_open[place] = bandit.can_open
        columns.n_opened[place] = bandit.t - 1
        columns.sig[place], columns.best[place] = bandit.sig, bandit.best
        columns.gap[place] = bandit.gap if bandit.can_open else -np.inf
        self._scores.renew(place, bandit, columns)

    def history_weight(self, key: Key) -> float | None:
        """Return the weight of the expert that trusts a run's history; None if the run has one belief."""
        return self._scores.history_weight(self._places[key])

    # Restarts

    def memory(self, policy: Policy | None = None) -> dict[str, Any]:
        """Return what the policy in use, or a given one, must not forget, as JSON values."""
        memory = dict((policy or self.policy).memory())
        return {"runs": list(self._keys), "policy": memory} if memory else {}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore the memory of another process, once the runs have joined in the same order of arrival. Runs that left
        or arrived since then leave or arrive for the policy now.
        """
        if not memory:
            return
        self.policy.remember(memory["policy"])
        before = memory["runs"]
        for place in reversed(range(len(before))):
            if before[place] not in self._places:
                self.policy.renew(place)
        if not set(before) >= set(self._keys):
            self.policy.renew()

    # Decisions

    def choose(
        self, now_seconds: float = 0.0, *, blocked: Collection[Key] = (), seconds_per_cost: float = 0.0
    ) -> PolicyDecision[Key] | None:
        """Return the next decision, or None when no run can be served. Nothing changes before `begin`. Blocked runs are
        skipped. `seconds_per_cost` says how long a unit of cost takes, as deadlines ask.
        """
        view = self._view(blocked, now_seconds, seconds_per_cost)
        if not view.columns.can_open.any():
            return None
        # Choosing changes a policy (hybrid's counter, random draws), but only a decision that is carried out may count.
        policy = self.policy.copy()
        choice = self._first_service(view) or self._last_call(view) or policy.choose(view.columns)
        return self._decision(view, choice, policy)

    def begin(self, decision: PolicyDecision[Key]) -> None:
        """Carry out the last decision: its arm counts as under way from now on."""
        self.policy = decision.policy or self.policy
        self.bandits[decision.run].begin(decision.arm)
        self.refresh(decision.run)

    def finish(self, key: Key, arm: int, quality: float) -> None:
        """Record the quality of an arm."""
        self.bandits[key].finish(arm, quality)
        self.refresh(key)

    def _view(self, blocked: Collection[Key], now_seconds: float, seconds_per_cost: float) -> _View:
        """Return the view of a decision now: which runs can be served, with which next arm."""
        columns = replace(self.standings, can_open=self.standings.can_open.copy(), score=self.standings.score.copy())
        columns.can_open[[self._places[key] for key in blocked if key in self._places]] = False
        next_arm = {}
        for key in self._deadlines:
            place, reach = self._places[key], self._reach(key, now_seconds, seconds_per_cost)
            columns.can_open[place] &= reach is not None
            if reach is not None:
                next_arm[place], columns.score[place] = reach
        return _View(columns, next_arm, now_seconds, seconds_per_cost)

    def _reach(self, key: Key, now_seconds: float, seconds_per_cost: float) -> tuple[int, float] | None:
        """Return the best arm of a run that would end before its deadline, and its score."""
        bandit = self.bandits[key]
        ends = now_seconds + np.minimum(bandit.costs * seconds_per_cost, self._most_seconds[key])
        scores = np.where(
            ends <= self._deadlines.get(key, math.inf), self._scores.of_arms(self._places[key], bandit), -np.inf
        )
        arm = int(np.argmax(scores))
        return (arm, float(scores[arm])) if scores[arm] > -np.inf else None

    def _arm(self, view: _View, place: int) -> int:
        arm = view.next_arm.get(place)
        return self._scores.arm(place, self.bandits[self._keys[place]]) if arm is None else arm

    def _first_service(self, view: _View) -> Choice | None:
        # The paper says so of GREEDY and not how others start; under any policy a run without a model loses most.
        fresh = view.columns.can_open & (view.columns.n_opened == 0)
        return Choice(view.columns.first(fresh), "first_service", fresh) if fresh.any() else None

    def _last_call(self, view: _View) -> Choice | None:
        mask = np.zeros(len(self._keys), dtype=bool)
        for key, deadline in self._deadlines.items():
            place = self._places[key]
            seconds = float(self.bandits[key].costs[self._arm(view, place)]) * view.seconds_per_cost
            mask[place] = deadline - view.now_seconds < LAST_CALL * min(seconds, self._most_seconds[key])
        mask &= view.columns.can_open
        if not mask.any():
            return None
        earliest = min(np.flatnonzero(mask).tolist(), key=lambda place: self._deadlines[self._keys[place]])
        return Choice(earliest, "last_call", mask)

    def _decision(self, view: _View, choice: Choice, policy: Policy) -> PolicyDecision[Key]:
        key, arm = self._keys[choice.place], self._arm(view, choice.place)
        bandit = self.bandits[key]
        policy.charge(choice.phase, float(bandit.costs[arm]))
        return PolicyDecision(
            key, arm, choice.phase, float(bandit.bounds[arm]), float(bandit.posterior.mean[arm]),
            math.sqrt(bandit.variance[arm]), float(bandit.costs[arm]),
            bandit.beta, bandit.best, bandit.sig, bandit.gap,
            float(view.columns.score[choice.place]), tuple(bandit.pending), self.history_weight(key),
            frozenset(compress(self._keys, choice.candidates.tolist())), policy,
        )  # fmt: skip


@dataclass(frozen=True)
class _View:
    """Standings as one decision sees them, and the arms within reach of those that have a deadline, by place."""

    columns: Standings
    next_arm: dict[int, int]
    now_seconds: float
    seconds_per_cost: float


def _check_weight(weight: float) -> None:
    if not (weight > 0 and math.isfinite(weight)):
        raise InvalidArgument(f"weight: expected a positive number, got {weight}")
