"""Ray's own processes on this machine; not Ray Tune, which takes as long to import as PyTorch."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import ray
from ray._private import services

OBJECT_STORE_BYTES = 100 * 2**20
START_SECONDS = 300.0


@contextmanager
def local_ray(folder: Path, n_cores: int) -> Iterator[None]:
    """Start Ray's processes on this machine, without those that only watch; gone at the end."""
    with _patient():
        ray.init(
            num_cpus=n_cores,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
            _system_config={"worker_register_timeout_seconds": round(START_SECONDS)},
            _temp_dir=str(folder / "r"),  # a short name: sockets lie in there, and their paths have at most 107 bytes
        )
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _patient() -> Iterator[None]:
    """Wait for Ray's processes as long as a busy machine takes to start them: Ray itself gives up after 30 seconds."""
    get_node = services.get_node

    def found(*place: Any, **more: Any) -> Any:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return get_node(*place, **more)
            except RuntimeError:  # it has not announced itself yet
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    port_wait = {"RAY_gcs_server_port_wait_time_s": str(round(START_SECONDS))}
    with mock.patch.object(services, "get_node", found), mock.patch.dict(os.environ, port_wait):
        yield
