"""A generator of pictures with its critic, as one torch module, so that their weights are stored and hop together."""

from __future__ import annotations

import torch
from torch import nn

from easeml_plpy.architectures.images.pictures import Picture
from easeml_plpy.architectures.tensors.critic import critic_maps
from easeml_plpy.architectures.tensors.design import KERNEL, Levels
from easeml_plpy.architectures.tensors.modules import PictureToPicture, resized


class Adversaries(nn.Module):
    """`generator` answers. `critic` says of each patch of a picture whether it is real; with `sees_input` beside the
    picture that went in."""

    def __init__(self, levels: Levels, *, has_skips: bool, sees_input: bool) -> None:
        super().__init__()
        self._levels, self._sees_input = levels, sees_input
        self.generator = PictureToPicture(levels, has_skips=has_skips)
        n_given = levels.given.n_channels if sees_input else 0
        self.critic = critic_of(n_given + levels.wanted.n_channels, levels)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        made: torch.Tensor = self.generator(rows)
        return made

    def judged(self, rows: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Return how real the critic takes each patch to be, around 1 for real ones and 0 for others."""
        target = self._levels.wanted
        maps = maps_of(outputs, target)
        if self._sees_input:
            given = resized(self.generator.picture(rows), (target.height, target.width))
            maps = torch.cat([given, maps], dim=1)
        verdicts: torch.Tensor = self.critic(maps)
        return verdicts


def critic_of(n_channels: int, levels: Levels) -> nn.Sequential:
    """Return convolutions that halve the sides as often as the generator does, twice at most, and judge patches.

    No batch normalisation: it would let the critic tell a batch of real pictures from one of others.
    """
    layers: list[nn.Module] = []
    before = n_channels
    for n_maps in critic_maps(levels):
        layers += [nn.Conv2d(before, n_maps, KERNEL, stride=2, padding=KERNEL // 2), nn.LeakyReLU(0.2)]
        before = n_maps
    return nn.Sequential(*layers, nn.Conv2d(before, 1, KERNEL, padding=KERNEL // 2))


def maps_of(outputs: torch.Tensor, picture: Picture) -> torch.Tensor:
    """Return flattened pictures (n, numbers) as maps (n, channels, height, width)."""
    if picture.has_channels_last:
        return outputs.view(-1, picture.height, picture.width, picture.n_channels).permute(0, 3, 1, 2)
    return outputs.view(-1, picture.n_channels, picture.height, picture.width)
