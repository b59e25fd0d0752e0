"""Binding a session to its slot: threads, memory limit and device."""

from __future__ import annotations

import resource

import torch

from .errors import InvalidArgument


def bind(device: str, n_threads: int, memory_limit_bytes: int | None) -> str:
    """Give the session its threads and memory limit, and check its device. Cheap when nothing changes.

    Returns the device as torch names it: 'cpu' for each named share of the CPU, else the same.

    The limit makes an allocation beyond it fail inside the unit; without one the kernel would kill a server
    process, and with it everybody's session.
    """
    if torch.get_num_threads() != n_threads:
        torch.set_num_threads(n_threads)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = hard if memory_limit_bytes is None else memory_limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    if device.startswith("cuda:") and int(device[5:]) >= torch.cuda.device_count():
        raise InvalidArgument(
            f"slot device {device}: this server sees {torch.cuda.device_count()} CUDA device(s)",
            hint="easeml doctor lists the devices; change the slot with easeml.set_slots.",
        )
    return "cpu" if device.startswith("cpu:") else device
