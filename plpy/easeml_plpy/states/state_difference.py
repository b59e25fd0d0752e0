"""How two stored states of one trial differ."""

from __future__ import annotations

import torch

from easeml_plpy.states.checkpoint import load


def differing_tensors(one: bytes, other: bytes) -> dict[str, float | None]:
    """Return the tensors that differ between two payloads, with the largest absolute difference.

    None: only one of them has it, or their shapes or types differ.
    """
    mine, theirs = load(one).tensors, load(other).tensors
    return {
        name: _largest_difference(mine.get(name), theirs.get(name))
        for name in sorted(mine.keys() | theirs.keys())
        if name not in mine or name not in theirs or not _is_same(mine[name], theirs[name])
    }


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def _largest_difference(one: torch.Tensor | None, other: torch.Tensor | None) -> float | None:
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return None
    difference = float((one.double() - other.double()).abs().max())
    return difference if difference < float("inf") else None
