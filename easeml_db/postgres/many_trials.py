"""Conversion of rows of very many trials into values, outside the loop's thread."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TypeVar

MANY_TRIALS = 1000
Made = TypeVar("Made")


async def made_of(n_trials: int, work: Callable[[], Made]) -> Made:
    """Do work at once, or in a thread where it takes tens of milliseconds, as of very many trials.

    What such a run comes to is kept for as long as it is open. So it is set aside from what is looked through for
    garbage, which holds all threads.
    """
    if n_trials < MANY_TRIALS:
        return work()
    made = await asyncio.to_thread(work)
    gc.freeze()
    return made
