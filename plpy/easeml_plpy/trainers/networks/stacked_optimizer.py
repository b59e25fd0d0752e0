"""Steps of the optimisers of many networks: what torch's own do, with a rate and a decay for each network.

Numbers of all parameters of a network lie in one row, (k, parameters). Torch's optimisers take one learning rate and
one count of steps for all that they are given; asked row by row, they take a quarter of the whole step for it.

Adam as Kingma and Ba (2015) write it, with the decoupled decay of Loshchilov and Hutter (2019) for adamw:

here          paper                shape              meaning
weights       theta                (k, parameters)    what the step changes
gradients     g                    (k, parameters)    of the step's batch
rates         alpha                (n_steps, k, 1)    learning rate of each step
means         m                    (k, parameters)    running mean of gradients; sgd's momentum lies there, too
squares       v                    (k, parameters)    running mean of their squares
step_sizes    -alpha / (1-beta1^t) (n_steps, k, 1)    the rate, with the correction of m's bias
roots         sqrt(1-beta2^t)      (n_steps, k, 1)    the correction of sqrt(v)'s bias
shrinks       1 - alpha*lambda     (n_steps, k, 1)    adamw: what a step leaves of the weights

    theta <- theta - alpha / (1-beta1^t) * m / (sqrt(v) / sqrt(1-beta2^t) + epsilon)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from easeml_plpy.trainers.networks.optimizers import Descent
from easeml_plpy.trainers.networks.stacked_matrix import RowsOfNumbers

BETA, BETA_OF_SQUARES, EPSILON = 0.9, 0.999, 1e-8
"""The settings that torch's Adam has by default (Kingma and Ba, 2015, algorithm 1)."""
Slots = dict[str, torch.Tensor]
"""What a torch optimiser keeps of a parameter, by name; `step` counts."""


class StackedOptimizer:
    """Optimisers of one kind over rows of weights. `slots[i]` holds the optimiser state of network i for each
    parameter, in order; empty before its first step.
    """

    def __init__(self, descents: Sequence[Descent], layout: RowsOfNumbers, slots: Sequence[Sequence[Slots]]) -> None:
        self._kind, self._layout = descents[0].optimizer, layout
        self._decay = torch.tensor([[descent.weight_decay] for descent in descents], device=layout.device)
        self._momentum = torch.tensor([[descent.momentum] for descent in descents], device=layout.device)
        self._has_decay, self._has_momentum = bool(self._decay.any()), bool(self._momentum.any())
        self._names = ("momentum_buffer",) if self._kind == "sgd" else ("exp_avg", "exp_avg_sq")
        self._kept = [layout.filled([[state.get(name) for state in row] for row in slots]) for name in self._names]
        self._n_done = torch.tensor([_n_steps(row) for row in slots], dtype=torch.float64)
        self._spare = layout.zeros()
        self._rates = self._shrinks = self._step_sizes = self._roots = torch.zeros(0)

    def begin(self, rates: torch.Tensor) -> None:
        """Get ready for as many steps as there are rates."""
        # In double precision: of 1 - 0.999^t the first steps would lose three of seven digits. Networks of one stack
        # may be at different steps t.
        steps = self._n_done + torch.arange(1, len(rates) + 1, dtype=torch.float64).unsqueeze(1)
        first, second = (1 - beta ** steps.unsqueeze(2) for beta in (BETA, BETA_OF_SQUARES))
        self._rates, self._shrinks = rates, 1 - rates * self._decay
        self._step_sizes, self._roots = -rates / first.to(rates), second.sqrt().to(rates)
        self._n_done = self._n_done + len(rates)

    @torch.no_grad()
    def step(self, number: int, weights: torch.Tensor, gradients: torch.Tensor) -> None:
        """Do one of these steps: change weights by gradients, which are of no use afterwards."""
        # adamw shrinks the weights themselves; adam and sgd add the decay to the gradient, as a penalty on |theta|^2.
        if self._has_decay and self._kind == "adamw":
            weights.mul_(self._shrinks[number])
        elif self._has_decay:
            gradients.addcmul_(weights, self._decay)
        if self._kind != "sgd":
            self._adam(number, weights, gradients)
        elif self._has_momentum:
            weights.addcmul_(self._kept[0].mul_(self._momentum).add_(gradients), self._rates[number], value=-1)
        else:
            weights.addcmul_(gradients, self._rates[number], value=-1)

    def _adam(self, number: int, weights: torch.Tensor, gradients: torch.Tensor) -> None:
        # On whole matrices and in place: what a small network's step costs is the number of operations.
        means, squares = self._kept
        means.lerp_(gradients, 1 - BETA)
        squares.mul_(BETA_OF_SQUARES).addcmul_(gradients, gradients, value=1 - BETA_OF_SQUARES)
        torch.sqrt(squares, out=self._spare).div_(self._roots[number]).add_(EPSILON)
        weights.addcmul_(torch.div(means, self._spare, out=self._spare), self._step_sizes[number])

    def slots(self, place: int) -> list[Slots]:
        """Return the present optimiser state of the network in that place, for each parameter."""
        if self._kind == "sgd":
            if not self._momentum[place]:  # torch keeps no buffer then, and the state must be that of the trial alone
                return []
            return [{self._names[0]: part} for part in self._layout.parts(self._kept[0], place)]
        means, squares = (self._layout.parts(kept, place) for kept in self._kept)
        step = self._n_done[place].to(self._layout.device, torch.float32)
        return [
            {"step": step, "exp_avg": mean, "exp_avg_sq": square} for mean, square in zip(means, squares, strict=True)
        ]


def _n_steps(slots: Sequence[Slots]) -> float:
    """Return the count of steps, the same for all parameters of a network."""
    return next((float(state["step"]) for state in slots if "step" in state), 0.0)
