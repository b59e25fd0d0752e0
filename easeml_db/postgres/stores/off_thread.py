"""Conversion of rows of very many trials into values, outside the loop's thread."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TypeVar

MANY_TRIALS = 1000
Made = TypeVar("Made")


async def convert(n_trials: int, work: Callable[[], Made]) -> Made:
    """Do work at once, or in a thread if it takes tens of milliseconds, as with very many trials. The resulting objects
    are kept as long as the run is open, so they are excluded from garbage collection, which stops all threads.
    """
    if n_trials < MANY_TRIALS:
        return work()
    made = await asyncio.to_thread(work)
    gc.freeze()
    return made
