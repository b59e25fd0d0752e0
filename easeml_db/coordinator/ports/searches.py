"""What procedures see of an arm's trials, and what they decide about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.words.run import Run

Answered = TypeVar("Answered")


class SearchStore(Protocol):
    """Reads what an arm's trials came to, and records what a procedure decides."""

    async def trial_history(self, run: Run, arm_id: int, trial_ids: Sequence[int] | None = None) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials, or of some of them, by trial_number.

        Raises NotFound where the run is over, or was resumed since it was read.
        """

    async def answer(self, question: Callable[[], Answered], meanwhile: Callable[[float], Awaitable[None]]) -> Answered:
        """Return what a question to a procedure comes to. A long one is worked out beside the loop: `meanwhile` is
        called again and again until then, with the seconds for which it may wait. What the question raises comes out
        here."""

    async def apply_decisions(self, run: Run, arm_id: int, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Start, continue and stop trials, all or none (sql/functions/searches.sql says what a decision is); return the
        bytes of states pruned.

        Raises StaleLease also where the tables are ahead of the decisions, and NotFound where the run is over, was
        resumed since it was read, or somebody holds the rows.
        """
