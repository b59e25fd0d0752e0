"""The calls of a gang on sessions that are no server's: who is asked to stop, and what is said to have come of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from easeml_db.coordinator.ports.messages import Member, Order
from easeml_db.errors import ServerCrashed, SlotLost, TrialFailed
from easeml_db.postgres.sessions.gang_call import CALLS, GANG_CALLS, GangCall, Outcome
from easeml_db.words.training_unit import TrainingUnit

UNITS = [TrainingUnit(1, 7, 1, step, "train", 1, step, step) for step in range(2)]
ALONE = Order(UNITS[0], 5, 1, 3, 1)
GANG = Order(UNITS[0], 5, 1, 3, 1, (Member(UNITS[1], 6, 2),))


class Session:
    """Answers with a result or an error, or only once it is asked to stop."""

    def __init__(self, answer: dict | Exception | None) -> None:
        self._answer, self._cancelled = answer, asyncio.Event()
        self.calls: list[tuple[str, dict]] = []
        self.n_cancels = 0

    async def call(self, statement: str, text: str) -> dict:
        self.calls.append((statement, json.loads(text)))
        if self._answer is None:
            await self._cancelled.wait()
            raise SlotLost("canceling statement due to user request")
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    async def cancel(self) -> None:
        self.n_cancels += 1
        self._cancelled.set()


def outcome_of(order: Order, *sessions: Session | None) -> Outcome:
    async def run() -> Outcome:
        return await GangCall(order, sessions, "token", 9.0).run()

    return asyncio.run(run())


def test_a_unit_alone_is_called_without_a_gang() -> None:
    session = Session({"pruned_bytes": 4})
    assert outcome_of(ALONE, session) == Outcome({"pruned_bytes": 4}, None, ())
    ((statement, order),) = session.calls
    assert statement == CALLS["train"]
    assert "gang" not in order


def test_every_rank_is_called_on_its_own_session_and_the_first_ones_result_counts() -> None:
    first, second = Session({"pruned_bytes": 4}), Session({})
    assert outcome_of(GANG, first, second) == Outcome({"pruned_bytes": 4}, None, ())
    assert [session.calls[0][0] for session in (first, second)] == [GANG_CALLS["train"]] * 2
    gangs = [session.calls[0][1]["gang"] for session in (first, second)]
    assert [(gang["rank"], gang["token"], gang["timeout_seconds"]) for gang in gangs] == [
        (0, "token", 9.0),
        (1, "token", 9.0),
    ]
    assert first.n_cancels == second.n_cancels == 0


def test_the_first_failure_asks_the_others_to_stop_and_explains_the_outcome() -> None:
    failed = TrialFailed("the loss is not finite")
    waiting, failing = Session(None), Session(failed)
    assert outcome_of(GANG, waiting, failing) == Outcome(None, failed, ())
    assert (waiting.n_cancels, failing.n_cancels) == (1, 0)


def test_a_session_that_is_gone_ends_its_gang() -> None:
    waiting = Session(None)
    outcome = outcome_of(GANG, None, waiting)
    assert waiting.n_cancels == 1
    assert isinstance(outcome.error, SlotLost)
    assert str(outcome.error) == "slot 1 has no session"


def test_nobody_waits_for_a_rank_that_was_given_up() -> None:
    stuck, waiting = Session(None), Session(None)

    async def run() -> Outcome:
        call = GangCall(GANG, (stuck, waiting))
        call.give_up(1)
        return await call.run()

    outcome = asyncio.run(run())
    assert outcome.stuck == (1,)
    assert (stuck.n_cancels, waiting.n_cancels) == (0, 1)


@pytest.mark.parametrize("order", [ALONE, GANG])
def test_a_session_that_is_closed_as_it_is_given_up_is_stuck_and_has_not_crashed(order: Order) -> None:
    closed, waiting = Session(ServerCrashed("the connection is closed")), Session(None)

    async def run() -> Outcome:
        call = GangCall(order, (closed, waiting)[: len(order.slot_ids)])
        running = asyncio.ensure_future(call.run())
        await asyncio.sleep(0)  # what ends a rank, and its being given up, are seen in one turn
        call.give_up(1)
        return await running

    outcome = asyncio.run(run())
    assert outcome.stuck == (1,)
    assert not isinstance(outcome.error, ServerCrashed)
