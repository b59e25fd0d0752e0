"""Charts of the tables."""

from __future__ import annotations

from typing import Any

import altair as alt

from easeml_experiments.tables.catalogue import TABLES
from easeml_experiments.tables.comparison import RANKED, Results, score_rows


def plots(results: Results) -> dict[str, Any]:
    """Return scores beside the best of the defaults, in its standard errors: right of 0 is better. Where no rival ran
    there is nothing to draw."""
    points = [point for row in score_rows(results) for point in _points(row)]
    if not points:
        return {}
    rule = alt.Chart(alt.InlineData([{"x": -1}])).mark_rule(strokeDash=[4, 4], color="gray").encode(x="x:Q")
    marks = (
        alt.Chart(alt.InlineData(points))
        .mark_point(filled=True, size=60, clip=True)
        .encode(
            x=alt.X(
                "errors:Q", title="better than the best default by so many standard errors",
                scale=alt.Scale(domain=[-15, 15]),
            ),
            y=alt.Y("table:N", title=None, sort=list(TABLES)),
            color=alt.Color("by:N", title=None, sort=list(RANKED)),
            shape=alt.Shape("by:N", title=None, sort=list(RANKED)),
        )
    )  # fmt: skip
    return {"scores": alt.layer(rule, marks).properties(width=480)}


def _points(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a point for each score of a table, held within 15 standard errors."""
    if not row["best"] or not row[f"{row['best']}_error"]:
        return []
    sign = 1 if TABLES[row["table"]].is_higher_better else -1
    zero, error = row[row["best"]], row[f"{row['best']}_error"]
    return [
        {"table": row["table"], "by": by, "errors": max(-15.0, min(15.0, sign * (row[by] - zero) / error))}
        for by in RANKED
        if row[by] is not None
    ]
