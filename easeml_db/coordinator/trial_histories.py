"""What procedures know of the trials of each arm, kept between two questions: of a large run only the trials that have
changed are read again.
"""

from __future__ import annotations

from collections.abc import Iterable

from easeml_db.coordinator.ports.searches import SearchStore
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.words.run import Run


class TrialHistories:
    """A cache of the tables. Whoever changes a trial, or hears that it has changed, says so."""

    def __init__(self, searches: SearchStore) -> None:
        self._searches = searches
        self._known: dict[int, dict[int, TrialHistory]] = {}  # by arm and trial number
        self._changed: dict[int, set[int]] = {}  # trials by arm

    def changed(self, arm_id: int, trial_id: int) -> None:
        """Read this trial again, which may be new."""
        if arm_id in self._known:
            self._changed.setdefault(arm_id, set()).add(trial_id)

    def forget(self, arm_ids: Iterable[int]) -> None:
        """Read all trials of these arms again."""
        for arm_id in arm_ids:
            self._known.pop(arm_id, None)
            self._changed.pop(arm_id, None)

    async def of_arm(self, run: Run, arm_id: int) -> list[TrialHistory]:
        """Return what is known of the trials of an arm, by trial number; NotFound."""
        changed = self._changed.pop(arm_id, set())
        known = self._known.pop(arm_id, None)  # where reading fails, all are read the next time
        if known is None:
            found = await self._searches.trial_history(run, arm_id)
        else:
            found = await self._searches.trial_history(run, arm_id, sorted(changed)) if changed else []
        known = (known or {}) | {trial.trial_number: trial for trial in found}
        self._known[arm_id] = known
        return [known[number] for number in sorted(known)]
