"""The reader and the writer of seq2seq."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class ReadAndWrite(nn.Module):
    """From series (n, steps, numbers) to flattened series (n, n_outputs)."""

    def __init__(self, n_in: int, output_shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        self._n_steps, n_out = output_shape
        self.reader = nn.GRU(n_in, width, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * width, width)
        self.keys = nn.Linear(2 * width, width, bias=False)
        self.writer = nn.GRUCell(n_out + 2 * width, width)
        self.last = nn.Linear(3 * width, n_out)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        read, ends = self.reader(rows)
        memory = torch.tanh(self.bridge(torch.cat([ends[0], ends[1]], dim=1)))
        keys = self.keys(read)
        written = rows.new_zeros(len(rows), self.last.out_features)
        steps = []
        for _ in range(self._n_steps):
            seen = functional.scaled_dot_product_attention(memory.unsqueeze(1), keys, read).squeeze(1)
            memory = self.writer(torch.cat([written, seen], dim=1), memory)
            written = self.last(torch.cat([memory, seen], dim=1))
            steps.append(written)
        return torch.stack(steps, dim=1).flatten(1)
