"""Examples per second of a training unit inside PostgreSQL, relative to the same loop in plain PyTorch.

Both train on the same tensors in the same order of rows, with one thread and Adam, by turns; 1 is equal speed.
The first row of each pair counts the training alone (`training_seconds` of the unit), the second the whole CALL as
the coordinator sees it: opening the unit, training, storing the state, recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import plain_torch
from comparison.measuring import Pairs, Row, in_turn, seconds_of
from workload import N_PARTITIONS, Life, Workload, start_run, tensors

from easeml_db.coordinator.ports.messages import Order

BATCH_SIZES = (32, 256)
N_PAIRS = {"mlp": 24, "lenet": 8}
N_WARM_EPOCHS = 1


def measure(workload: Workload) -> Iterator[Row]:
    """Yield two rows for each network and batch size."""
    dataset = workload.dataset()
    for architecture in plain_torch.NETWORKS:
        for batch_size in BATCH_SIZES:
            yield from _measure(workload, dataset, architecture, batch_size)


def _measure(workload: Workload, dataset: str, architecture: str, batch_size: int) -> Iterator[Row]:
    n_pairs = workload.repeats(N_PAIRS[architecture])
    max_epochs = N_WARM_EPOCHS + -(-n_pairs // N_PARTITIONS)
    with workload.session() as session, workload.slot(1) as slot:
        run_id = start_run(session, dataset, architecture, batch_size, rates=[1e-3], max_epochs=max_epochs)
        parts = [tensors(session, dataset, "train", number) for number in range(N_PARTITIONS)]
        network = plain_torch.NETWORKS[architecture]()
        adam = plain_torch.optimizer(network, 1e-3)
        training, whole = Pairs([], []), Pairs([], [])

        def turn(order: Order) -> tuple[dict[str, Any], float, float]:
            """Return the result of the unit, the seconds of its CALL, and those of the other side."""

            def ours() -> tuple[float, dict[str, Any]]:
                return slot.call(order)

            def theirs() -> tuple[float, dict[str, Any]]:
                rows = parts[order.unit.partition_number]
                return seconds_of(lambda: plain_torch.train(network, adam, *rows, batch_size, order.seed)), {}

            (seconds, result), (plain, _) = in_turn(order.unit.epoch + order.unit.position, ours, theirs)
            return result, seconds, plain

        for order in Life(session, run_id).orders():
            if order.unit.kind != "train":
                slot.call(order)
                continue
            result, seconds, plain = turn(order)
            if order.unit.epoch > N_WARM_EPOCHS:
                for pairs, ours in ((training, result["training_seconds"]), (whole, seconds)):
                    pairs.ours.append(ours)
                    pairs.theirs.append(plain)
    unit = f"{len(parts[0][0])} rows, {median(training.ours):.2f} s a unit"
    setting = f"{architecture}, batch {batch_size}, {unit}, {len(training.ours)} pairs"
    yield Row("training unit / plain PyTorch, training alone", setting, training.inverse, "x speed", at_least=0.97)
    yield Row("training unit / plain PyTorch, whole CALL", setting, whole.inverse, "x speed")
