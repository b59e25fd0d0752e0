"""The input of a report: rows of the views, as sql/queries/report.sql reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from easeml_db.words.visible_text import visible_value

Row = Mapping[str, Any]
Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class RunRows:
    """A run as read at one instant; each field holds the rows of the query of that name.

    trials: best first. units: in the order of their starts. traffic: the only row of `run_traffic`. held_out: rows of
    functions about the best trial on held-out rows, by subject (cli/search/report_evaluation.py); empty if
    they were not called, or if `unmeasured` says why they return nothing. forecasts, plans: in the order in which they
    were made; stages: in that in which they began.
    """

    run: Row
    trials: Sequence[Row]
    units: Sequence[Row]
    curves: Sequence[Row]
    slots: Sequence[Row]
    events: Sequence[Row]
    traffic: Row
    held_out: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    unmeasured: str | None = None
    forecasts: Sequence[Row] = ()
    plans: Sequence[Row] = ()
    stages: Sequence[Row] = ()

    def __post_init__(self) -> None:
        """Make all texts visible: nothing that others have named reorders or hides a line of the report."""
        for member in fields(self):
            object.__setattr__(self, member.name, visible_value(getattr(self, member.name)))


def columns_of(rows: Iterable[Row], names: Mapping[str, str]) -> Columns:
    """Return rows as columns for a chart. names: the chart's name of each column, and the rows'."""
    listed = list(rows)
    return {name: [finite(row[column]) for row in listed] for name, column in names.items()}


def finite(value: Any) -> Any:
    """Return a value that JSON can hold: a number with six digits, None for one that is not finite."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
