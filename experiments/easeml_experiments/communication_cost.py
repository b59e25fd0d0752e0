"""Cerebro, table 2: bytes that each way of training moves, as formulas.

symbol   here             meaning
k        n_epochs         epochs of each config
m        state_bytes      size of one state
p        n_workers        workers, and partitions
|S|      n_configs        configs
b        batch_rows       rows of a worker's mini-batch
|D|      n_rows           rows of the dataset
<D>      data_bytes       its bytes
"""

from __future__ import annotations

from dataclasses import dataclass

from easeml_db.errors import InvalidArgument


@dataclass(frozen=True)
class Workload:
    """What the formulas take. Raises InvalidArgument unless every number is positive."""

    n_epochs: int
    state_bytes: int
    n_workers: int
    n_configs: int
    batch_rows: int
    n_rows: int
    data_bytes: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise InvalidArgument(f"{name}: expected a positive number, got {value}")

    @property
    def n_steps_per_epoch(self) -> int:
        """Mini-batches of an epoch that all workers take together: ceil(|D| / (b p))."""
        return -(-self.n_rows // (self.batch_rows * self.n_workers))


def epoch_states(work: Workload) -> int:
    """Return k m p |S|: each config's state once for each worker and epoch; the least possible with data that stay."""
    return work.n_epochs * work.state_bytes * work.n_workers * work.n_configs


def model_hopping(work: Workload) -> int:
    """Return k m p |S| + m |S|: a hop for each sub-epoch, and the last states."""
    return epoch_states(work) + work.state_bytes * work.n_configs


def shared_store_hopping(work: Workload) -> int:
    """Return 2 k m p |S|: each hop is written to a store and read from it (section 5)."""
    return 2 * epoch_states(work)


def task_parallel(work: Workload) -> int:
    """Return p <D> + m |S|: all data to every worker, and the last states."""
    return work.n_workers * work.data_bytes + work.state_bytes * work.n_configs


def bulk_synchronous(work: Workload) -> int:
    """Return 2 k m p |S|: after each epoch every worker sends its state and gets the mean."""
    return 2 * epoch_states(work)


def parameter_server(work: Workload) -> int:
    """Return 2 k m p |S| ceil(|D| / (b p)): the same at every mini-batch."""
    return 2 * epoch_states(work) * work.n_steps_per_epoch


def all_reduce(work: Workload) -> int:
    """Return k m p |S| ceil(|D| / (b p)): gradients without a server, at every mini-batch."""
    return epoch_states(work) * work.n_steps_per_epoch


def ring_share(n_workers: int) -> float:
    """Return what a worker sends in a ring all-reduce of m bytes, in m: 2 (p - 1) / p. The paper's formula counts 1."""
    return 2 * (n_workers - 1) / n_workers
