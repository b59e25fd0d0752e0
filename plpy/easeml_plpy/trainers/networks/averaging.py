"""Averaged weights: a running average over the steps, which answers in place of the last weights.

The average of Polyak and Juditsky (1992) with an exponential window. It needs no planned end, so a trial can be stopped
or continued at any epoch, and its metric improves steadily where that of the last weights fluctuates. The means and
variances of batch normalisation belong to the weights, so they are averaged with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from easeml_plpy.trainers.networks.torch_private import lerp

STATISTICS = ("running_mean", "running_var")  # what batch normalisation keeps of the batches that it saw


def share_at(keep: float, n_steps: int) -> float:
    """Return how far the average goes towards the weights after that many steps; all the way without averaging."""
    return 1.0 - min(keep, n_steps / (n_steps + 9))


class AveragedWeights:
    """The average of a module's parameters and of its statistics of batches, with a window that grows to
    1 / (1 - `keep`) steps."""

    def __init__(self, module: nn.Module, keep: float) -> None:
        statistics = {name: kept for name, kept in module.named_buffers() if name.rpartition(".")[2] in STATISTICS}
        self._weights = dict(module.named_parameters()) | statistics
        self._keep = keep
        self._averages = {name: tensor.detach().clone() for name, tensor in self._weights.items()}

    def add(self, n_steps: int) -> None:
        """Add the weights after that many steps."""
        share = share_at(self._keep, n_steps)
        lerp(list(self._averages.values()), list(self._weights.values()), share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the module answer with the averages."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Return the averages by the names of what is averaged: the parameters in their order, then statistics."""
        return self._averages

    def restore(self, stored: Mapping[str, torch.Tensor]) -> None:
        """Continue from stored averages; if a state has none, from the weights."""
        for name, average in self._averages.items():
            average.copy_(stored[name] if stored else self._weights[name].detach())

    def _swap(self) -> None:
        for name, tensor in self._weights.items():
            tensor.data, self._averages[name] = self._averages[name], tensor.data
