"""Torch modules for networks for series.

All take (n, steps) or (n, steps, channels). If `is_unequal`, the last channel is 1 for existing steps and 0 behind the
last. A batch is cut to its longest series, and the padding of the others changes no answer.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from easeml_plpy.architectures.series.design import Tokens


class Steps(NamedTuple):
    """The steps of a batch (n, steps, channels), and how many each series has, int64 (n,); None: all."""

    values: torch.Tensor
    lengths: torch.Tensor | None

    @property
    def is_there(self) -> torch.Tensor | None:
        """Which steps exist, bool (n, steps); None: all."""
        if self.lengths is None:
            return None
        return torch.arange(self.values.shape[1], device=self.values.device) < self.lengths[:, None]

    def last_of(self, made: torch.Tensor) -> torch.Tensor:
        """Return, of outputs (n, steps, width), those of each series' last step."""
        if self.lengths is None:
            return made[:, -1]
        return made[torch.arange(len(made), device=made.device), self.lengths - 1]

    def mean_of(self, made: torch.Tensor) -> torch.Tensor:
        """Return the mean of outputs (n, steps, width) over each series' steps."""
        is_there = self.is_there
        if is_there is None or self.lengths is None:
            return made.mean(dim=1)
        return (made * is_there.unsqueeze(2)).sum(dim=1) / self.lengths.unsqueeze(1)


def steps_of(rows: torch.Tensor, is_unequal: bool) -> Steps:
    """Return the steps of rows."""
    if not is_unequal:
        return Steps(rows.unsqueeze(2) if rows.dim() == 2 else rows, None)
    lengths = rows[:, :, -1].sum(dim=1).long().clamp(min=1)
    return Steps(rows[:, : int(lengths.max()), :-1], lengths)


class Recurrent(nn.Module):
    """Recurrent layers, and a linear one over the final state of the last, of each direction at its own end."""

    def __init__(self, layers: nn.RNNBase, dropout: float, n_outputs: int, *, is_unequal: bool = False) -> None:
        super().__init__()
        self.layers, self.dropout = layers, nn.Dropout(dropout)
        self._n_directions = 2 if layers.bidirectional else 1
        self._is_unequal = is_unequal
        self.output = nn.Linear(self._n_directions * layers.hidden_size, n_outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        steps, lengths = steps_of(rows, self._is_unequal)
        given = steps if lengths is None else pack_padded_sequence(steps, lengths.cpu(), True, enforce_sorted=False)
        _, kept = self.layers(given)
        ends = kept[0] if isinstance(kept, tuple) else kept
        last = torch.cat(list(ends[-self._n_directions :]), dim=1)
        outputs: torch.Tensor = self.output(self.dropout(last))
        return outputs


class Transformer(nn.Module):
    """An encoder over tokens of several steps each, with learnt positions; the mean of its outputs answers."""

    def __init__(
        self, tokens: Tokens, encoder: nn.TransformerEncoder, width: int, n_outputs: int, *, is_unequal: bool = False
    ) -> None:
        super().__init__()
        self._tokens, self._is_unequal = tokens, is_unequal
        self.embedding = nn.Linear(tokens.n_steps * tokens.n_channels, width)
        self.positions = nn.Parameter(torch.empty(tokens.n_tokens, width).normal_(std=0.02))
        self.encoder, self.output = encoder, nn.Linear(width, n_outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        steps = steps_of(rows, self._is_unequal)
        of_token = self._tokens.n_steps
        n_tokens = -(-steps.values.shape[1] // of_token)
        padded = functional.pad(steps.values, (0, 0, 0, n_tokens * of_token - steps.values.shape[1]))
        embedded = self.embedding(padded.reshape(len(rows), n_tokens, -1)) + self.positions[:n_tokens]
        tokens = Steps(embedded, None if steps.lengths is None else -(-steps.lengths // of_token))
        is_there = tokens.is_there
        made = self.encoder(embedded, src_key_padding_mask=None if is_there is None else ~is_there)
        outputs: torch.Tensor = self.output(tokens.mean_of(made))
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

    def __init__(self, blocks: list[CausalBlock], width: int, n_outputs: int, *, is_unequal: bool = False) -> None:
        super().__init__()
        self.blocks, self.output = nn.Sequential(*blocks), nn.Linear(2 * width, n_outputs)
        self._is_unequal = is_unequal

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        steps = steps_of(rows, self._is_unequal)
        made = self.blocks(steps.values.transpose(1, 2)).transpose(1, 2)  # no step sees a later one, also what fills up
        outputs: torch.Tensor = self.output(torch.cat([steps.last_of(made), steps.mean_of(made)], dim=1))
        return outputs
