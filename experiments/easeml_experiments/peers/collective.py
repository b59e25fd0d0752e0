"""Each trial on all workers at once, one trial after another; every worker holds one partition.

data-parallel    after every mini-batch gradients are averaged (torch's DistributedDataParallel over gloo); a worker
                 takes its share b/p of the batch, so that the effective batch is b
model-averaging  every worker trains an epoch on its partition from the common parameters, with the whole batch b; then
                 the parameters are averaged (bulk synchronous; Cerebro, section 2)
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from easeml_experiments.peers import record, training, workload
from easeml_experiments.peers.record import Record
from easeml_experiments.peers.wire import sent_bytes
from easeml_plpy.server.memory import keep_freed_memory
from easeml_plpy.trainers.networks.torch_private import averaging_gradients
from easeml_plpy.trainers.networks.torch_trial import TorchTrial


def data_parallel(folder: Path) -> Record:
    """Train them all, averaging gradients."""
    return _run(folder, "data-parallel")


def model_averaging(folder: Path) -> Record:
    """Train them all, averaging parameters."""
    return _run(folder, "model-averaging")


def _run(folder: Path, method: str) -> Record:
    work = workload.load(folder)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = (folder, method, Path(scratch))
        start_processes(_work, arguments, nprocs=work.n_workers, start_method="fork")  # type: ignore[no-untyped-call]
        records = [record.load(Path(scratch) / f"{rank}.json") for rank in range(work.n_workers)]
    whole = records[0]
    whole.started = min(one.started for one in records)
    whole.finished = max(one.finished for one in records)
    for name in ("loaded_bytes", "handed_bytes", "wire_bytes"):
        setattr(whole, name, sum(getattr(one, name) for one in records))
    return whole


def _work(rank: int, folder: Path, method: str, scratch: Path) -> None:
    """Train as a worker does, from its start to its end."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as slots do
    work = workload.load(folder)
    rendezvous = f"file://{scratch / 'rendezvous'}"
    torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=work.n_workers)
    worker = Worker(folder, work, rank)
    train = worker.data_parallel if method == "data-parallel" else worker.model_averaging
    report = Record(method, work.n_workers, started=time.time(), held_bytes=workload.n_bytes(worker.rows))
    report.errors = {number: list(train(number)) for number in work.numbers}
    report.finished, report.wire_bytes = time.time(), sent_bytes()
    report.loaded_bytes, report.handed_bytes = report.held_bytes, worker.handed_bytes
    record.save(report, scratch / f"{rank}.json")
    _leave_together([scratch / f"{other}.json" for other in range(work.n_workers)])


def _leave_together(records: Sequence[Path]) -> None:
    """End this process once every worker's record is there, without gloo's own farewell: taking a group down while a
    peer does the same now and then aborts the process (about one run in forty on loaded cores)."""
    while not all(path.exists() for path in records):
        time.sleep(0.01)
    os._exit(0)


class Worker:
    """One process of the group, with its partition."""

    def __init__(self, folder: Path, work: workload.Workload, rank: int) -> None:
        self._work = work
        inputs, targets = workload.partition(folder, "train", rank)
        n_rows = torch.tensor(len(inputs))  # partitions differ by a row at most: all take as many steps
        torch.distributed.all_reduce(n_rows, torch.distributed.ReduceOp.MIN)
        self.rows = inputs[: int(n_rows)], targets[: int(n_rows)]
        self._validation = workload.partition(folder, "validation", rank)
        self._rank = rank
        self.handed_bytes = 0

    def data_parallel(self, number: int) -> Iterator[float]:
        """Train a trial; yield its validation error after each epoch."""
        module = training.build(self._work, number)
        with _averaging_gradients(module) as wrapped:
            live = training.start(self._work, number, wrapped, [self.rows], n_sharing=self._work.n_workers)
            for epoch in range(1, self._work.max_epochs + 1):
                n_steps = self._train(live, number, epoch)
                self.handed_bytes += n_steps * training.parameter_bytes(module)
                yield self._error(live)

    def model_averaging(self, number: int) -> Iterator[float]:
        """Train a trial; yield its validation error after each epoch."""
        module = training.build(self._work, number)
        live = training.start(self._work, number, module, [self.rows])
        for epoch in range(1, self._work.max_epochs + 1):
            self._train(live, number, epoch)
            self._average(module)
            yield self._error(live)

    def _average(self, module: nn.Module) -> None:
        """Give every worker the mean of all workers' parameters: each hands its own over and takes the mean."""
        with torch.no_grad():
            flat = parameters_to_vector(module.parameters())
            torch.distributed.all_reduce(flat)
            vector_to_parameters(flat / self._work.n_workers, module.parameters())
        self.handed_bytes += 2 * training.parameter_bytes(module)

    def _train(self, live: TorchTrial, number: int, epoch: int) -> int:
        """Train an epoch over the own partition; return the number of steps."""
        return training.train_part(live, self._work, number, epoch, self._rank, self.rows).n_steps

    def _error(self, live: TorchTrial) -> float:
        """Return the share of wrong labels over all workers' validation rows."""
        n_rows = len(self._validation[1])
        counts = torch.tensor([training.error_of(live, self._work, self._validation) * n_rows, n_rows]).double()
        torch.distributed.all_reduce(counts)
        return float(counts[0] / counts[1])


@contextmanager
def _averaging_gradients(module: nn.Module) -> Iterator[nn.Module]:
    """Put the network into a wrapper whose backward pass averages the gradients of all workers."""
    yield averaging_gradients(module)
    torch.distributed.barrier()  # nobody leaves while others still talk
