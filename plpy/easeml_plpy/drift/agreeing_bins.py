"""Combines the answers of nodes about their rows into the bins and counts that one server would find.

The edges between bins are tenths of the training numbers of all nodes. No node reveals its numbers: for each tenth, all
nodes count how many of theirs are no greater than a candidate, and bisection narrows the candidates until one is left.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from easeml_plpy.drift.bins import N_BINS, CategoryBins, tenth_places
from easeml_plpy.drift.columns import compared_columns
from easeml_plpy.drift.measure import Seen, rows_of
from easeml_plpy.drift.new_rows import check_counts
from easeml_plpy.drift.on_node import bins_from
from easeml_plpy.drift.order_keys import key_of, number_of
from easeml_plpy.drift.training_rows import MOST_BYTES, MOST_ROWS
from easeml_plpy.row_forms import datasets
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Session
from easeml_plpy.server.value_types import Told


@entry_point()
def settle_drift(session: Session, step: str, told: str) -> str:
    """Combine the answers of all nodes to a step; return what the next step needs, as JSON."""
    return json.dumps(STEPS[step](session, json.loads(told)))


def _source(session: Session, message: Told) -> Told:
    """Settle how many rows are read, and whether targets are compared. Raises InvalidData, InvalidArgument."""
    answers = message["found"]
    n_rows = sum(answer["n_rows"] for answer in answers)
    periods = {period for answer in answers for period in answer["periods"]}
    check_counts("the source", n_rows, len(periods))
    step = -(-n_rows // min(answer["most"] for answer in answers))
    return {"has_target": all(answer["has_target"] for answer in answers), "step": step}


def _sizes(session: Session, message: Told) -> Told:
    """Settle which training blocks are read: the first of each partition, as on one server."""
    blocks = sorted(
        (number, part, segment, n_rows, n_bytes)
        for segment, answer in zip(message["segments"], message["found"], strict=True)
        for part, number, n_rows, n_bytes in answer["blocks"]
    )
    if not blocks:
        raise NotAllowed("the dataset has no training rows to compare with")
    blocks_by_segment: dict[str, list[list[int]]] = {segment: [] for segment in message["segments"]}
    rows_so_far = bytes_so_far = 0
    for number, part, segment, n_rows, n_bytes in blocks:
        blocks_by_segment[segment].append([part, number])
        rows_so_far, bytes_so_far = rows_so_far + n_rows, bytes_so_far + n_bytes
        if rows_so_far >= MOST_ROWS or bytes_so_far >= MOST_BYTES:
            break
    return {"blocks_by_segment": blocks_by_segment}


def _trained(session: Session, message: Told) -> Told:
    """Settle the bins of categories, and between which numbers the tenths of others are."""
    columns = [_column(facts) for facts in zip(*(answer["columns"] for answer in message["found"]), strict=True)]
    return _with_thresholds(columns)


def _column(facts: Sequence[Told]) -> dict[str, Any]:
    if "seen" in facts[0]:
        bins = CategoryBins.seen_as(np.sum([part["seen"] for part in facts], axis=0))
        return {"place": bins.place.tolist(), "seen": bins.seen.tolist()}
    ends = [end for part in facts for end in part["ends"]]
    column: dict[str, Any] = {"ends": [min(ends), max(ends)] if ends else []}
    distinct = None
    if all(part["distinct"] is not None for part in facts):
        distinct = sorted({number for part in facts for number in part["distinct"]})
    if distinct is not None and len(distinct) <= N_BINS:
        return column | {"edges": distinct[:-1]}
    places = tenth_places(sum(part["n"] for part in facts)).tolist()
    low, high = (key_of(end) for end in column["ends"])
    return column | {"tenths": [[place, low, high] for place in places]}


def _ranks(session: Session, message: Told) -> Told:
    """Halve the intervals in which the tenths are."""
    columns = [dict(column) for column in message["bins"]]
    for place, keys in message["thresholds"].items():
        sums = np.sum([answer["ranks"][place] for answer in message["found"]], axis=0).tolist()
        n_below = dict(zip(keys, sums, strict=True))
        columns[int(place)]["tenths"] = [_halved(tenth, n_below) for tenth in columns[int(place)]["tenths"]]
    return _with_thresholds(columns)


def _halved(tenth: Sequence[int], n_below: Mapping[int, int]) -> list[int]:
    place, low, high = tenth
    if low == high:
        return [place, low, high]
    middle = (low + high) // 2
    return [place, low, middle] if n_below[middle] > place else [place, middle + 1, high]


def _with_thresholds(columns: Sequence[Mapping[str, Any]]) -> Told:
    """Return the columns, and the numbers that nodes compare next; a column whose tenths are settled has its edges."""
    thresholds, settled = {}, []
    for number, column in enumerate(columns):
        tenths = column.get("tenths", [])
        candidates = sorted({(low + high) // 2 for _, low, high in tenths if low < high})
        if candidates:
            thresholds[str(number)] = candidates
        elif tenths:
            edges = np.unique([number_of(low) for _, low, _ in tenths]).tolist()
            column = {"ends": column["ends"], "edges": edges}
        settled.append(column)
    return {"bins": settled, "thresholds": thresholds}


def _counts(session: Session, message: Told) -> Told:
    """Add up the training rows of all nodes by bin."""
    counted = zip(*(answer["counts"] for answer in message["found"]), strict=True)
    trained = [np.sum(counts, axis=0).tolist() for counts in counted]
    bins = [{**column, "trained": counts} for column, counts in zip(message["bins"], trained, strict=True)]
    return {"bins": bins, "widths": [len(counts) for counts in trained]}


def _rows(session: Session, message: Told) -> Told:
    """Return the rows of easeml.drift."""
    encoder = datasets.dataset(session, message["dataset_id"]).encoder
    compared, bins = compared_columns(encoder, has_target=message["has_target"]), bins_from(message["bins"])
    seen: dict[float | None, list[Seen]] = {}
    for answer in message["found"]:
        for period, columns in answer["periods"]:
            totals = seen.setdefault(period, [Seen(np.zeros_like(column_bins.trained)) for column_bins in bins])
            for total, (counts, n_unseen, unseen) in zip(totals, columns, strict=True):
                total.merge(Seen(np.array(counts), n_unseen, Counter(dict(unseen))))
    seconds = message["options"]["every_seconds"]
    return {"rows": list(_by_period(seen, seconds, lambda of_period: rows_of(compared, bins, of_period)))}


def _by_period(
    seen: Mapping[float | None, list[Seen]], seconds: float, rows: Callable[[list[Seen]], Iterator[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    for period in sorted(seen, key=lambda period: (period is None, period)):
        for row in rows(seen[period]):
            yield {"since": None if period is None else period * seconds, **row}


STEPS: Mapping[str, Callable[[Session, Told], Told]] = {
    "source": _source,
    "sizes": _sizes,
    "trained": _trained,
    "ranks": _ranks,
    "counts": _counts,
    "new": _rows,
}
