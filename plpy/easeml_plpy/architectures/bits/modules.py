"""Torch modules for networks over bits."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from easeml_plpy.architectures.bits.design import N_BITS, N_WRITTEN, Reading


def bits_of(numbers: torch.Tensor) -> torch.Tensor:
    """Return the bits (..., numbers * 16) of numbers (..., numbers) as -1 and 1, the sign first."""
    words = numbers.to(torch.bfloat16).view(torch.int16).to(torch.int32)
    places = torch.arange(N_BITS - 1, -1, -1, device=numbers.device, dtype=torch.int32)
    bits = (words.unsqueeze(-1) >> places) & 1
    return (2 * bits - 1).flatten(-2).to(torch.float32)


class BitReader(nn.Module):
    """A GRU over the bits of an input; its final state represents the input."""

    def __init__(self, reading: Reading, width: int, dropout: float) -> None:
        super().__init__()
        self._reading = reading
        self.layers, self.dropout = nn.GRU(reading.n_bits, width, batch_first=True), nn.Dropout(dropout)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, width)."""
        _, ends = self.layers(self._objects(rows) if self._reading.n_own is not None else self._steps(rows))
        kept: torch.Tensor = self.dropout(ends[-1])
        return kept

    def _steps(self, rows: torch.Tensor) -> torch.Tensor:
        n_steps, n_numbers, _ = self._reading
        flat = rows.flatten(1)
        filled = functional.pad(flat, (0, n_steps * n_numbers - flat.shape[1]))
        return bits_of(filled.view(len(rows), n_steps, n_numbers))

    def _objects(self, rows: torch.Tensor) -> torch.Tensor:
        n_own = self._reading.n_own
        lengths = rows[:, :, n_own].sum(dim=1).long().clamp(min=1)
        rows = rows[:, : int(lengths.max())]
        bits = bits_of(torch.cat([rows[:, :, :n_own], rows[:, :, n_own + 1 :]], dim=2))  # type: ignore[operator]
        packed: torch.Tensor = pack_padded_sequence(bits, lengths.cpu(), True, enforce_sorted=False)  # type: ignore[assignment]
        return packed


class BitClassifier(nn.Module):
    """A reader of bits, and a linear layer over what it read."""

    def __init__(self, reader: BitReader, width: int, n_outputs: int) -> None:
        super().__init__()
        self.reader, self.output = reader, nn.Linear(width, n_outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        outputs: torch.Tensor = self.output(self.reader(rows))
        return outputs


class BitAutoencoder(nn.Module):
    """A reader of bits, and a writer: each output number is composed of bits, the first of which counts half of the
    range from -RANGE to RANGE, the next a quarter, and so on.
    """

    RANGE = 8.0
    shares: torch.Tensor

    def __init__(self, reader: BitReader, width: int, n_outputs: int) -> None:
        super().__init__()
        self.reader = reader
        self.hidden = nn.Linear(width, 2 * width)
        self.bits = nn.Linear(2 * width, n_outputs * N_WRITTEN)
        shares = 2 * self.RANGE * 0.5 ** torch.arange(1, N_WRITTEN + 1, dtype=torch.float32)
        self.register_buffer("shares", shares, persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        bits = torch.sigmoid(self.bits(torch.relu(self.hidden(self.reader(rows)))))
        written: torch.Tensor = bits.view(len(rows), -1, N_WRITTEN) @ self.shares - self.RANGE
        return written
