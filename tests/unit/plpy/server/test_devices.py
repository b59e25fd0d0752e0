"""Sessions on shares of the CPU: which cores they get."""

import os
import subprocess
import sys

import pytest

from easeml_plpy.server.devices import bind, check_device, cores_of, devices
from easeml_plpy.server.errors import InvalidArgument


def test_a_share_of_the_cpu_is_so_many_cores_and_others_have_all():
    cores = [0, 1, 4, 5, 6]
    assert cores_of("cpu", 1, cores) == cores_of("cuda:1", 4, cores) == set(cores)
    assert [cores_of(f"cpu:{share}", 1, cores) for share in (0, 1, 2, 5)] == [{0}, {1}, {4}, {0}]
    assert [cores_of(f"cpu:{share}", 2, cores) for share in (0, 1, 2)] == [{0, 1}, {4, 5}, {6, 0}]
    assert cores_of("cpu:3", 9, cores) == set(cores)


def test_torch_knows_shares_of_the_cpu_as_the_cpu():
    import torch

    before, n_threads = os.sched_getaffinity(0), torch.get_num_threads()
    try:
        assert bind("cpu:0", 1, None) == "cpu"
        assert len(os.sched_getaffinity(0)) == 1
        assert bind("cpu", 1, None) == "cpu"
        assert os.sched_getaffinity(0) == before
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(n_threads)


def test_networks_in_numpy_answer_in_one_thread_and_leave_blas_as_many_as_it_had():
    """A session has its answers to the last digit from others with more cores; a reader runs in somebody's process."""
    program = """
import numpy as np
from threadpoolctl import threadpool_info
from easeml_plpy.columns.task import Task
from easeml_plpy.trainers.networks.numpy_network import NumpyNetwork

def n_threads():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

def forward(rows):
    seen.append(n_threads())
    return rows

seen, before = [], n_threads()
network = NumpyNetwork(Task("regression", (3,), 1), forward)
network.outputs(np.zeros((2, 3), np.float32))
assert seen == [{1}], seen
assert n_threads() == before
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_gpu_that_is_not_there_is_refused_and_the_cpu_never():
    assert devices()[0] == "cpu"
    for device in ("cpu", "cpu:99", *devices()):
        check_device(device)
    for device in (f"cuda:{len(devices()) - 1}", "cuda:99"):
        with pytest.raises(InvalidArgument, match=rf"device: {device} is not there: this server sees \d+ GPUs"):
            check_device(device)
