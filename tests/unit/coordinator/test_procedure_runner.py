"""The runner asks about arms of runs as the dispatcher knows them: it has no copy of its own that could be older."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from easeml_db.coordinator.lease import Lease
from easeml_db.coordinator.procedure_runner import ProcedureRunner
from easeml_db.decisions.hopper.dispatch.dispatcher import Dispatcher
from easeml_db.errors import NotFound
from easeml_db.words.run import Arm, Run, Search
from easeml_db.words.trial import Trial

SEARCH = Search("[]", None, "random")
TRIALS = tuple(Trial(k, 1, k, 2, 1, 0, "waiting") for k in (1, 2))
RUN = Run(1, 0, "running", None, None, TRIALS[:1], {1: "net"}, arms=(Arm(10, "net", opening=1),), arm_of={1: 10})


class HeldArms:
    """A search store where somebody holds the rows of every arm; it remembers which were asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    async def trial_history(self, run: Run, arm_id: int, trial_ids: list[int] | None = None) -> list:
        self.asked.append((run.run_id, arm_id))
        raise NotFound("somebody holds the arm's rows")


async def decided(runner: ProcedureRunner) -> None:
    assert [effect async for effect in runner.decide(0.0)] == [], "nobody thinks long"


def asked_after(*, renewed: Run | None, trial_id: int) -> list[tuple[int, int]]:
    """Return which arms the runner asks about once a trial has changed; the dispatcher alone is told of renewals."""
    store, dispatcher = HeldArms(), Dispatcher()
    runner = ProcedureRunner(store, None, None, Lease(None), dispatcher)
    run = replace(RUN, search=SEARCH)
    dispatcher.put_run(run)
    if renewed is None:
        dispatcher.drop_run(run.run_id)
    else:
        dispatcher.put_run(renewed)
    runner.trial_changed(run.run_id, trial_id)
    asyncio.run(decided(runner))
    return store.asked


def test_a_trial_that_only_the_renewed_run_has_is_asked_about() -> None:
    renewed = replace(
        RUN, search=SEARCH, trials=TRIALS, architectures={1: "net", 2: "net"}, arm_of={1: 10, 2: 11},
        arms=(*RUN.arms, Arm(11, "other", opening=2)),
    )  # fmt: skip
    assert asked_after(renewed=renewed, trial_id=2) == [(1, 11)]
    assert asked_after(renewed=replace(RUN, search=SEARCH), trial_id=2) == []


def test_nobody_asks_about_runs_that_are_gone_or_have_no_search() -> None:
    assert asked_after(renewed=None, trial_id=1) == []
    assert asked_after(renewed=RUN, trial_id=1) == []
