"""The reader and the writer of seq2seq."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from easeml_plpy.architectures.series.modules import Steps, steps_of


class ReadAndWrite(nn.Module):
    """From series (n, steps, numbers) to flattened series (n, n_outputs); those read may be of unequal length
    (series/modules.py)."""

    def __init__(self, n_in: int, output_shape: tuple[int, ...], width: int, *, is_unequal: bool = False) -> None:
        super().__init__()
        self._n_steps, n_out = output_shape
        self._is_unequal = is_unequal
        self.reader = nn.GRU(n_in, width, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * width, width)
        self.keys = nn.Linear(2 * width, width, bias=False)
        self.writer = nn.GRUCell(n_out + 2 * width, width)
        self.last = nn.Linear(3 * width, n_out)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        steps = steps_of(rows, self._is_unequal)
        read, ends = self._read(steps)
        is_there = None if steps.is_there is None else steps.is_there.unsqueeze(1)
        memory = torch.tanh(self.bridge(torch.cat([ends[0], ends[1]], dim=1)))
        keys = self.keys(read)
        written = rows.new_zeros(len(rows), self.last.out_features)
        series = []
        for _ in range(self._n_steps):
            seen = functional.scaled_dot_product_attention(memory.unsqueeze(1), keys, read, is_there).squeeze(1)
            memory = self.writer(torch.cat([written, seen], dim=1), memory)
            written = self.last(torch.cat([memory, seen], dim=1))
            series.append(written)
        return torch.stack(series, dim=1).flatten(1)

    def _read(self, steps: Steps) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the reader's output at each step, and its states at both ends of a series."""
        if steps.lengths is None:
            read, ends = self.reader(steps.values)
        else:
            packed, ends = self.reader(
                pack_padded_sequence(steps.values, steps.lengths.cpu(), True, enforce_sorted=False)
            )
            read, _ = pad_packed_sequence(packed, True)
        return read, ends
