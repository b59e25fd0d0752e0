"""Optimisers of the torch trainer, and the learning rate as a pure function of the step."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from easeml_plpy.architectures import Config


def _without_compiler(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return the same optimiser with methods that do not import torch's compiler.

    Torch wraps them so that a compiled graph may contain them. We compile nothing, and the import would cost each new
    session more than a second at its first step.
    """
    wrapped = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods: dict[str, object] = {name: inspect.unwrap(getattr(kind, name)) for name in wrapped}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


def _fused(kind: type[torch.optim.Optimizer], kernel: Callable[..., None]) -> type[torch.optim.Optimizer]:
    """Return the same Adam with a step that calls the fused kernel itself, once each parameter has its slots.

    Torch's own step makes the same call, but first sorts the parameters by device and type and looks for hooks.
    """
    plain: type[Any] = _without_compiler(kind)

    class Fused(plain):  # type: ignore[misc]
        def step(self) -> None:
            (group,) = self.param_groups
            # In any order: no parameter's step depends on another's. To look up each of them would take as long again.
            known = [(each, slots) for each, slots in self.state.items() if slots and each.grad is not None]
            n_wanted = sum(each.grad is not None for each in group["params"])
            if not group["fused"] or not known or len(known) < n_wanted:
                super().step()
                return
            means, squares, steps = ([slots[name] for _, slots in known] for name in ("exp_avg", "exp_avg_sq", "step"))
            beta, beta_of_squares = group["betas"]
            with torch.no_grad():
                torch._foreach_add_(steps, 1)
                kernel(
                    [each for each, _ in known], [each.grad for each, _ in known], means, squares, [], steps,
                    lr=group["lr"], beta1=beta, beta2=beta_of_squares, weight_decay=group["weight_decay"],
                    eps=group["eps"], amsgrad=False, maximize=False,
                )  # fmt: skip

        def zero_grad(self, set_to_none: bool = True) -> None:
            for each in self.param_groups[0]["params"]:
                each.grad = None

    return Fused


_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": _without_compiler(torch.optim.SGD),
    "adam": _fused(torch.optim.Adam, torch._fused_adam_),
    "adamw": _fused(torch.optim.AdamW, torch._fused_adamw_),
}


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
    return _OPTIMIZERS[descent.optimizer](module.parameters(), **options)
