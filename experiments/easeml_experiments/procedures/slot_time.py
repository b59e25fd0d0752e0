"""What slots spent a search's time on, from its recorded units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

BETWEEN_UNITS_SECONDS = 0.1  # a longer pause of a slot is idleness: nothing could be given to it
ACTIVITIES = ("training", "validation", "states", "between", "idle")
Unit = Mapping[str, Any]


def seconds_by_activity(units: Sequence[Unit], *, started: float, finished: float, n_slots: int) -> dict[str, float]:
    """Return seconds of all slots together, by activity; they sum up to n_slots times the makespan.

    units: kind, slot_id, started, finished, training_seconds (of train units). training: steps of the optimiser.
    validation: whole validate and test units. states: the rest of train units, which read and write states and book
    what was done. between: pauses of up to a tenth of a second between two units of a slot. idle: longer ones, the
    beginning and the end.
    """
    seconds = dict.fromkeys(ACTIVITIES, 0.0)
    for unit in units:
        whole = unit["finished"] - unit["started"]
        if unit["kind"] == "train":
            seconds["training"] += unit["training_seconds"]
            seconds["states"] += whole - unit["training_seconds"]
        else:
            seconds["validation"] += whole
    for _, group in groupby(sorted(units, key=itemgetter("slot_id", "started")), itemgetter("slot_id")):
        for before, after in pairwise(group):
            pause = after["started"] - before["finished"]
            seconds["between"] += pause if pause <= BETWEEN_UNITS_SECONDS else 0.0
    seconds["idle"] = n_slots * (finished - started) - sum(seconds.values())
    return seconds
