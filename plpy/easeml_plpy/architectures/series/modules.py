"""Modules of torch that networks for series are made of. All take (n, steps) or (n, steps, channels)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from easeml_plpy.architectures.series.design import Tokens


def steps_of(rows: torch.Tensor) -> torch.Tensor:
    """Return rows as (n, steps, channels)."""
    return rows.unsqueeze(2) if rows.dim() == 2 else rows


class Recurrent(nn.Module):
    """Recurrent layers, and a linear one over what the last keeps at the end, of each direction at its own end."""

    def __init__(self, layers: nn.RNNBase, dropout: float, n_outputs: int) -> None:
        super().__init__()
        self.layers, self.dropout = layers, nn.Dropout(dropout)
        self._n_directions = 2 if layers.bidirectional else 1
        self.output = nn.Linear(self._n_directions * layers.hidden_size, n_outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        _, kept = self.layers(steps_of(rows))
        ends = kept[0] if isinstance(kept, tuple) else kept
        last = torch.cat(list(ends[-self._n_directions :]), dim=1)
        outputs: torch.Tensor = self.output(self.dropout(last))
        return outputs


class Transformer(nn.Module):
    """An encoder over tokens of several steps each, with learnt positions; the mean of its outputs answers."""

    def __init__(self, tokens: Tokens, encoder: nn.TransformerEncoder, width: int, n_outputs: int) -> None:
        super().__init__()
        self._tokens = tokens
        self.embedding = nn.Linear(tokens.n_steps * tokens.n_channels, width)
        self.positions = nn.Parameter(torch.empty(tokens.n_tokens, width).normal_(std=0.02))
        self.encoder, self.output = encoder, nn.Linear(width, n_outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        steps, n_tokens = steps_of(rows), self._tokens.n_tokens
        padded = functional.pad(steps, (0, 0, 0, n_tokens * self._tokens.n_steps - steps.shape[1]))
        embedded = self.embedding(padded.reshape(len(rows), n_tokens, -1)) + self.positions
        outputs: torch.Tensor = self.output(self.encoder(embedded).mean(dim=1))
        return outputs


class CausalBlock(nn.Module):
    """Two convolutions over steps that see no later step, added to their inputs."""

    def __init__(self, n_inputs: int, width: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self._reach = (kernel - 1) * dilation
        self.first = nn.Conv1d(n_inputs, width, kernel, dilation=dilation)
        self.second = nn.Conv1d(width, width, kernel, dilation=dilation)
        self.fitted = nn.Conv1d(n_inputs, width, 1) if n_inputs != width else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, width, steps) of (n, channels, steps)."""
        made = rows
        for convolution in (self.first, self.second):
            made = self.dropout(torch.relu(convolution(functional.pad(made, (self._reach, 0)))))
        return torch.relu(made + self.fitted(rows))


class TemporalConvolutions(nn.Module):
    """Causal blocks, and a linear layer over the last step and the mean of all."""

    def __init__(self, blocks: list[CausalBlock], width: int, n_outputs: int) -> None:
        super().__init__()
        self.blocks, self.output = nn.Sequential(*blocks), nn.Linear(2 * width, n_outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        made = self.blocks(steps_of(rows).transpose(1, 2))
        outputs: torch.Tensor = self.output(torch.cat([made[:, :, -1], made.mean(dim=2)], dim=1))
        return outputs
