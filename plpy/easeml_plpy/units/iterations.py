"""Measurements of a pilot that runs beside others: when each of many equal iterations ended, and the memory that it
took.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import torch

from easeml_plpy.server.devices import is_gpu

ITERATION_SECONDS = 0.02  # an iteration takes at least so long, where there are rows enough
MAX_ITERATIONS = 200
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Iterations(TypedDict):
    """When the first iteration began and when each ended, in seconds on the server's clock; rows of an iteration."""

    iteration_ends: list[float]
    n_rows: int


class Memory(TypedDict):
    """A trial's peak memory and its device's total, in bytes; None if unknown."""

    trial_bytes: int | None
    device_bytes: int | None


def repeat_iterations(
    train: Callable[[int], object], n_rows: int, seconds_per_row: float, seconds: float
) -> Iterations:
    """Train over the same rows repeatedly for a number of seconds."""
    n_rows_due = max(ITERATION_SECONDS, seconds / MAX_ITERATIONS) / seconds_per_row if seconds_per_row > 0 else n_rows
    n_at_once = max(1, min(n_rows, int(n_rows_due)))
    moments = [time.time()]
    while moments[-1] - moments[0] < seconds:
        train(n_at_once)
        moments.append(time.time())
    return {"iteration_ends": moments, "n_rows": n_at_once}


class MemoryMeter:
    """Memory that a trial takes at most from now on: on the GPU, or of this process."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._before: int | None = None
        if is_gpu(device):
            torch.cuda.reset_peak_memory_stats(device)
        else:
            self._before = _reset_peak()

    def read(self) -> Memory:
        """Return the peak since the meter was made."""
        if is_gpu(self._device):
            total = torch.cuda.mem_get_info(self._device)[1]
            return {"trial_bytes": torch.cuda.max_memory_reserved(self._device), "device_bytes": total}
        peak = _status("VmHWM")
        if peak is None or self._before is None:
            return {"trial_bytes": None, "device_bytes": None}
        return {"trial_bytes": max(0, peak - self._before), "device_bytes": None}


def _reset_peak() -> int | None:
    """Begin a new peak; return the memory resident now, or None if the kernel does not report it."""
    try:
        CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> int | None:
    """Return a figure of this process in bytes."""
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    values = [int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")]
    return values[0] if values else None
