"""Trains one network on the rows of several ranks at once: all step alike on the gradient of their joint batch.

A joint pass over N rows takes ceil(N / batch size) steps. Each rank cuts its own shuffled rows into as many nearly
equal pieces; the cuts of the ranks are staggered, so that joint batches are nearly equal, too. The library averages the
gradients of w ranks; a loss that is weighted by w times the rank's share of the joint batch makes that average the
gradient of the mean loss over all rows of the joint batch. A rank without rows in a step takes part with weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn

from easeml_plpy.server.value_types import Pause
from easeml_plpy.trainers.contract import Training
from easeml_plpy.trainers.networks.torch_private import averaging_gradients
from easeml_plpy.trainers.networks.torch_trial import TorchTrial
from easeml_plpy.trainers.training_rows import check_rows, visit_order

CHECK_STEPS = 64


@dataclass(frozen=True)
class JointSteps:
    """How the ranks' rows, `n_rows` of each, are cut into the steps of a joint pass."""

    n_rows: tuple[int, ...]
    batch_size: int

    @property
    def n_steps(self) -> int:
        """Steps of the optimiser, on every rank; 0 if no rank has rows."""
        return -(-sum(self.n_rows) // self.batch_size)

    def bounds(self, rank: int, step: int) -> tuple[int, int]:
        """Return first and last (excluded) of a rank's shuffled rows in a step."""
        return self._cut(rank, step), self._cut(rank, step + 1)

    def weight(self, rank: int, step: int) -> float:
        """Return the weight of a rank's mean loss, so that the average over ranks is that of the joint batch."""
        sizes = [stop - start for start, stop in (self.bounds(other, step) for other in range(len(self.n_rows)))]
        return len(sizes) * sizes[rank] / sum(sizes) if sum(sizes) else 0.0

    def _cut(self, rank: int, step: int) -> int:
        n_ranks, n_steps = len(self.n_rows), self.n_steps
        return (step * self.n_rows[rank] * n_ranks + rank * n_steps) // (n_steps * n_ranks)


def train_jointly(
    live: TorchTrial,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    rank: int,
    n_rows: Sequence[int],
    network: nn.Module,
    seed: int,
    pause: Pause,
) -> Training:
    """Visit every row of every rank once, in orders drawn from each rank's own seed; all ranks call this alike.

    `n_rows` gives the rows of each rank, `network` is the live trial's module as `averaging` wraps it. The loss is that
    of the rank's own rows. Raises as LiveTrial.train does; what a lost peer raises passes through.
    """
    check_rows(live.task, inputs, targets)
    steps = JointSteps(tuple(n_rows), live.batch_size)
    inputs, targets = inputs.to(live.device), targets.to(live.device)
    order = visit_order(len(inputs), seed).to(live.device)
    live.begin_pass(targets, seed)
    loss_sum = 0.0
    for first in range(0, steps.n_steps, CHECK_STEPS):
        losses, sizes = [], []
        for step in range(first, min(first + CHECK_STEPS, steps.n_steps)):
            start, stop = steps.bounds(rank, step)
            batch, batch_targets = _batch(inputs, targets, order[start:stop])
            losses.append(live.step(network, batch, batch_targets, weight=steps.weight(rank, step)))
            sizes.append(stop - start)
            pause()
        _let_device_finish(live.device, pause)
        loss_sum += math.fsum(size * loss for size, loss in zip(sizes, live.checked(losses), strict=True))
    if steps.n_steps:
        live.check_parameters()
    return Training(loss_sum / len(inputs) if len(inputs) else math.nan, len(inputs), steps.n_steps)


def averaging(live: TorchTrial, process_group: distributed.ProcessGroup) -> nn.Module:
    """Wrap the live trial's network so that its backward pass averages gradients over the ranks of the group."""
    devices = [live.device] if live.device.type == "cuda" else None
    return averaging_gradients(live.module, devices, process_group)


def _batch(inputs: torch.Tensor, targets: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return these rows; if there are none, one row of zeros, which counts with weight 0."""
    if len(rows):
        return inputs[rows], targets[rows]
    return inputs.new_zeros(1, *inputs.shape[1:]), targets.new_zeros(1)


def _let_device_finish(device: torch.device, pause: Pause) -> None:
    """Wait for the device in a way that lets a cancel through: its kernels may wait for a peer that is gone."""
    if device.type != "cuda":
        return
    done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch does not type its events
    done.record()
    while not done.query():
        pause()
