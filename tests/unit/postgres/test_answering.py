"""Questions are answered beside the loop, in bounded time and memory, and a tenant's wait behind its own only."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from easeml_db.errors import EasemlError, TrialFailed
from easeml_db.postgres.answering.fair_queue import FairQueue
from easeml_db.postgres.answering.pool import AnsweringProcesses

LONG = 60.0


@pytest.fixture
def answering() -> Iterator[AnsweringProcesses]:
    made = AnsweringProcesses()
    yield made
    made.close()


# Questions of the standard library alone: the other process does not know the tests.
endless = partial(exec, "while True: pass")
greedy = partial(bytearray, 16 << 30)
suicidal = partial(exec, "import os; os.kill(os.getpid(), 9)")
failing = partial(exec, "from easeml_db.errors import TrialFailed; raise TrialFailed('it cannot', hint='ask another')")


def test_a_question_is_answered_in_another_process_while_this_one_goes_on(answering: AnsweringProcesses) -> None:
    pending = answering.ask("anna", partial(time.sleep, 0.2), LONG)
    assert not pending.done()
    assert pending.result(60) is None
    assert answering.ask("anna", os.getpid, LONG).result(60) != os.getpid()


def test_what_a_question_raises_is_raised(answering: AnsweringProcesses) -> None:
    with pytest.raises(TrialFailed, match="it cannot") as refused:
        answering.ask("anna", failing, LONG).result(60)
    assert refused.value.hint == "ask another"


@pytest.mark.parametrize(
    ("question", "seconds", "why"),
    [
        (endless, 1.0, "more than 1 s of processor time"),
        (greedy, LONG, "MB of memory"),
        (suicidal, LONG, "was killed"),
        (partial(time.sleep, LONG), 0.5, "was killed"),
    ],
)
def test_neither_time_nor_memory_nor_a_death_harms_the_next_question(
    answering: AnsweringProcesses, question: partial[None], seconds: float, why: str
) -> None:
    pending = answering.ask("anna", question, seconds)
    after = answering.ask("anna", partial(abs, -3), LONG)
    with pytest.raises(EasemlError, match=why):
        pending.result(60)
    assert after.result(60) == 3


def test_one_death_is_nobodys_fault(answering: AnsweringProcesses, tmp_path: Path) -> None:
    once = partial(
        exec,
        f"import os; p = '{tmp_path}/died'; os.path.exists(p) or (os.mkdir(p), os.kill(os.getpid(), 9))",
    )
    assert answering.ask("anna", once, LONG).result(60) is None


def test_memory_that_earlier_questions_keep_is_nobodys_fault(answering: AnsweringProcesses) -> None:
    keep = partial(exec, "import builtins; builtins.kept = bytearray(1500 << 20)")
    assert answering.ask("mallory", keep, LONG).result(60) is None
    large = partial(exec, "bytearray(1000 << 20)")
    assert answering.ask("anna", large, LONG).result(60) is None


def test_short_questions_do_not_wait_for_two_tenants_with_long_ones(answering: AnsweringProcesses) -> None:
    long = partial(exec, "import time; until = time.process_time() + 50\nwhile time.process_time() < until: pass")
    pending = [answering.ask(name, long, LONG) for name in ("mallory", "eve")]
    assert answering.ask("anna", partial(abs, -3), LONG).result(60) == 3
    assert answering.ask("anna", partial(abs, -4), LONG).result(60) == 4
    assert not any(each.done() for each in pending), "each has had two seconds of processor time where others wait"


def test_a_question_that_takes_long_is_answered_all_the_same(answering: AnsweringProcesses) -> None:
    long = partial(exec, "import time\nwhile time.process_time() < 4.0: pass")
    assert answering.ask("anna", long, LONG).result(60) is None


@pytest.mark.parametrize("n", range(3))
def test_an_answer_that_came_in_time_leaves_its_process_alive(answering: AnsweringProcesses, n: int) -> None:
    """The deadline falls upon the answer: whichever is first, the next question is answered."""
    pending = answering.ask("anna", partial(time.sleep, 0.3), 0.05)
    assert answering.ask("bob", partial(abs, -3), LONG).result(60) == 3
    assert pending.exception(60) is None or "was killed" in str(pending.exception())


def test_processes_and_threads_end_when_it_is_closed() -> None:
    before = set(threading.enumerate())
    made = AnsweringProcesses()
    pid = made.ask("anna", os.getpid, LONG).result(60)
    under_way, waiting = (made.ask("anna", endless, LONG) for _ in range(2))
    made.close()
    assert set(threading.enumerate()) == before
    assert not os.path.exists(f"/proc/{pid}")
    assert waiting.cancelled()
    assert under_way.exception(60) is not None


def test_a_tenants_items_wait_behind_its_own_only() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in (1, 2, 3):
        queue.put("many", number)
    queue.put("one", 4)
    assert queue.take() == ("many", 1)
    assert queue.take() == ("one", 4), "one of a tenant at a time"
    queue.put("one", 5)
    queue.done("one")
    assert queue.take() == ("one", 5), "the other has one under way"
    queue.done("many")
    queue.done("one")
    queue.put("one", 6)
    assert [queue.take(), queue.take()] == [("many", 2), ("one", 6)], "in turn"
    assert queue.close() == [3]
    assert queue.take() is None
