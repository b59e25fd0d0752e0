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
from easeml_db.tenancy.standings import Standings

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
        self._is_same = False  # whether the last decision had the candidates of the one before
        self._total = 0.0  # sum of best qualities before the last decision

    def choose(self, standings: Standings) -> Choice:
        """Judge the last decision, then make this one."""
        total = float(standings.best.sum())
        if not self.is_frozen:
            self._judge(total)
        if self.is_frozen:
            return self._round_robin.choose(standings)
        choice = self._greedy.choose(standings)
        self._is_same = np.array_equal(choice.candidates, standings.was_candidate)
        self._total, standings.was_candidate = total, choice.candidates
        return choice

    def _judge(self, total: float) -> None:
        self._counter = self._counter + 1 if self._is_same and total <= self._total else 0
        if self._counter >= self._patience:
            self.is_frozen = True
            self.n_freezes += 1

    def renew(self) -> None:
        """Go on with greedy."""
        self.is_frozen, self._counter, self._is_same = False, 0, False

    def memory(self) -> Mapping[str, Any]:
        """Whether greedy is frozen, and how near that is."""
        return {
            "is_frozen": self.is_frozen, "counter": self._counter, "is_same": self._is_same, "total": self._total,
            "round_robin": dict(self._round_robin.memory()),
        }  # fmt: skip

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take over both."""
        self.is_frozen, self._counter = bool(memory["is_frozen"]), int(memory["counter"])
        self._is_same, self._total = bool(memory["is_same"]), float(memory["total"])
        self._round_robin.remember(memory["round_robin"])
