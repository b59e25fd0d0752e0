"""Measures of the preset history: what the default costs where the past is right and where it misleads, and how far a
tenant may fall behind round robin with the same beliefs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from easeml_experiments.contract import Measure, at_least
from easeml_experiments.tenants.cells import MISLED
from easeml_experiments.tenants.judging import present
from easeml_experiments.tenants.matrices import Floats
from easeml_experiments.tenants.protocol import OWN_LOSS, Cell, Replayed
from easeml_experiments.tenants.replay_cache import ReplayCache


def named(cell: Cell) -> str:
    """Name a cell by its data and its history."""
    return f"{cell.data}, {cell.history}"


def misled(replays: ReplayCache) -> Iterator[Measure]:
    """Measure how many tenants fall behind, over all cells and in each."""
    cells = present(replays, MISLED)
    behind = [_behind(replays[cell]) for cell in cells]
    yield from _shares("all data and histories", np.concatenate(behind), 0.99)
    for cell, ratios in zip(cells, behind, strict=True):
        yield from _shares(named(cell), ratios, None)


def _behind(replayed: Replayed) -> Floats:
    """Return the cost until each tenant's own loss was OWN_LOSS, divided by that in round robin; all repeats."""
    own, in_turns = (
        np.concatenate([run.own_cost for run in replayed.runs[name] if run.own_cost is not None])
        for name in ("default", "default_in_turns")
    )
    ratios: Floats = own / in_turns
    return ratios


def _shares(where: str, ratios: Floats, least: float | None) -> Iterator[Measure]:
    for most, bound in ((1.5, None), (3.0, least)):
        title = f"default: tenants within {most:g} times round robin's cost to their own loss {OWN_LOSS:g}"
        share = float((ratios <= most + 1e-9).mean())
        yield Measure(title, where, None, share) if bound is None else at_least(title, where, None, share, bound)
    yield Measure("default: the same, the tenant farthest behind", where, None, float(ratios.max()))
