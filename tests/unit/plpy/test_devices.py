"""Sessions on shares of the CPU: which cores they get."""

import os
import subprocess
import sys

import pytest

from easeml_plpy.devices import bind, cores_of


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


@pytest.mark.parametrize(("wanted", "given", "expected"), [("1", 4, "1"), ("4", 1, "1")])
def test_blas_never_gets_more_threads_than_the_process_was_told_to_use(wanted: str, given: int, expected: str) -> None:
    """A reader of exported trials runs in somebody's own process, with settings of its own."""
    program = (
        "import sys, numpy; from threadpoolctl import threadpool_info; from easeml_plpy import devices\n"
        "devices._Threads.given = int(sys.argv[1]); devices.share_blas_threads()\n"
        "print(*{each['num_threads'] for each in threadpool_info() if each['user_api'] == 'blas'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(given)], capture_output=True, text=True, check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": wanted, "OMP_NUM_THREADS": wanted},
    )  # fmt: skip
    assert done.stdout.strip() == expected
