"""Results and decisions of procedures in PostgreSQL."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.errors import EasemlError, NotFound
from easeml_db.postgres.stores.off_thread import convert
from easeml_db.postgres.stores.store_session import StoreSession
from easeml_db.words.run import Run


class PostgresSearches:
    """SearchStore on PostgreSQL."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def trial_history(self, run: Run, arm_id: int, trial_ids: Sequence[int] | None = None) -> list[TrialHistory]:
        """Return the history of an arm's trials, or of some of them, by trial_number. Raises NotFound."""
        ids = None if trial_ids is None else list(trial_ids)
        values = {"run_id": run.run_id, "n_resumes": run.n_resumes, "arm_id": arm_id}
        rows = await self._session.rows("read_history", trial_ids=ids, **values)
        if not rows:
            raise NotFound(f"run {run.run_id} is over, or was resumed meanwhile")
        return await convert(len(rows), lambda: [_history(row) for row in rows if row["trial_number"] is not None])

    async def apply_decisions(self, run: Run, arm_id: int, decisions: Sequence[Mapping[str, Any]]) -> int:
        """Start, continue and stop trials, all or none; return the bytes of states pruned. Raises StaleLease, NotFound,
        or EasemlError if the tables refuse decisions that follow from rows that a tenant has written itself.
        """
        try:
            document = json.dumps(list(decisions), allow_nan=False)
        except ValueError as error:
            raise EasemlError(f"a decision cannot be written down: {error}") from error
        row = await self._session.needed("apply_decisions", arm_id=arm_id, n_resumes=run.n_resumes, decisions=document)
        return int(row["pruned_bytes"])


def _history(row: Mapping[str, Any]) -> TrialHistory:
    scores = tuple(math.nan if score is None else score for score in row["scores"])
    return TrialHistory(**{**row, "scores": scores, "moments": tuple(row["moments"])})
