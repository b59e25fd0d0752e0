"""Hybrid: greedy, until its candidates and what was achieved stay the same; then round robin (ease.ml, section 4.4).

After each decision: if the candidates V are those of the decision before and the sum of best qualities did not rise,
a counter goes up, else back to 0; at s = 10 greedy is frozen and the turns go round. In the paper's words the overall
regret does not drop, which nobody can observe: the sum of best-so-far stands for it. A tenant or arm that arrives or
leaves thaws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easeml_db.errors import InvalidArgument
from easeml_db.tenancy.contract import Choice
from easeml_db.tenancy.greedy import Greedy
from easeml_db.tenancy.round_robin import RoundRobin
from easeml_db.tenancy.standings import Mask, Standings

PATIENCE = 10  # s in the paper


class Hybrid:
    """`patience` is s; `n_freezes` counts how often greedy was frozen."""

    def __init__(self, patience: int = PATIENCE, greedy: Greedy | None = None) -> None:
        if patience < 1:
            raise InvalidArgument(f"patience: expected at least 1, got {patience}")
        self._patience, self._greedy, self._round_robin = patience, greedy or Greedy(), RoundRobin()
        self.n_freezes = 0
        self.is_frozen = False
        self._counter = 0
        self._candidates: Mask | None = None  # of the last decision
        self._is_same = False  # whether they were those of the decision before
        self._total = 0.0  # sum of best before the last decision

    def choose(self, standings: Standings) -> Choice:
        """Judge the last decision, then make this one."""
        total = float(standings.best.sum())
        self._judge(total)
        if self.is_frozen:
            return self._round_robin.choose(standings)
        choice = self._greedy.choose(standings)
        self._is_same = self._candidates is not None and np.array_equal(choice.candidates, self._candidates)
        self._candidates, self._total = choice.candidates, total
        return choice

    def _judge(self, total: float) -> None:
        if self.is_frozen or self._candidates is None:
            return
        self._counter = self._counter + 1 if self._is_same and total <= self._total else 0
        if self._counter >= self._patience:
            self.is_frozen = True
            self.n_freezes += 1

    def renew(self) -> None:
        """Go on with greedy."""
        self.is_frozen, self._counter, self._candidates, self._is_same = False, 0, None, False

    def memory(self) -> Mapping[str, Any]:
        """Whether greedy is frozen, and how near that is."""
        return {"is_frozen": self.is_frozen, "counter": self._counter, "round_robin": self._round_robin.memory()}

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take over both; the last candidates are not known any more, so the counter stands still for a decision."""
        self.is_frozen, self._counter = bool(memory["is_frozen"]), int(memory["counter"])
        self._round_robin.remember(memory["round_robin"])
