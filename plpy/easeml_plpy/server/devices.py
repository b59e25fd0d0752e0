"""Binding a session to its slot: threads, memory limit and device.

A session that predicts may never need torch, so it is bound without importing it.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from easeml_plpy.server.errors import InvalidArgument
from easeml_plpy.server.memory import keep_freed_memory, limit_to, session_bytes, unlimited

if TYPE_CHECKING:
    import torch

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []  # before any binding


class _Threads:
    """How many threads this process was given, None before the first binding; and whether it is for answers."""

    given: int | None = None
    is_for_answers = False


def n_threads() -> int:
    """Return how many threads libraries may use here."""
    torch = _loaded_torch()
    return int(torch.get_num_threads()) if torch is not None else _Threads.given or len(CORES) or 1


def share_threads() -> None:
    """Give torch, if it is loaded by now, the threads that this process was given."""
    torch = _loaded_torch()
    if torch is not None and _Threads.given not in (None, torch.get_num_threads()):
        torch.set_num_threads(_Threads.given)


def one_blas_thread() -> AbstractContextManager[object]:
    """Limit numpy's BLAS to one thread in this block. The number of threads changes the last digits of sums; and BLAS
    would take all cores, and spin while it waits for them.
    """
    if _Threads.is_for_answers:
        _keep_one_blas_thread()
        return nullcontext()
    limits: AbstractContextManager[object] = _blas().limit(limits=1)
    return limits


def be_for_answers() -> None:
    """Keep BLAS at one thread between answers: changing that takes as long as a small network does."""
    _Threads.is_for_answers = True


@cache
def _keep_one_blas_thread() -> None:
    _blas().limit(limits=1)


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _loaded_torch() -> Any:
    return sys.modules.get("torch")


def bind(device: str, n_threads: int, memory_limit_bytes: int | None) -> str:
    """Give the session its threads, cores and memory limit, and check its device. Cheap when nothing changes.

    The limit makes an allocation beyond it fail inside the unit. Without a new limit the session keeps its present one;
    on a GPU it has none. Returns the device as torch names it: 'cpu' for each share of the CPU.
    """
    _Threads.given = n_threads
    share_threads()
    keep_freed_memory()
    if memory_limit_bytes is not None:
        limit_to(memory_limit_bytes)
    elif is_gpu(device):
        unlimited()
    if CORES and os.sched_getaffinity(0) != (cores := cores_of(device, n_threads, CORES)):
        os.sched_setaffinity(0, cores)
    check_device(device)
    return "cpu" if device.startswith("cpu:") else device


def is_gpu(device: str) -> bool:
    """Return whether a device is a GPU, by its name."""
    return device.startswith("cuda")


def devices() -> list[str]:
    """Return the devices that slots can use here, as torch names them."""
    import torch

    return ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]


def check_device(device: str) -> None:
    """Raise InvalidArgument for a GPU that is not there."""
    if is_gpu(device) and (device if device != "cuda" else "cuda:0") not in (present := devices()):
        raise InvalidArgument(
            f"device: {device} is not there: this server sees {len(present) - 1} GPUs",
            hint="easeml doctor lists the devices; change that of slots with easeml.set_slots.",
        )


def torch_device(name: str) -> torch.device:
    """Return the named device, made to give the same bytes each time. Raises InvalidArgument."""
    import torch

    if not re.fullmatch(r"(cpu|cuda)(:[0-9]+)?", name):
        raise InvalidArgument(f"device: expected 'cpu' or 'cuda:N', got {name!r}")
    check_device(name)
    if is_gpu(name):
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    return torch.device(name)


def device_bytes(device: str) -> int:
    """Return the memory that a trial on this device, as torch names it, may take."""
    if is_gpu(device):
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return session_bytes()


def cores_of(device: str, n_threads: int, cores: list[int]) -> set[int]:
    """Return the cores of a session: all, or of share cpu:N the N-th n_threads, starting over at the end."""
    if not device.startswith("cpu:"):
        return set(cores)
    first = int(device[4:]) * n_threads
    return {cores[(first + k) % len(cores)] for k in range(n_threads)}
