"""What is known of trials between two questions is what the tables say: a procedure could not tell the difference."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from easeml_db.coordinator import procedure_runner, trial_histories
from easeml_db.coordinator.effects import Work
from easeml_db.coordinator.trial_histories import TrialHistories
from easeml_db.decisions.procedures.contract import TrialHistory
from easeml_db.errors import NotFound, TrialFailed
from easeml_db.simulated import Faults
from easeml_db.words.run import Run
from tests.unit.coordinator.test_searches import STAGED, run_of, search_of, serve, world_of


def told(trial: TrialHistory) -> TrialHistory:
    """Return what a procedure can tell: a trial that waits for a slot is to it as one that has one."""
    return replace(trial, status="waiting") if trial.status == "running" else trial


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("procedure", STAGED)
def test_what_is_known_is_what_the_tables_say(procedure: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(failure_of=lambda order: TrialFailed("it diverged") if order.unit.trial_number % 5 == 2 else None)
    world = world_of([run_of(k, search_of(procedure, n_arms=2)) for k in (1, 2)], faults=faults if fails else None)
    read: Counter[bool] = Counter()
    read_arm, trial_history = TrialHistories.read, world.tables.searches.trial_history

    async def checked(self: TrialHistories, run: Run, arm_id: int) -> Work:
        async for effect in read_arm(self, run, arm_id):
            yield effect
        trials = self.of_arm(arm_id)
        assert [told(trials[number]) for number in sorted(trials)] == [
            told(trial) for trial in trial_history(run, arm_id)
        ]

    def counted(run: Run, arm_id: int, trial_ids: Any = None) -> Any:
        read[trial_ids is None] += 1
        return trial_history(run, arm_id, trial_ids)

    monkeypatch.setattr(TrialHistories, "read", checked)
    monkeypatch.setattr(world.tables.searches, "trial_history", counted)
    assert serve(world)
    assert read[False] > read[True] > 0


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("procedure", ["successive_halving", "asha", "pbt"])
def test_decisions_in_parts_come_to_what_they_come_to_at_once(
    procedure: str, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where somebody holds the rows of every second part: what is left follows from asking again."""

    def outcome() -> list[tuple[int, str, int, int | None]]:
        world = world_of([run_of(1, search_of(procedure, n_arms=2))])
        apply, parts = world.tables.searches.apply_decisions, itertools.count()

        def at_once(run: Run, arm_id: int, decisions: Any, lease_number: int) -> None:
            assert len(decisions) <= procedure_runner.DECISIONS_AT_ONCE
            if is_cut and next(parts) % 2:
                raise NotFound("somebody is at it")
            apply(run, arm_id, decisions, lease_number)

        monkeypatch.setattr(world.tables.searches, "apply_decisions", at_once)
        assert serve(world)
        trials = sorted(world.tables.trials.values(), key=lambda trial: trial.trial_number)
        return [(t.trial_number, t.status, t.n_steps_done, t.target_epochs) for t in trials]

    expected = outcome()
    monkeypatch.setattr(procedure_runner, "DECISIONS_AT_ONCE", 1)
    monkeypatch.setattr(trial_histories, "READ_AT_ONCE", 1)
    assert outcome() == expected


class Parts:
    """A search store of five trials that counts how often each was read."""

    def __init__(self) -> None:
        self.read: Counter[int] = Counter()

    async def trial_history(self, run: Run, arm_id: int, trial_ids: Any = None) -> list[TrialHistory]:
        ids = range(1, 6) if trial_ids is None else trial_ids
        self.read.update(ids)
        return [TrialHistory(k, {}, "waiting", (float(self.read[k]),)) for k in ids]


def test_what_changes_between_two_parts_is_read_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_histories, "READ_AT_ONCE", 2)
    run, store = run_of(1, search_of("random")), Parts()
    known = TrialHistories(store)

    async def scores(meanwhile: Callable[[], None]) -> list[float]:
        async for _ in known.read(run, 7):
            meanwhile()
        return [trial.scores[0] for trial in known.of_arm(7).values()]

    def change() -> None:
        known.changed(7, [1])

    async def reads() -> None:
        await scores(change)
        known.changed(7, range(1, 6))
        assert await scores(change) == [2.0] * 5
        assert await scores(change) == [3.0] + [2.0] * 4
        known.changed(7, range(1, 6))
        with pytest.raises(NotFound, match="read anew"):
            await scores(lambda: known.forget([7]))
        before = store.read.copy()
        assert len(await scores(change)) == 5
        assert store.read - before == Counter(range(1, 6))

    asyncio.run(reads())
