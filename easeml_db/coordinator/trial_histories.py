"""The histories of each arm's trials, kept between two questions, so that only changed trials of a large run are read
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from easeml_db.coordinator.effects import HandleMessages, Work
from easeml_db.coordinator.ports.searches import SearchStore
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.errors import NotFound
from easeml_db.words.run import Run

READ_AT_ONCE = 500  # trials, in a statement that takes tens of milliseconds


class TrialHistories:
    """A cache of the tables. Code that changes a trial, or learns of a change, must call `changed`."""

    def __init__(self, searches: SearchStore) -> None:
        self._searches = searches
        self._histories: dict[int, Mapping[int, TrialHistory]] = {}  # by arm and trial number; replaced, never changed
        self._changed: dict[int, set[int]] = {}  # trials by arm

    def changed(self, arm_id: int, trial_ids: Iterable[int]) -> None:
        """Read these trials again, which may be new."""
        if arm_id in self._histories:
            self._changed.setdefault(arm_id, set()).update(trial_ids)

    def forget(self, arm_ids: Iterable[int]) -> None:
        """Read all trials of these arms again."""
        for arm_id in arm_ids:
            self._histories.pop(arm_id, None)
            self._changed.pop(arm_id, None)

    def of_arm(self, arm_id: int) -> Mapping[int, TrialHistory]:
        """Return the trials of an arm that has been read, by trial number."""
        return self._histories[arm_id]

    async def read(self, run: Run, arm_id: int) -> Work:
        """Read what has changed in an arm. Other runs continue between two parts of a large one; changes in that time
        are read the next time. Raises NotFound if the run is over, or was read anew meanwhile.
        """
        try:
            async for effect in self._read(run, arm_id):
                yield effect
        except BaseException:
            self.forget([arm_id])
            raise

    async def _read(self, run: Run, arm_id: int) -> Work:
        changed = sorted(self._changed.pop(arm_id, ()))
        if arm_id not in self._histories:
            self._histories[arm_id] = {}  # from now on changes are noted
            self._put(arm_id, await self._searches.trial_history(run, arm_id))
        for begin in range(0, len(changed), READ_AT_ONCE):
            if begin:
                yield HandleMessages()
                if arm_id not in self._histories:
                    raise NotFound(f"run {run.run_id} is over, or was read anew")
            some = changed[begin : begin + READ_AT_ONCE]
            self._put(arm_id, await self._searches.trial_history(run, arm_id, some))

    def _put(self, arm_id: int, histories: Sequence[TrialHistory]) -> None:
        self._histories[arm_id] = {**self._histories[arm_id], **{trial.trial_number: trial for trial in histories}}
