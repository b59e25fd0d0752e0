"""Optimisers of the torch trainer, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from easeml_plpy.architectures import Config
from easeml_plpy.trainers.networks.torch_private import optimizer_class


@dataclass(frozen=True)
class Descent:
    """How a network is trained: what a config says to the optimiser and its schedule."""

    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    batch_size: int
    schedule: str
    averaging: float

    @classmethod
    def of(cls, config: Config) -> Descent:
        """Read it from the complete config of a torch architecture."""
        return cls(
            optimizer=config.text("optimizer"),
            learning_rate=config.number("learning_rate"),
            momentum=config.number("momentum"),
            weight_decay=config.number("weight_decay"),
            batch_size=config.integer("batch_size"),
            schedule=config.text("schedule"),
            averaging=config.number("averaging") if "averaging" in config else 0.0,
        )

    def rate_at(self, step: int, n_steps_total: int) -> float:
        """Return the learning rate of a step."""
        return learning_rate_at(self.schedule, self.learning_rate, step, n_steps_total)


def learning_rate_at(schedule: str, base: float, step: int, n_steps_total: int) -> float:
    """Return the learning rate of one step; step 0 is the first. Past the end it stays at the last step's.

    constant: base. cosine: base * (1 + cos(pi * step / total)) / 2. step: a tenth from half-way on,
    a hundredth for the last quarter.
    """
    if schedule == "constant":
        return base
    progress = min(step, max(n_steps_total - 1, 0)) / max(n_steps_total, 1)
    if schedule == "cosine":
        return base * (1 + math.cos(math.pi * progress)) / 2
    return base * (1.0 if progress < 0.5 else 0.1 if progress < 0.75 else 0.01)


def has_fused_optimizer(optimizer: str, device_type: str, torch_version: str) -> bool:
    """Return whether that torch release fuses the optimiser's step there (up to a third less time per step)."""
    release = tuple(int(part) for part in torch_version.split(".")[:2])
    first = {("adam", "cuda"): (2, 0), ("adamw", "cuda"): (2, 0), ("sgd", "cuda"): (2, 3)}
    return device_type in ("cpu", "cuda") and release >= first.get((optimizer, device_type), (2, 4))


def build_optimizer(descent: Descent, module: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """Return the optimiser that a config asks for, over the module's parameters where they are."""
    options: dict[str, float | bool] = {"lr": descent.learning_rate, "weight_decay": descent.weight_decay}
    if descent.optimizer == "sgd":
        options["momentum"] = descent.momentum
    if has_fused_optimizer(descent.optimizer, device.type, torch.__version__):
        options["fused"] = True
    kind: Any = optimizer_class(descent.optimizer)
    optimizer: torch.optim.Optimizer = kind(module.parameters(), **options)
    return optimizer
