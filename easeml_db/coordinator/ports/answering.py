"""Computations that may take long, beside the loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

Answered = TypeVar("Answered")


class Answering(Protocol):
    """Answers questions of tenants' runs in bounded time and memory; tenants in turn, one question of each at once."""

    def ask(self, tenant: str, question: Callable[[], Answered], seconds: float) -> Future[Answered]:
        """Have a pure question answered, and return at once: a short one may be answered by then.

        The result raises what the question raises, and EasemlError if it takes more than `seconds` of processor time or
        too much memory. The question and its answer must be picklable.
        """
