"""A procedure that thinks for long keeps neither others nor the lease waiting, and answers for its own errors only."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from easeml_db.coordinator import procedure_runner
from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.loop import Coordinator
from easeml_db.coordinator.procedure_runner import ProcedureRunner
from easeml_db.coordinator.questions import Answer
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.decisions.procedures.contract import TrialDecision
from easeml_db.errors import NotFound
from easeml_db.simulated import SimulatedProcess, SimulatedWorld, new_run
from easeml_db.words.run import Run
from easeml_db.words.topology import Slot
from tests.unit.coordinator.test_pending_searches import halving

THOUGHT_SECONDS = 40.0


def served(
    monkeypatch: pytest.MonkeyPatch, *others: Run, breaking: Exception | None = None, question: Exception | None = None
) -> tuple[SimulatedWorld, SimulatedProcess, list[float]]:
    """Serve a run whose procedure thinks for 40 seconds at each question, beside others; return when it was asked.

    `breaking` is raised by what goes on beside it, `question` by the procedure itself.
    """
    world = SimulatedWorld([Slot(1, "slot-1", 1)], [halving(), *others], seconds_of=lambda unit, slot_id: 1.0)
    process = SimulatedProcess(world)
    asked: list[float] = []

    class LongThought(Future[list[TrialDecision]]):
        def __init__(self, tenant: str, answer: Callable[[], list[TrialDecision]], seconds: float) -> None:
            super().__init__()
            self._answer, self._until = answer, world.now_seconds + THOUGHT_SECONDS
            asked.append(world.now_seconds)

        def done(self) -> bool:
            if breaking is not None:
                raise_later(breaking)
            return world.now_seconds >= self._until

        def result(self, timeout: float | None = None) -> list[TrialDecision]:
            if question is not None:
                raise question
            return self._answer()

    def raise_later(error: Exception) -> None:
        async def broken(process_inbox_seconds: float) -> None:
            raise error

        monkeypatch.setattr(process.ports.inbox, "next", broken)

    monkeypatch.setattr(procedure_runner, "LOOK_SECONDS", 1.0)
    monkeypatch.setattr(process.ports.answering, "ask", LongThought)
    asyncio.run(Coordinator(process.ports).serve(until_idle=True))
    return world, process, asked


def test_the_lease_is_kept_and_units_of_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    other = new_run(2, n_trials=2, n_partitions=1, max_epochs=9)
    world, process, asked = served(monkeypatch, other)
    assert world.tables.runs_by_id[1].status == world.tables.runs_by_id[2].status == "finished"
    assert process.n_heartbeats >= len(asked) * THOUGHT_SECONDS / 3
    ended = max(unit.finished_seconds for unit in world.units if unit.order.unit.run_id == 2)
    assert ended < asked[1] + THOUGHT_SECONDS, "it was served while the first run's procedure thought"


def test_a_long_thought_keeps_no_other_procedure_from_being_asked() -> None:
    runs = [replace(halving(), run_id=number) for number in (1, 2)]
    runs[1] = replace(runs[1], arms=tuple(replace(arm, arm_id=2001) for arm in runs[1].arms))

    class Searches:
        async def trial_history(self, run: Run, arm_id: int, trial_ids: list[int] | None = None) -> list:
            return []

    class Answering:
        def ask(self, tenant: str, answer: Callable[[], Answer], seconds: float) -> Future[Answer]:
            pending.append(Future())
            return pending[-1]

    async def decide() -> None:
        async for _ in runner.decide(5.0):
            pass

    pending: list[Future[Answer]] = []
    dispatcher = Dispatcher()
    runner = ProcedureRunner(Searches(), Answering(), None, Lease(None), dispatcher)
    for run in runs:
        dispatcher.put_run(run)
        runner.arm_opened(run.run_id, run.arms[0].arm_id)
    asyncio.run(decide())
    assert (len(pending), runner.held_until(), runner.look_seconds()) == (2, math.inf, procedure_runner.LOOK_SECONDS)
    runner.arm_opened(1, runs[0].arms[0].arm_id)
    asyncio.run(decide())
    assert len(pending) == 2, "it is asked again once it has answered"
    pending[0].set_result(Answer())
    pending[1].set_result(Answer())
    asyncio.run(decide())
    assert len(pending) == 3, "something had happened meanwhile"
    runner.drop_run(1)
    assert pending[2].cancelled()
    assert runner.look_seconds() == math.inf


@pytest.mark.parametrize("error", [RuntimeError("of others"), NotFound("of others")])
def test_what_goes_on_meanwhile_does_not_end_the_run_that_thinks(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with pytest.raises(type(error), match="of others"):
        served(monkeypatch, breaking=error)


def test_what_the_procedure_raises_ends_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    other = new_run(2, n_trials=1, n_partitions=1, max_epochs=1)
    world, _, _ = served(monkeypatch, other, question=RuntimeError("of its own"))
    assert world.tables.runs_by_id[1].status == "failed"
    assert world.tables.runs_by_id[2].status == "finished"
