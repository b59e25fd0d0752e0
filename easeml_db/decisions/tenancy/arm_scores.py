"""Scores of all runs' arms: which arm each run would open, and the score by which policies compare runs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import numpy as np

from easeml_db.decisions.bandits.prior import Matrix, Vector
from easeml_db.decisions.tenancy.arm_rules import EXPERT_RULES, ArmRule
from easeml_db.decisions.tenancy.run_bandit import RunBandit
from easeml_db.decisions.tenancy.standings import Standings
from easeml_db.decisions.tenancy.trust import EVERYBODY, Places, Trust


class ArmScores(Protocol):
    """Scores by place of the run in the standings, whose column `score` it fills."""

    def join(self, tenant: Hashable) -> None:
        """Add a run of a tenant at the end."""

    def leave(self, place: int, standings: Standings) -> None:
        """Forget a run, which has left the standings; those behind it have moved up."""

    def renew(self, place: int, bandit: RunBandit, standings: Standings) -> None:
        """Score a run again, after its bandit has changed."""

    def arm(self, place: int, bandit: RunBandit) -> int:
        """Return the arm that a run would open, the lowest of equals."""

    def of_arms(self, place: int, bandit: RunBandit) -> Vector:
        """Return the scores of a run's arms, (K,), minus infinity where not offered."""

    def history_weight(self, place: int) -> float | None:
        """Return the weight of the expert that trusts a run's history; None where there is one expert."""


class OneBelief:
    """Scores by a rule that knows one belief."""

    def __init__(self, rule: ArmRule) -> None:
        self._rule = rule
        self._next_arm: list[int] = []

    def join(self, tenant: Hashable) -> None:
        """Add a run at the end."""
        self._next_arm.append(0)

    def leave(self, place: int, standings: Standings) -> None:
        """Forget a run."""
        del self._next_arm[place]

    def renew(self, place: int, bandit: RunBandit, standings: Standings) -> None:
        """Score a run again."""
        scores = self._rule(bandit)
        # argmax takes the first of equals: at a tie the lowest arm.
        self._next_arm[place] = arm = int(np.argmax(scores))
        standings.score[place] = scores[arm]

    def arm(self, place: int, bandit: RunBandit) -> int:
        """Return the arm found when the run was scored."""
        return self._next_arm[place]

    def of_arms(self, place: int, bandit: RunBandit) -> Vector:
        """Apply the rule."""
        return self._rule(bandit)

    def history_weight(self, place: int) -> None:
        """Return nothing."""


class SeveralExperts:
    """Scores by a rule that asks each expert; weights make one score of them.

    A run's score is the weighted sum of each expert's best arm. That is at most a little above the best weighted sum of
    one arm, and a result of another run, which moves all weights, changes all runs' scores by a few operations on
    columns. The arm itself is the best by the weighted sum; only the run that is served needs it.
    """

    def __init__(self, rule: ArmRule) -> None:
        self._rule, self._trust = rule, Trust()
        self._rates: list[Matrix] = []  # (E, K) of each run
        self._weights: Matrix = self._trust.weights()  # (E, n)
        self._best: Matrix = self._weights.copy()  # (E, n), over a run's offered arms

    def join(self, tenant: Hashable) -> None:
        """Add a run at the end."""
        self._trust.join(tenant)
        self._rates.append(np.empty((0, 0)))
        self._best = np.column_stack([self._best, np.zeros(len(self._best))])
        self._weights = np.column_stack([self._weights, self._trust.weights(slice(len(self._rates) - 1, None))])

    def leave(self, place: int, standings: Standings) -> None:
        """Forget a run and its vote, which changes the scores of all others."""
        self._trust.leave(place)
        del self._rates[place]
        self._best, self._weights = (np.delete(columns, place, axis=1) for columns in (self._best, self._weights))
        self._weigh(standings, EVERYBODY)

    def renew(self, place: int, bandit: RunBandit, standings: Standings) -> None:
        """Score a run again, and all others if its results have changed their weights."""
        self._rates[place] = rates = self._rule(bandit)
        self._best[: len(rates), place] = np.where(bandit.offered, rates, 0.0).max(axis=1)
        moved = self._trust.put(place, bandit.log_evidence, bandit.experts[0].n_observed)
        if moved is None:
            standings.score[place] = (self._weights[:, place] * self._best[:, place]).sum(axis=0)
        else:
            self._weigh(standings, moved)

    def _weigh(self, standings: Standings, places: Places) -> None:
        self._weights[:, places] = self._trust.weights(places)
        # The same additions in the same order as for a single run: after a restart scores are equal to the last bit.
        standings.score[places] = (self._weights[:, places] * self._best[:, places]).sum(axis=0)

    def arm(self, place: int, bandit: RunBandit) -> int:
        """Return the best arm by the present weights."""
        return int(np.argmax(self.of_arms(place, bandit)))

    def of_arms(self, place: int, bandit: RunBandit) -> Vector:
        """Return the weighted sums of the experts' scores."""
        rates = self._rates[place]
        return np.where(bandit.offered, self._weights[: len(rates), place] @ rates, -np.inf)

    def history_weight(self, place: int) -> float | None:
        """Return the weight of the first expert, if there are others."""
        return float(self._weights[0, place]) if len(self._rates[place]) > 1 else None


def make_arm_scores(rule: ArmRule) -> ArmScores:
    """Make the scores by a rule."""
    return SeveralExperts(rule) if rule in EXPERT_RULES else OneBelief(rule)
