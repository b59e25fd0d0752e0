"""What is known of trials between two questions is what the tables say: a procedure could not tell the difference."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from easeml_db.coordinator.trial_histories import TrialHistories
from easeml_db.decisions.procedures.contract import StopTrial, TrialHistory
from easeml_db.errors import TrialFailed
from easeml_db.postgres.search_store import PostgresSearches
from easeml_db.simulated import Faults
from easeml_db.words.run import Run
from tests.unit.test_searches import STAGED, run_of, search_of, serve, world_of


def told(trial: TrialHistory) -> TrialHistory:
    """Return what a procedure can tell: a trial that waits for a slot is to it as one that has one."""
    return replace(trial, status="waiting") if trial.status == "running" else trial


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("procedure", STAGED)
def test_what_is_known_is_what_the_tables_say(procedure: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(failure_of=lambda order: TrialFailed("it diverged") if order.unit.trial_number % 5 == 2 else None)
    world = world_of([run_of(k, search_of(procedure, n_arms=2)) for k in (1, 2)], faults=faults if fails else None)
    read: Counter[bool] = Counter()
    of_arm, trial_history = TrialHistories.of_arm, world.tables.searches.trial_history

    async def checked(self: TrialHistories, run: Run, arm_id: int) -> Any:
        found = await of_arm(self, run, arm_id)
        assert [told(trial) for trial in found] == [told(trial) for trial in trial_history(run, arm_id)]
        return found

    def counted(run: Run, arm_id: int, trial_ids: Any = None) -> Any:
        read[trial_ids is None] += 1
        return trial_history(run, arm_id, trial_ids)

    monkeypatch.setattr(TrialHistories, "of_arm", checked)
    monkeypatch.setattr(world.tables.searches, "trial_history", counted)
    assert serve(world)
    assert read[False] > read[True] > 0


def test_units_go_on_while_a_procedure_thinks() -> None:
    """The answer waits for something that only the loop can do."""
    is_recorded = threading.Event()

    def question() -> list[Any]:
        assert is_recorded.wait(60)
        return [StopTrial(7)]

    async def meanwhile(timeout_seconds: float) -> None:
        is_recorded.set()
        await asyncio.sleep(timeout_seconds)

    assert asyncio.run(PostgresSearches(None).answer(question, meanwhile)) == [StopTrial(7)]  # type: ignore[arg-type]


def test_a_store_that_is_closed_leaves_no_thread() -> None:
    async def meanwhile(timeout_seconds: float) -> None:
        await asyncio.sleep(timeout_seconds)

    before = set(threading.enumerate())
    store = PostgresSearches(None)  # type: ignore[arg-type]
    assert asyncio.run(store.answer(list, meanwhile)) == []
    started = set(threading.enumerate()) - before
    store.close()
    for thread in started:
        thread.join(60)
    assert started
    assert not any(thread.is_alive() for thread in started)


def test_a_procedure_that_cannot_go_on_says_so() -> None:
    async def meanwhile(timeout_seconds: float) -> None:
        await asyncio.sleep(timeout_seconds)

    def question() -> list[Any]:
        raise TrialFailed("it cannot")

    with pytest.raises(TrialFailed, match="it cannot"):
        asyncio.run(PostgresSearches(None).answer(question, meanwhile))  # type: ignore[arg-type]
