"""A generator that a critic trains (Goodfellow et al., 2014): an auto-encoder trained until its pictures pass for real
ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.tensors.autoencoder import autoencoder_size
from easeml_plpy.architectures.tensors.critic import critic_size
from easeml_plpy.architectures.tensors.design import Levels, recovery_architecture

if TYPE_CHECKING:
    from torch import nn


def build_gan(levels: Levels) -> nn.Module:
    """Return the generator and its critic."""
    from easeml_plpy.architectures.tensors.adversaries import Adversaries

    return Adversaries(levels, has_skips=False, sees_input=False)


def gan_size(levels: Levels) -> Size:
    """Return the size of both."""
    n_channels = levels.wanted.n_channels
    return autoencoder_size(levels) + critic_size(n_channels, levels)


GAN = recovery_architecture(
    "gan",
    "auto-encoder whose pictures have to pass for real ones before a critic",
    build_gan,
    gan_size,
    trainer="adversarial",
)
