"""One step of the optimisers of many networks: what torch's own do, with a rate and a decay for each network.

Numbers of all parameters of a network lie in one row, (k, parameters). Torch's optimiser has one learning rate for all
that it is given, so it computes the step of rate 1 from zero, and each row then takes its own rate times that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.optim.adam import adam

from easeml_plpy.trainers.optimizers import Descent, has_fused_optimizer
from easeml_plpy.trainers.rows_of_numbers import RowsOfNumbers

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""The settings that torch's optimisers have by default."""
Slots = dict[str, torch.Tensor]
"""What a torch optimiser keeps of a parameter, by name; `step` counts."""


class StackedOptimizer:
    """Optimisers of one kind over rows of weights. `slots[i]` holds what that of network i keeps of each parameter,
    in order; nothing before its first step."""

    def __init__(self, descents: Sequence[Descent], layout: RowsOfNumbers, slots: Sequence[Sequence[Slots]]) -> None:
        self._kind, self._layout = descents[0].optimizer, layout
        device = layout.device
        self._decay = torch.tensor([[each.weight_decay] for each in descents], device=device)
        self._momentum = torch.tensor([[each.momentum] for each in descents], device=device)
        self._has_decay, self._has_momentum = bool(self._decay.any()), bool(self._momentum.any())
        self._names = ("momentum_buffer",) if self._kind == "sgd" else ("exp_avg", "exp_avg_sq")
        self._kept = [layout.filled([[each.get(name) for each in row] for row in slots]) for name in self._names]
        self._steps = [_n_steps(row).to(device) for row in slots]
        self._moved = layout.zeros()
        self._is_fused = has_fused_optimizer(self._kind, device.type, torch.__version__)

    @torch.no_grad()
    def step(self, weights: torch.Tensor, gradients: torch.Tensor, rates: torch.Tensor) -> None:
        """Change weights by gradients, both (k, parameters), at rates (k, 1); gradients are of no use afterwards."""
        if self._has_decay:
            if self._kind == "adamw":
                weights.mul_(1 - rates * self._decay)
            else:
                gradients.addcmul_(weights, self._decay)
        weights.addcmul_(self._direction(gradients), rates)

    def slots(self, place: int) -> list[Slots]:
        """Return what the optimiser of the network in that place keeps now, for each parameter."""
        if self._kind == "sgd":
            if not self._momentum[place]:
                return []
            return [{self._names[0]: part} for part in self._layout.parts(self._kept[0], place)]
        first, second = (self._layout.parts(kept, place) for kept in self._kept)
        step = self._steps[place]
        return [
            {"step": step.clone(), "exp_avg": mean, "exp_avg_sq": square}
            for mean, square in zip(first, second, strict=True)
        ]

    def _direction(self, gradients: torch.Tensor) -> torch.Tensor:
        """Return the step of rate 1."""
        if self._kind == "sgd":
            if not self._has_momentum:
                return gradients.neg_()
            return torch.neg(self._kept[0].mul_(self._momentum).add_(gradients))
        self._moved.zero_()
        moved, wanted = list(self._moved), list(gradients)
        means, squares = map(list, self._kept)
        adam(
            moved, wanted, means, squares, [], self._steps, foreach=False, fused=self._is_fused, amsgrad=False,
            maximize=False, beta1=BETAS[0], beta2=BETAS[1], lr=1.0, weight_decay=0.0, eps=EPSILON,
        )  # fmt: skip
        return self._moved


def _n_steps(slots: Sequence[Slots]) -> torch.Tensor:
    """Return a copy of the count of steps, the same for all parameters of a network."""
    known = [each["step"] for each in slots if "step" in each]
    return known[0].detach().clone() if known else torch.zeros(())
