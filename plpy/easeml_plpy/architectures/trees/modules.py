"""Torch modules for networks for trees. A batch is (n, objects, numbers + 1 + links): task.Objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import torch
from torch import nn

from easeml_plpy.columns.task import Objects


class Level(NamedTuple):
    """Objects of a batch at the same height: their places among all objects (m,), and those of the objects that they
    link to (m, links); the place behind the last stands for none.
    """

    places: torch.Tensor
    children: torch.Tensor


def levels_of(children: torch.Tensor, is_there: torch.Tensor) -> Iterator[Level]:
    """Yield the levels of trees from the leaves up: links (n, objects, links) to places from 1, 0 for none.

    An object is one higher than the highest object that it links to. Each comes after the one that links to it, so the
    height of a tree is at most the number of its objects.
    """
    n_trees, n_objects, _ = children.shape
    first = torch.arange(n_trees, device=children.device).view(-1, 1, 1) * n_objects
    flat = torch.where(children > 0, first + children - 1, n_trees * n_objects).flatten(0, 1)
    waiting = is_there.flatten()
    is_done = torch.cat([~waiting, waiting.new_ones(1)])
    while bool(waiting.any()):
        ready = waiting & is_done[flat].all(dim=1)
        places = ready.nonzero().squeeze(1)
        yield Level(places, flat[places])
        is_done[:-1] |= ready
        waiting = waiting & ~ready


class Cell(nn.Module):
    """The state of an object, from its numbers and the states of the objects that it links to."""

    n_states: ClassVar[int]


class RecursiveCell(Cell):
    """The state of an object: tanh of its numbers and of the states of its children (Socher et al., 2011)."""

    n_states = 1

    def __init__(self, objects: Objects, width: int) -> None:
        super().__init__()
        self.numbers = nn.Linear(objects.n_numbers, width)
        self.links = nn.Linear(objects.n_links * width, width, bias=False)

    def forward(self, numbers: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Return the states (1, m, width) of objects from those of their children (1, m, links, width)."""
        return torch.tanh(self.numbers(numbers) + self.links(states[0].flatten(1))).unsqueeze(0)


class LSTMCell(Cell):
    """The N-ary Tree-LSTM (Tai et al., 2015, section 3.2): each link has a gate that forgets, and own weights."""

    n_states = 2

    def __init__(self, objects: Objects, width: int) -> None:
        super().__init__()
        self._n_links, self._width = objects.n_links, width
        n_gates = 3 + objects.n_links
        self.numbers = nn.Linear(objects.n_numbers, n_gates * width)
        self.links = nn.Linear(objects.n_links * width, n_gates * width, bias=False)
        with torch.no_grad():
            self.numbers.bias[3 * width :] = 1.0  # at first nothing is forgotten

    def forward(self, numbers: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Return outputs and states of objects (2, m, width), from those of their children (2, m, links, width)."""
        gates = self.numbers(numbers) + self.links(states[0].flatten(1))
        given, shown, new, *forgotten = gates.split(self._width, dim=1)
        kept = torch.sigmoid(given) * torch.tanh(new)
        for link, gate in enumerate(forgotten):
            kept = kept + torch.sigmoid(gate) * states[1][:, link]
        return torch.stack([torch.sigmoid(shown) * torch.tanh(kept), kept])


class TreeNetwork(nn.Module):
    """A cell that goes from the leaves of trees to their roots, and a linear layer over what the roots put out."""

    def __init__(self, objects: Objects, cell: Cell, width: int, dropout: float, n_outputs: int) -> None:
        super().__init__()
        self._objects, self._width, self._n_states = objects, width, cell.n_states
        self.cell, self.dropout, self.output = cell, nn.Dropout(dropout), nn.Linear(width, n_outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, n_outputs)."""
        n_numbers = self._objects.n_numbers
        is_there = rows[:, :, n_numbers] > 0
        n_objects = max(int(is_there.sum(dim=1).max()), 1)
        rows, is_there = rows[:, :n_objects], is_there[:, :n_objects]
        numbers = rows[:, :, :n_numbers].flatten(0, 1)
        states = rows.new_zeros(self._n_states, len(numbers) + 1, self._width)
        for places, children in levels_of(rows[:, :, n_numbers + 1 :].long(), is_there):
            states = states.index_copy(1, places, self.cell(numbers[places], states[:, children]))
        roots = states[0, torch.arange(len(rows), device=rows.device) * n_objects]
        outputs: torch.Tensor = self.output(self.dropout(roots))
        return outputs
