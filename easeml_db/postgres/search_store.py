"""What procedures see and decide, in PostgreSQL."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.errors import EasemlError
from easeml_db.postgres.store_session import StoreSession


class PostgresSearches:
    """SearchStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def trial_history(self, run_id: int, arm_id: int) -> list[TrialHistory]:
        """Return what a procedure may know of an arm's trials, by trial_number."""
        rows = await self._session.rows("read_history", arm_id=arm_id)
        return [_history(row) for row in rows]

    async def apply_decisions(self, run_id: int, arm_id: int, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Start, continue and stop trials, all or none; return the bytes of states pruned. StaleLease, NotFound, or
        EasemlError where the tables refuse what follows from rows that a tenant has written itself."""
        try:
            document = json.dumps(list(decisions), allow_nan=False)
        except ValueError as error:
            raise EasemlError(f"a decision cannot be written down: {error}") from error
        row = await self._session.needed("apply_decisions", arm_id=arm_id, decisions=document)
        return int(row["pruned_bytes"])


def _history(row: Mapping[str, Any]) -> TrialHistory:
    scores = tuple(_score(score) for score in row["scores"])
    return TrialHistory(**{**row, "scores": scores, "moments": tuple(row["moments"])})


def _score(value: float | None) -> float:
    return math.nan if value is None else value
