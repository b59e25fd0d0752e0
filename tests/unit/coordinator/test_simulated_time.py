"""The simulated clock: what arrives with which turn of a process that waits."""

import asyncio
from collections import deque

from easeml_db.simulated.time import SimulatedTime


class Process:
    def __init__(self):
        self.inbox = deque()


def arrivals(events, timeout_seconds=10.0):
    """Return (time, messages) of every wait of one process, until one brings no message."""
    time, process, found = SimulatedTime(horizon_seconds=100.0), Process(), []
    time.enter(process)
    for seconds, message in events:
        time.at(seconds, lambda message=message: process.inbox.append(message))

    async def wait():
        while not found or found[-1][1]:
            await time.wait(process, timeout_seconds)
            found.append((time.now_seconds, list(process.inbox)))
            process.inbox.clear()

    asyncio.run(wait())
    return found


def test_what_happens_at_one_instant_arrives_together_in_the_order_in_which_it_was_planned():
    events = [(2.0, "c"), (1.0, "a"), (1.0, "b"), (2.0, "d")]
    assert arrivals(events) == [(1.0, ["a", "b"]), (2.0, ["c", "d"]), (12.0, [])]


def test_sums_that_differ_by_rounding_are_one_instant():
    assert 0.1 + 0.2 > 0.3
    assert arrivals([(0.1 + 0.2, "b"), (0.3, "a"), (0.31, "c")])[:2] == [(0.1 + 0.2, ["a", "b"]), (0.31, ["c"])]


def test_an_event_just_after_the_end_of_a_wait_does_not_come_early():
    assert arrivals([(5.0, "a"), (10.0 + 5e-10, "b"), (15.0, "c")], timeout_seconds=5.0)[:2] == [
        (5.0, ["a"]),
        (10.0, []),
    ]


def test_what_an_event_causes_at_its_own_instant_arrives_with_it():
    time, process = SimulatedTime(horizon_seconds=100.0), Process()
    time.enter(process)
    time.at(1.0, lambda: time.at(1.0, lambda: process.inbox.append("caused")))
    time.at(1.0, lambda: process.inbox.append("first"))
    asyncio.run(time.wait(process, 10.0))
    assert (time.now_seconds, list(process.inbox)) == (1.0, ["first", "caused"])


def test_a_wait_without_events_ends_at_its_timeout():
    assert arrivals([(20.0, "late")], timeout_seconds=3.0) == [(3.0, [])]
