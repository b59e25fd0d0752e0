"""Torch modules for the layers of networks for images."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from easeml_plpy.architectures.images.layers import (
    Branches,
    Chain,
    Conv,
    Dense,
    Dropout,
    Layer,
    MaxPool,
    Residual,
    Shape,
    Shrink,
)
from easeml_plpy.architectures.images.pictures import Picture


def network(layers: Chain, shape: Shape) -> nn.Sequential:
    """Return the chain as a module for inputs of a shape, with weights drawn for ReLU (He et al., 2015)."""
    made = nn.Sequential(
        *(_module(layer, before) for layer, before in zip(layers.layers, layers.shapes(shape), strict=False))
    )
    for module in made.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return made


def _module(layer: Layer, shape: Shape) -> nn.Module:
    match layer:
        case Conv():
            return _convolution(layer, shape)
        case MaxPool():
            return nn.MaxPool2d(3, layer.stride, padding=1)
        case Shrink():
            return nn.AvgPool2d(layer.kernel(shape), ceil_mode=True)
        case Dense():
            units = nn.Linear(shape[0] * shape[1] * shape[2], layer.n_units)
            return nn.Sequential(nn.Flatten(), units, *([nn.ReLU()] if layer.has_activation else []))
        case Dropout():
            return nn.Dropout(layer.share)
        case Chain():
            return network(layer, shape)
        case Branches():
            return SideBySide([network(part, shape) for part in layer.parts])
        case Residual():
            fitted = layer.shortcut(shape)
            return Shortcut(network(layer.inner, shape), _convolution(fitted, shape) if fitted else nn.Identity())


def _convolution(layer: Conv, shape: Shape) -> nn.Sequential:
    parts: list[nn.Module] = [
        nn.Conv2d(
            shape[0], layer.n_maps, layer.kernel, layer.stride, padding=layer.kernel // 2, bias=not layer.has_norm
        )
    ]
    parts += [BatchNorm(layer.n_maps)] if layer.has_norm else []
    parts += [nn.ReLU()] if layer.has_activation else []
    return nn.Sequential(*parts)


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation that uses its learnt statistics if a batch has only one number of each map, which has no
    spread.

    The last batch of a partition may be a single row.
    """

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, channels, height, width)."""
        if rows.numel() > rows.shape[1]:
            return super().forward(rows)
        return functional.batch_norm(rows, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class SideBySide(nn.Module):
    """Several modules over one input, their maps one after another."""

    def __init__(self, parts: list[nn.Sequential]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, channels of all, height, width)."""
        return torch.cat([part(rows) for part in self.parts], dim=1)


class Shortcut(nn.Module):
    """Adds what a module makes of an input to the input, fitted to its shape."""

    def __init__(self, inner: nn.Module, fitted: nn.Module) -> None:
        super().__init__()
        self.inner, self.fitted = inner, fitted

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, channels, height, width)."""
        return torch.relu(self.inner(rows) + self.fitted(rows))


class ToPicture(nn.Module):
    """Rows of a dataset as (n, channels, height, width)."""

    def __init__(self, picture: Picture) -> None:
        super().__init__()
        self._picture = picture

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, channels, height, width)."""
        if self._picture.is_flat:
            return rows.unsqueeze(1)
        return rows.permute(0, 3, 1, 2).contiguous() if self._picture.has_channels_last else rows
