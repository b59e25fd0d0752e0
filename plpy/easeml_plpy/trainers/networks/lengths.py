"""Batches of series and trees of similar size, because padding a batch to its largest member wastes time."""

from __future__ import annotations

import torch

from easeml_plpy.columns.task import Objects

N_BATCHES_SORTED = 16
"""Rows of so many batches are sorted among themselves: enough to have batches of like sizes, few enough that batches
differ from pass to pass."""


def by_length(order: torch.Tensor, inputs: torch.Tensor, objects: Objects, batch_size: int, seed: int) -> torch.Tensor:
    """Return the rows (n,) of an order, grouped by similar size; the seed decides which batch comes when.

    The batch that is not full stays the last, so that all others keep their rows.
    """
    sizes = inputs[:, :, objects.n_numbers].sum(dim=1).to(order.device)
    parts = torch.split(order, batch_size * N_BATCHES_SORTED)
    ordered = torch.cat([part[torch.argsort(sizes[part], stable=True)] for part in parts])
    n_full = len(ordered) // batch_size
    generator = torch.Generator().manual_seed(seed)
    batches = ordered[: n_full * batch_size].view(n_full, batch_size)[torch.randperm(n_full, generator=generator)]
    return torch.cat([batches.flatten(), ordered[n_full * batch_size :]])
