"""Torch devices: a device by name, set up to give the same bytes each time, and recognition of out-of-memory errors."""

from __future__ import annotations

import torch

from easeml_plpy.server.errors import InvalidArgument, NotAllowed


def torch_device(name: str) -> torch.device:
    """Return the named device, made to give the same bytes each time. Raises InvalidArgument, NotAllowed."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidArgument(f"device: expected 'cpu' or 'cuda:N', got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"device: expected 'cpu' or 'cuda:N', got {name!r}")
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():
            raise NotAllowed(f"device {name!r}: this segment sees {torch.cuda.device_count()} GPUs")
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    return device


def is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out: the CPU allocator raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)
