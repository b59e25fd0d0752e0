"""Layers of many networks of one shape as one computation: the numbers of all of them have a leading axis, one place
for each network.

symbol   meaning
k        networks
n        rows of a batch, each network its own

Common layers are written out, as operations on batches of matrices: `torch.func.vmap` takes up to three times as long
for them. Any other layer goes through vmap. Dropout draws what each network alone would draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional

from easeml_plpy.architectures.images.augmentation import Crop, Flip
from easeml_plpy.architectures.tables.residual_block import ResidualBlock
from easeml_plpy.architectures.tables.table_embedding import WideAndDeep

Layer: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
Parameters: TypeAlias = Mapping[str, torch.Tensor]
"""By the name in the network, each of shape (k, *shape)."""

OF_ITS_BATCH = (nn.BatchNorm2d, Flip, Crop, nn.RNNBase, nn.MultiheadAttention)
ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.GELU, nn.Identity)


class NotStackable(Exception):
    """A layer cannot be computed for many networks at once."""


class StackedNetwork:
    """Networks of one shape, called on (k, n, *input_shape)."""

    def __init__(
        self, modules: Sequence[nn.Module], parameters: Parameters, generators: Sequence[torch.Generator]
    ) -> None:
        self._modules, self._parameters, self._generators = modules, parameters, generators
        # A network without dropout may lack the layers of one that has some.
        widest = max(modules, key=lambda module: sum(1 for _ in module.modules()))
        self._call = self._layer(widest, "")

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (k, n, ...): what each network puts out for its own rows."""
        return self._call(inputs)

    def _layer(self, module: nn.Module, name: str) -> Layer:
        """Return what a module of this name does to the rows of all networks. Raises NotStackable."""
        match module:
            case nn.Sequential():
                return _one_after_another(
                    [self._layer(child, f"{name}{key}.") for key, child in module.named_children()]
                )
            case nn.Linear():
                return self._linear(name)
            case nn.LayerNorm() if module.elementwise_affine and len(module.normalized_shape) == 1:
                return self._layer_norm(module, name)
            case nn.Dropout():
                return self._dropout(name)
            case nn.Flatten() if (module.start_dim, module.end_dim) == (1, -1):
                return partial(torch.flatten, start_dim=2)
            case ResidualBlock():
                inner = self._layer(module.inner, f"{name}inner.")
                return lambda rows: rows + inner(rows)
            case WideAndDeep():
                return self._wide_and_deep(module, name)
        return module if isinstance(module, ELEMENTWISE) else self._any(module, name)

    def _linear(self, name: str) -> Layer:
        # Views are taken anew at each step: one that is older than the last change of its numbers has a slow gradient.
        weight, bias = self._parameters[f"{name}weight"], self._parameters.get(f"{name}bias")
        if bias is None:
            return lambda rows: torch.bmm(rows, weight.mT)
        return lambda rows: torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)

    def _layer_norm(self, module: nn.LayerNorm, name: str) -> Layer:
        scale, shift = self._parameters[f"{name}weight"], self._parameters[f"{name}bias"]

        def call(rows: torch.Tensor) -> torch.Tensor:
            normal = functional.layer_norm(rows, module.normalized_shape, eps=module.eps)
            return torch.addcmul(shift.unsqueeze(1), normal, scale.unsqueeze(1))

        return call

    def _wide_and_deep(self, module: WideAndDeep, name: str) -> Layer:
        first, deep, wide = (self._layer(getattr(module, part), f"{name}{part}.") for part in ("first", "deep", "wide"))

        def call(rows: torch.Tensor) -> torch.Tensor:
            embedded = first(rows)
            return deep(embedded) + wide(embedded)

        return call

    def _dropout(self, name: str) -> Layer:
        shares = [_dropped_share(module, name.removesuffix(".")) for module in self._modules]
        if not any(shares):
            return nn.Identity()
        if any(weights.device.type != "cpu" for weights in self._parameters.values()):
            raise NotStackable("on a GPU dropout draws from a stream of numbers that cannot be taken apart")

        def call(rows: torch.Tensor) -> torch.Tensor:
            kept = torch.ones_like(rows)
            for mask, share, generator in zip(kept, shares, self._generators, strict=True):
                if share:
                    mask.bernoulli_(1 - share, generator=generator).div_(1 - share)
            return rows * kept

        return call

    def _any(self, module: nn.Module, name: str) -> Layer:
        """Return a layer that is computed network by network inside one operation."""
        if any(_dropped_share(network, f"{name}{inner}") for network in self._modules for inner in _dropouts(module)):
            raise NotStackable(f"{type(module).__name__} draws numbers inside")
        if any(isinstance(layer, OF_ITS_BATCH) for layer in module.modules()):
            raise NotStackable(f"{type(module).__name__} computes a batch of one network only")
        if any(isinstance(layer, nn.EmbeddingBag) for layer in module.modules()):
            raise NotStackable("torch sums vectors of tokens for one network at a time")

        def alone(parameters: Parameters, rows: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = functional_call(module, dict(parameters), (rows,))
            return made

        stacked = {key.removeprefix(name): value for key, value in self._parameters.items() if key.startswith(name)}
        return partial(vmap(alone), stacked)


def _one_after_another(layers: Sequence[Layer]) -> Layer:
    def call(rows: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            rows = layer(rows)
        return rows

    return call


def _dropouts(module: nn.Module) -> list[str]:
    """Return the names of the layers inside that drop numbers."""
    return [name for name, layer in module.named_modules() if isinstance(layer, nn.Dropout)]


def _dropped_share(module: nn.Module, name: str) -> float:
    """Return the share that a network's layer drops; 0 if it has no such layer."""
    layer = dict(module.named_modules()).get(name)
    return layer.p if isinstance(layer, nn.Dropout) else 0.0
