"""Which results may stand beside ours: those of the same split and time, and of rows as the rival takes them now. Pure.

Ours may have run again, on another split or for another time, since a rival did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from easeml_experiments.tables.kept import OURS, has_its_view
from easeml_experiments.tables.ours import DEFAULT_SECONDS
from easeml_experiments.tables.rivals import RIVALS

Result = Mapping[str, Any]


def sifted(results: Iterable[Result]) -> tuple[list[Result], list[str]]:
    """Return the results on one table with one seed that may be compared with ours, and a line for each other one.

    Where there is none of ours, all may.
    """
    results = list(results)
    ours = next((each for each in results if each["by"] == OURS), None)
    objections = [ours and _objection(each, ours) for each in results]
    lines = [
        f"{each['by']} on {each['table']}, seed {each['seed']}, {objection}"
        for each, objection in zip(results, objections, strict=True)
        if objection
    ]
    return [each for each, objection in zip(results, objections, strict=True) if not objection], lines


def _objection(result: Result, ours: Result) -> str | None:
    """Say why a result may not stand beside ours, None where it may."""
    rival = RIVALS.get(result["by"])
    if rival is None:
        return None
    if result["split"] != ours["split"]:
        return "had another split than ours"
    if not has_its_view(result, rival):
        return "had its categories in another form"
    seconds = ours["arguments"].get("max_seconds", DEFAULT_SECONDS)
    if rival.is_timed and result["seconds"] != seconds:
        return f"had {result['seconds']:g} s, ours {seconds:g}"
    return None
