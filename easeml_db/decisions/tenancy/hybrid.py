"""Hybrid: greedy, until its candidates and what was achieved stay the same; then round robin (ease.ml, section 4.4).

After each decision: if the candidates V are those of the decision before and the sum of best qualities did not rise,
a counter goes up, else back to 0; at s = 10 greedy is frozen and the turns go round. In the paper's words the overall
regret does not drop, which is not observable: the sum of best-so-far stands for it. A run or arm that arrives or
leaves thaws it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from easeml_db.decisions.tenancy.contract import Choice, Costless
from easeml_db.decisions.tenancy.greedy import Greedy
from easeml_db.decisions.tenancy.round_robin import RoundRobin
from easeml_db.decisions.tenancy.standings import Standings
from easeml_db.errors import InvalidArgument

PATIENCE = 10  # s in the paper


class Hybrid(Costless):
    """`patience` is s; `n_freezes` counts how often greedy was frozen."""

    def __init__(self, patience: int = PATIENCE, greedy: Greedy | None = None) -> None:
        if patience < 1:
            raise InvalidArgument(f"patience: expected at least 1, got {patience}")
        self._patience, self._greedy, self._round_robin = patience, greedy or Greedy(), RoundRobin()
        self.n_freezes = 0
        self.is_frozen = False
        self._counter = 0
        self._candidates: list[int] | None = None  # places, of the last decision
        self._is_same = False  # whether they were those of the decision before
        self._total = 0.0  # sum of best before the last decision

    def copy(self) -> Hybrid:
        """Return an independent copy that continues from here."""
        copied = copy.copy(self)
        copied._greedy, copied._round_robin = self._greedy.copy(), self._round_robin.copy()
        return copied

    def choose(self, standings: Standings) -> Choice:
        """Judge the last decision, then make this one."""
        total = float(standings.best.sum())
        # What the last decision brought is known only now.
        self._judge(total)
        if self.is_frozen:
            return self._round_robin.choose(standings)
        choice = self._greedy.choose(standings)
        candidates = np.flatnonzero(choice.candidates).tolist()
        self._is_same = candidates == self._candidates
        self._candidates, self._total = candidates, total
        return choice

    def _judge(self, total: float) -> None:
        if self.is_frozen or self._candidates is None:
            return
        # Best so far never falls, so `<=` says that the sum did not rise.
        self._counter = self._counter + 1 if self._is_same and total <= self._total else 0
        if self._counter >= self._patience:
            self.is_frozen = True
            self.n_freezes += 1

    def renew(self, left: int | None = None) -> None:
        """Resume greedy."""
        self._round_robin.renew(left)
        # The paper leaves open whether the switch is for good. It is as long as runs and arms stay the same.
        self.is_frozen, self._counter, self._candidates, self._is_same = False, 0, None, False

    def memory(self) -> Mapping[str, Any]:
        """Return whether greedy is frozen, how near that is, and the last decision, by which the next is judged."""
        return {
            "is_frozen": self.is_frozen, "counter": self._counter, "candidates": self._candidates,
            "is_same": self._is_same, "total": self._total, "n_freezes": self.n_freezes,
            "greedy": self._greedy.memory(), "round_robin": self._round_robin.memory(),
        }  # fmt: skip

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Restore the whole memory."""
        self.is_frozen, self._counter = bool(memory["is_frozen"]), int(memory["counter"])
        self._candidates, self._is_same = memory["candidates"], bool(memory["is_same"])
        self._total, self.n_freezes = float(memory["total"]), int(memory["n_freezes"])
        self._greedy.remember(memory["greedy"])
        self._round_robin.remember(memory["round_robin"])
