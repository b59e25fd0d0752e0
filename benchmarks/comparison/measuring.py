"""What a benchmark yields (rows with a target), and how times are compared: in pairs that take turns, by medians."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """One measured number. Without a bound it is only reported."""

    name: str
    setting: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        """The bound as text."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def holds(self) -> bool | None:
        """Whether the value is within its bound; None without one."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    @property
    def is_higher_better(self) -> bool:
        """Whether more is better: by its bound, else by its unit (times, sizes and costs should be low)."""
        return self.at_least is not None or (self.at_most is None and self.unit == "x speed")

    def to_json(self) -> dict[str, Any]:
        """Return the row as the JSON output has it."""
        keys = ("name", "setting", "value", "unit", "target", "holds")
        return {key: getattr(self, key) for key in keys}


class Timer:
    """Seconds of the block it was opened for."""

    seconds = 0.0


@contextmanager
def timed() -> Any:
    """`with timed() as timer: ...; timer.seconds`."""
    timer = Timer()
    started = time.perf_counter()
    yield timer
    timer.seconds = time.perf_counter() - started


def seconds_of(work: Callable[[], object]) -> float:
    """Return seconds that a call takes."""
    with timed() as timer:
        work()
    return float(timer.seconds)


@dataclass(frozen=True)
class Pairs:
    """Seconds of ours and of what it is compared with, measured in turns so that both meet the same neighbours."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """Median over the pairs of ours / theirs."""
        return median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def inverse(self) -> float:
        """Median over the pairs of theirs / ours: speed relative to theirs."""
        return median(b / a for a, b in zip(self.ours, self.theirs, strict=True))


def take_turns(n_pairs: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Pairs:
    """Measure both by turns; each returns its own seconds."""
    pairs = Pairs([], [])
    for number in range(n_pairs):
        for seconds, taken in zip((pairs.ours, pairs.theirs), in_turn(number, ours, theirs), strict=True):
            seconds.append(taken)
    return pairs


def in_turn(number: int, *sides: Callable[[], Result]) -> list[Result]:
    """Do a round of all sides and return their results in the order of the sides.

    Rounds of odd numbers begin with the last side: whatever comes second finds caches as the first has left them.
    """
    if number % 2 == 0:
        return [side() for side in sides]
    return [side() for side in reversed(sides)][::-1]
