"""Charts of plans in characters: slots over time, and cost over time along a frontier."""

from __future__ import annotations

from collections.abc import Sequence

from easeml_db.cli.search.run_snapshot import duration
from easeml_db.cli.terminal.statements import Row

WIDTH, HEIGHT = 60, 6


def slots_chart(stages: Sequence[Row], longest_seconds: float) -> str:
    """Draw the slots of a plan over time; `longest_seconds` is the width of the chart, so that charts compare."""
    most = max(row["n_slots"] for row in stages)
    height = min(HEIGHT, most)
    held = [_slots_at(stages, (column + 0.5) / WIDTH * longest_seconds) for column in range(WIDTH)]
    lines = []
    for level in range(height, 0, -1):
        least = most * (level - 1) / height
        label = str(most) if level == height else ""
        lines.append(f"{label:>6} |" + "".join("#" if n_slots > least else " " for n_slots in held).rstrip())
    return "\n".join([*lines, _axis(longest_seconds)])


def _slots_at(stages: Sequence[Row], seconds: float) -> int:
    """Return the slots held at a time."""
    for row in stages:
        if row["start_seconds"] <= seconds < row["start_seconds"] + row["seconds_mean"]:
            return int(row["n_slots"])
    return 0


def frontier_chart(points: Sequence[Row]) -> str:
    """Draw the cost of plans over the time that they take, both from 0."""
    longest, dearest = (max(row[name] for row in points) for name in ("seconds_mean", "cost_mean"))
    canvas = [[" "] * WIDTH for _ in range(2 * HEIGHT)]
    for row in points:
        column = min(WIDTH - 1, int(row["seconds_mean"] / longest * WIDTH))
        level = min(2 * HEIGHT - 1, int(row["cost_mean"] / (dearest or 1.0) * 2 * HEIGHT))
        canvas[2 * HEIGHT - 1 - level][column] = "*"
    labels = [f"{dearest:.2f}", *[""] * (2 * HEIGHT - 1)]
    lines = [f"{label:>8} |{''.join(line).rstrip()}" for label, line in zip(labels, canvas, strict=True)]
    return "\n".join([*lines, "  " + _axis(longest)])


def _axis(longest_seconds: float) -> str:
    end = duration(longest_seconds)
    return f"{'':>6} +{'-' * WIDTH}\n{'':>8}0{end:>{WIDTH - 1}}"
