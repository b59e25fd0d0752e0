"""Ray's own processes on this machine; not Ray Tune, which takes as long to import as PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray

OBJECT_STORE_BYTES = 100 * 2**20


@contextmanager
def local_ray(folder: Path, n_cores: int) -> Iterator[None]:
    """Ray's processes on this machine, without those that only watch; gone at the end."""
    ray.init(
        num_cpus=n_cores,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=str(folder / "r"),  # a short name: sockets lie in there, and their paths have at most 107 bytes
    )
    try:
        yield
    finally:
        ray.shutdown()
