"""Work beside the coordinator, whose failures are reported elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start work in the background; the caller keeps the task and checks whether it is done."""
    task = asyncio.create_task(work)
    task.add_done_callback(_look_at)
    return task


def _look_at(task: asyncio.Task[None]) -> None:
    """Retrieve a task's error, which asyncio would print otherwise."""
    if not task.cancelled():
        task.exception()
