"""What procedures see of an arm's trials, and what they decide about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.words.run import Run


class SearchStore(Protocol):
    """Reads the results of an arm's trials, and records the decisions of its procedure."""

    async def trial_history(self, run: Run, arm_id: int, trial_ids: Sequence[int] | None = None) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials, or of some of them, by trial_number.

        Raises NotFound if the run is over, or was resumed since it was read.
        """

    async def apply_decisions(self, run: Run, arm_id: int, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Start, continue and stop trials, all or none (sql/runs/searches.sql says what a decision is); return the
        bytes of states pruned.

        Raises StaleLease also if the tables are ahead of the decisions, and NotFound if the run is over, was resumed
        since it was read, or its rows are locked.
        """
