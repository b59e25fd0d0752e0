"""pix2pix (Isola et al., 2017): a U-Net, and a critic of patches that also sees the input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easeml_plpy.architectures.size import Size
from easeml_plpy.architectures.tensors.critic import critic_size
from easeml_plpy.architectures.tensors.design import Levels, recovery_architecture
from easeml_plpy.architectures.tensors.unet import unet_size

if TYPE_CHECKING:
    from torch import nn


def build_pix2pix(levels: Levels) -> nn.Module:
    """Return the generator and its critic."""
    from easeml_plpy.architectures.tensors.adversaries import Adversaries

    return Adversaries(levels, has_skips=True, sees_input=True)


def pix2pix_size(levels: Levels) -> Size:
    """Return the size of both."""
    n_channels = levels.wanted.n_channels + levels.given.n_channels
    return unet_size(levels) + critic_size(n_channels, levels)


PIX2PIX = recovery_architecture(
    "pix2pix",
    "U-Net whose pictures have to pass for real ones before a critic that sees what went in",
    build_pix2pix,
    pix2pix_size,
    trainer="adversarial",
)
