"""What a pilot measures beside others: when each of many equal laps ended, and the memory that it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

LAP_SECONDS = 0.02  # a lap is at least so long, where there are rows enough
MAX_LAPS = 200
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def laps(train: Callable[[int], object], n_rows: int, seconds_per_row: float, seconds: float) -> dict[str, Any]:
    """Train over the same rows again and again for so many seconds.

    Returns {"laps", "n_rows"}: the beginning and the end of each lap, in seconds on the server's clock, and its rows.
    """
    wanted = max(LAP_SECONDS, seconds / MAX_LAPS) / seconds_per_row if seconds_per_row > 0 else n_rows
    n_lap = max(1, min(n_rows, int(wanted)))
    moments = [time.time()]
    while moments[-1] - moments[0] < seconds:
        train(n_lap)
        moments.append(time.time())
    return {"laps": moments, "n_rows": n_lap}


class MemoryMeter:
    """Memory that a trial takes at most from now on: on the GPU, or of this process."""

    def __init__(self, device: str) -> None:
        self._device = device
        if device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats(device)
        else:
            self._before = _reset_peak()

    def read(self) -> dict[str, int | None]:
        """Return {"trial_bytes", "device_bytes"}: its peak, and all that there is (None: not known)."""
        if self._device.startswith("cuda"):
            total = torch.cuda.mem_get_info(self._device)[1]
            return {"trial_bytes": torch.cuda.max_memory_reserved(self._device), "device_bytes": total}
        peak = _status("VmHWM")
        known = peak is not None and self._before is not None
        return {"trial_bytes": max(0, peak - self._before) if known else None, "device_bytes": None}  # type: ignore[operator]


def _reset_peak() -> int | None:
    """Begin a new peak; return the memory resident now, or None where the kernel does not say."""
    try:
        CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> int | None:
    """A figure of this process in bytes."""
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    values = [int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")]
    return values[0] if values else None
