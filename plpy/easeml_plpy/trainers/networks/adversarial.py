"""Two networks that train against one another: a generator makes pictures, a critic tells them from real ones.

Each has parameters and slots of the optimiser of its own, all in one state: an optimiser leaves alone what has no
gradient, and each half of a step gives gradients to one of the two networks. Both networks hop and are replayed
together. The generator alone answers.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from easeml_plpy.architectures.tensors.adversaries import Adversaries
from easeml_plpy.trainers.contract import Blueprint
from easeml_plpy.trainers.networks.torch_trial import TorchTrial


class AdversarialTrial(TorchTrial):
    """A generator and its critic in training, least squares for both (Mao et al., 2017)."""

    def __init__(self, blueprint: Blueprint, module: nn.Module, *, n_steps_total: int) -> None:
        if not isinstance(module, Adversaries):
            raise TypeError(f"{blueprint.architecture.name} builds {type(module).__name__}, not adversaries")
        super().__init__(blueprint, module, n_steps_total=n_steps_total)
        self._adversaries = module
        self._closeness = blueprint.config.number("closeness")

    def gradients(self, network: nn.Module, batch: torch.Tensor, targets: torch.Tensor, weight: float) -> torch.Tensor:
        """Train the critic by a step of its own, then give the generator its gradients; return the squared error.

        The generator is to fool the critic, and to come close to what is wanted: `closeness` weighs the mean distance.
        """
        both = self._adversaries
        made = both.generator(batch)
        real, fake = both.judged(batch, targets), both.judged(batch, made.detach())
        critic_loss = functional.mse_loss(real, torch.ones_like(real)) + functional.mse_loss(
            fake, torch.zeros_like(fake)
        )
        critic_loss.backward()  # type: ignore[no-untyped-call]
        self.apply_gradients()
        judged = both.judged(batch, made)
        fooled = functional.mse_loss(judged, torch.ones_like(judged))
        (fooled + self._closeness * functional.l1_loss(made, targets)).backward()  # type: ignore[no-untyped-call]
        for parameter in both.critic.parameters():
            parameter.grad = None
        return functional.mse_loss(made, targets)
