"""Learning curves as lines of an SVG: rows in, coordinates out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 720, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 36
N_COLOURS = 8
MOST_LINES = 60


@dataclass(frozen=True)
class Line:
    """A trial: its architecture, the number of its colour, and its points as an SVG polyline has them."""

    trial_number: int
    architecture: str
    colour: int
    points: str


@dataclass(frozen=True)
class Tick:
    """A place on an axis, with its label."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Lines, ticks of both axes, and the architectures with their colours."""

    lines: tuple[Line, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    legend: tuple[tuple[str, int], ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def chart_of(rows: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Return the chart of rows of easeml.learning_curves; None where nothing was measured."""
    known = [row for row in rows if row["validation_metric"] is not None and row["elapsed_seconds"] is not None]
    if not known:
        return None
    most = max(max(row["elapsed_seconds"] for row in known), 1.0)
    low, high = (pick(row["validation_metric"] for row in known) for pick in (min, max))
    if high <= low:
        low, high = low - 0.5, high + 0.5
    names = list(dict.fromkeys(row["architecture"] for row in known))
    colours = {name: place % N_COLOURS for place, name in enumerate(names)}
    by_trial: dict[int, list[Mapping[str, Any]]] = {}
    for row in sorted(known, key=lambda row: row["epoch"]):
        by_trial.setdefault(row["trial_number"], []).append(row)

    def point(row: Mapping[str, Any]) -> str:
        return f"{_x(row['elapsed_seconds'] / most):.1f},{_y((row['validation_metric'] - low) / (high - low)):.1f}"

    lines = tuple(
        Line(number, of[0]["architecture"], colours[of[0]["architecture"]], " ".join(map(point, of)))
        for number, of in list(by_trial.items())[:MOST_LINES]
    )
    across = tuple(Tick(_x(share), f"{most * share:.3g} s") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    up = tuple(Tick(_y(share), f"{low + (high - low) * share:.4g}") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    return Chart(lines, across, up, tuple(colours.items()))


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
