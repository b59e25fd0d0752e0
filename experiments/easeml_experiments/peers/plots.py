"""Charts of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from easeml_experiments.peers.comparison import Run

METHODS = ["mop", "tasks", "ray-tune", "model-averaging", "data-parallel", "sequential"]


def plots(runs: Sequence[Run]) -> dict[str, Any]:
    """Draw wall times, and the learning curve of the best trial, as figures 7 (A, B) and 9 (A) have them."""
    shown = [run for run in runs if run.method in METHODS]
    return {"times": _times(shown), "learning_curves": _curves(shown)}


def _times(runs: Sequence[Run]) -> Any:
    import altair as alt

    rows = [
        {"panel": f"{run.network}, batch {run.batch_size}", "method": run.method, "part": part, "seconds": seconds}
        for run in runs
        for part, seconds in (
            ("training", run.measured.training_seconds),
            ("start-up", run.measured.seconds - run.measured.training_seconds),
        )
    ]
    bars = alt.Chart(alt.InlineData(rows)).mark_bar()
    return bars.encode(
        x=alt.X("mean(seconds):Q", title="seconds"),
        y=alt.Y("method:N", title=None, sort=METHODS),
        color=alt.Color("part:N", title=None, sort=["training", "start-up"]),
        order=alt.Order("part:N", sort="descending"),
        facet=alt.Facet("panel:N", title=None, columns=2),
    ).properties(width=280)


def _curves(runs: Sequence[Run]) -> Any:
    import altair as alt

    rows = [
        {"panel": f"{run.network}, batch {run.batch_size}", "method": run.method, "epoch": epoch, "error": min(errors)}
        for run in runs
        for epoch, errors in enumerate(zip(*run.measured.record.errors.values(), strict=True), 1)
    ]
    lines = alt.Chart(alt.InlineData(rows)).mark_line(point=True)
    return lines.encode(
        x=alt.X("epoch:O"),
        y=alt.Y("mean(error):Q", title="lowest validation error", scale=alt.Scale(zero=False)),
        color=alt.Color("method:N", title=None, sort=METHODS),
        facet=alt.Facet("panel:N", title=None, columns=2),
    ).properties(width=280, height=220)
