"""How far each run's experts are trusted: what other open runs have shown, then the run's own results.

Runs that are open at the same time tell one another whether the history holds today. Each run with a result has a
responsibility for each expert; each tenant has one vote, the mean over its runs, however many it has:

    symbol   meaning
    b        weights of the experts where nobody has a result                  (robust.WEIGHTS)
    r_i      responsibility: b p_i(y_i), of sum 1; 0 before run i's first result
    v_u      vote of tenant u: mean of r_i over its runs that have a result
    a_i      b + min(1, M / n) sum of the n other tenants' votes + sum of r_j over the tenant's own other runs
    w_i      a_i p_i(y_i), of sum 1

A hostile tenant can choose its data and so its vote. Its vote counts 1 beside the 1 of b, and all others together at
most M, so that b keeps a share of 1 / (1 + M) in what a run begins with, and the run's own results can undo the rest.
The weights are a function of the open runs alone: a coordinator that starts again finds the same. With many tenants a
result moves the mean vote by almost nothing, and all runs' weights with it; so from 64 votes on the mean is rounded,
and most results change the weights of their own tenant's runs only.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from easeml_db.decisions.bandits.prior import Matrix, Vector
from easeml_db.decisions.bandits.robust import EXPERTS, WEIGHTS, weighted

MOST_VOTES = 20.0  # M
_FEW, _STEPS = 64, 256  # votes that are not rounded; steps of the mean of more
_BASE: Matrix = np.array(WEIGHTS)[:, None]
_NONE: Vector = np.zeros(len(EXPERTS))
# Responsibilities and votes are multiples of this. Their sums are exact, and the same in whatever order runs came.
_STEP = 2.0**-30


Places = slice | NDArray[np.intp]
EVERYBODY = slice(None)


class _Tenant:
    """Sum and vote of a tenant's runs with a result, and their number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sum, self.vote, self.n_voting = _NONE, _NONE, 0


class Trust:
    """Evidence of all runs, in order of arrival; a run with a single expert neither votes nor listens."""

    def __init__(self) -> None:
        self._tenants: dict[Hashable, _Tenant] = {}
        self._of_run: list[Hashable] = []
        self._numbers = np.empty(0, dtype=int)  # of tenants, a run each
        empty = np.empty((len(EXPERTS), 0))
        # A column for each run: p_i relative to its largest, r_i, vote of its tenant, sum of its tenant's other runs.
        self._likelihood, self._responsibility, self._vote, self._own = (empty.copy() for _ in range(4))
        self._total, self._n_votes, self._n_joined = _NONE, 0, 0

    def join(self, tenant: Hashable) -> None:
        """Add a run at the end, without a result."""
        if tenant not in self._tenants:
            self._n_joined += 1
            self._tenants[tenant] = _Tenant(self._n_joined)
        known = self._tenants[tenant]
        self._of_run.append(tenant)
        self._numbers = np.append(self._numbers, known.number)
        self._likelihood = np.column_stack([self._likelihood, _NONE + 1.0])
        self._responsibility = np.column_stack([self._responsibility, _NONE])
        self._vote = np.column_stack([self._vote, known.vote])
        self._own = np.column_stack([self._own, known.sum])

    def leave(self, place: int) -> None:
        """Forget a run and what it has shown; those behind it move up."""
        self._record(place, _NONE)
        tenant = self._of_run.pop(place)
        if tenant not in self._of_run:
            del self._tenants[tenant]
        self._numbers = np.delete(self._numbers, place)
        self._likelihood, self._responsibility, self._vote, self._own = (
            np.delete(columns, place, axis=1)
            for columns in (self._likelihood, self._responsibility, self._vote, self._own)
        )

    def put(self, place: int, log_evidence: Vector, n_observed: int) -> Places | None:
        """Record the evidence of a run's experts; return the runs whose weights have changed, if any has."""
        likelihood = _NONE.copy()
        likelihood[: len(log_evidence)] = np.exp(log_evidence - log_evidence.max())
        is_voting = n_observed > 0 and len(log_evidence) > 1
        responsibility = _rounded(weighted(_BASE[:, 0], log_evidence)) if is_voting else _NONE
        known = self._likelihood[:, place], self._responsibility[:, place]
        if np.array_equal(known, (likelihood, responsibility)):
            return None
        self._likelihood[:, place] = likelihood
        return self._record(place, responsibility)

    def weights(self, places: Places = EVERYBODY) -> Matrix:
        """Return w of some runs, shape (E, m)."""
        vote, n_others = self._vote[:, places], self._n_votes - self._vote[:, places].any(axis=0)
        others = np.maximum(self._shared()[:, None] - vote, 0.0)
        share = np.minimum(1.0, MOST_VOTES / np.maximum(n_others, 1.0))
        found = (_BASE + share * others + self._own[:, places]) * self._likelihood[:, places]
        weights: Matrix = found / found.sum(axis=0)
        return weights

    def _shared(self) -> Vector:
        """Return the sum of all votes, of many tenants rounded."""
        if self._n_votes <= _FEW:
            return self._total
        step = self._n_votes / _STEPS
        shared: Vector = np.rint(self._total / step) * step
        return shared

    def _record(self, place: int, responsibility: Vector) -> Places:
        """Replace what a run has shown, and with that the vote of its tenant; return the runs whose weights change."""
        tenant, before = self._tenants[self._of_run[place]], self._responsibility[:, place].copy()
        shared, n_votes, voted = self._shared(), self._n_votes, tenant.n_voting > 0
        tenant.n_voting += int(responsibility.any()) - int(before.any())
        tenant.sum = tenant.sum + responsibility - before
        vote = _rounded(tenant.sum / max(tenant.n_voting, 1))
        self._total, tenant.vote = self._total + vote - tenant.vote, vote
        self._n_votes += int(tenant.n_voting > 0) - int(voted)
        self._responsibility[:, place] = responsibility
        mine = np.flatnonzero(self._numbers == tenant.number)
        self._vote[:, mine] = vote[:, None]
        self._own[:, mine] = tenant.sum[:, None] - self._responsibility[:, mine]
        is_mine_alone = n_votes == self._n_votes and np.array_equal(shared, self._shared())
        return mine if is_mine_alone else EVERYBODY


def _rounded(shares: Vector) -> Vector:
    """Return multiples of the step."""
    rounded: Vector = np.rint(shares / _STEP) * _STEP
    return rounded
