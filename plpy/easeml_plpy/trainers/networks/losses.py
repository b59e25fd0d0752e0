"""Losses of networks: cross entropy with smoothed labels and weighted classes, or the squared error of (transformed)
targets; for series of unequal length, both.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from easeml_plpy.architectures import Config
from easeml_plpy.architectures.tables.target_transforms import target_transform
from easeml_plpy.columns.task import Task


class Loss:
    """The mean loss of a batch; of a network with members, the mean over them all."""

    def __init__(self, task: Task, config: Config) -> None:
        self._task = task
        self._smoothing = config.number("label_smoothing") if "label_smoothing" in config else 0.0
        self._is_balanced = config.get("class_weight") == "balanced" and task.kind == "classification"
        self._weights: torch.Tensor | None = None
        self._transform = target_transform(task, config)

    def see(self, targets: torch.Tensor) -> None:
        """Receive the classes of the training rows, from which balanced classes get their weights."""
        if self._is_balanced and len(targets):
            counts = torch.bincount(targets, minlength=self._task.n_outputs).clamp(min=1)
            self._weights = (len(targets) / (self._task.n_outputs * counts)).to(torch.float32)

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of outputs (n, n_outputs) or (n, members, n_outputs) against targets (n,), of tensors
        (n, n_outputs)."""
        if outputs.dim() == 3:
            targets = targets.repeat_interleave(outputs.shape[1])
            outputs = outputs.flatten(0, 1)
        if self._task.output_objects is not None:
            shape = (-1, *self._task.output_shape)
            return series_loss(outputs.reshape(shape), targets.reshape(shape))
        if self._task.kind == "regression":
            return functional.mse_loss(outputs.reshape(targets.shape), self._learnt(targets))
        return functional.cross_entropy(outputs, targets, self._weights, label_smoothing=self._smoothing)

    @property
    def is_weighted(self) -> bool:
        """Whether rows count by their class."""
        return self._weights is not None

    def _learnt(self, targets: torch.Tensor) -> torch.Tensor:
        return targets if self._transform is None else self._transform.forward(targets, torch)

    def of_each_row(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss (n,) of outputs (n, n_outputs), without row weights; for tensors, the loss of each number."""
        if self._task.kind == "regression":
            return functional.mse_loss(outputs.flatten(), self._learnt(targets), reduction="none")
        return functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=self._smoothing)


def series_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of output series (n, steps, numbers + 1): the squared error of the numbers of existing steps, and
    the cross entropy of where a series ends.
    """
    is_there = targets[:, :, -1]
    errors = (outputs[:, :, :-1] - targets[:, :, :-1]).square().mean(dim=2)
    of_numbers = (errors * is_there).sum() / is_there.sum().clamp(min=1)
    return of_numbers + functional.binary_cross_entropy_with_logits(outputs[:, :, -1], is_there)


def stacked_losses(losses: Sequence[Loss], outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss (k,) of each of k networks: outputs (k, n, [members,] n_outputs) against targets (k, n)."""
    if any(loss.is_weighted for loss in losses):
        return torch.stack([loss(*rows) for loss, *rows in zip(losses, outputs, targets, strict=True)])
    if outputs.dim() == 4:
        targets = targets.unsqueeze(2).expand(outputs.shape[:3])
    of_rows = losses[0].of_each_row(outputs.flatten(0, -2), targets.flatten())
    return of_rows.view(len(losses), -1).mean(dim=1)
