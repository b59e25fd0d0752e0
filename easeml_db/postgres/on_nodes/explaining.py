"""Which inputs a trial needs, or what those of a row add to its answer, found where its held-out rows lie.

Rows that may travel come together on one node, so the numbers are those of one server. Others are permuted, or mixed
with the row, within their nodes, and what comes here is a mean over the nodes. No input comes here.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from easeml_db.errors import InvalidArgument, NotReady
from easeml_db.postgres.nodes.node_store import Connection
from easeml_db.postgres.nodes.node_works import Fields, NodeWork, all_of
from easeml_db.postgres.on_nodes.gathering import gather, homes_of

EXPLAIN = "SELECT easeml_segment.explain_on_node(%s::jsonb) AS found"
Rows = Sequence[Mapping[str, Any]]


class _Subject(NamedTuple):
    """What is drawn, of how many rows of a node at least; which numbers are averaged, and what ranks them."""

    drawn: str
    least_rows: int
    mean: str
    error: str
    rank: Callable[[float], float]


def _by_size(value: float) -> float:
    return -abs(value)


# Shapley values are linear in what is answered: those against the rows of all nodes are means of those against the rows
# of each.
SUBJECTS = {
    "explain": _Subject("n_rows", 2, "importance", "standard_deviation", operator.neg),
    "explain_row": _Subject("n_orders", 1, "contribution", "standard_error", _by_size),
}
VALIDATION = "validation"  # the rows that a row is mixed with
LEAST_DRAWN = 2


async def explained(control: Connection, told: Fields, sent: Fields, works: Mapping[str, NodeWork]) -> Fields:
    """Return {"rows", "checkpoint_id"}: what easeml.explain or easeml.explain_row returns, and for which state.

    `sent` goes to the nodes.
    """
    homes = homes_of(told, works)
    if told["shuffle"] == "within" and len(works) > 1:
        rows = await _by_node(told, sent, works)
    else:
        chosen = await gather(control, told, homes, _split(told))
        rows = await _rows(chosen, told, sent)
    return {"rows": rows, "checkpoint_id": told["checkpoint_id"]}


def _split(told: Fields) -> str:
    return str(told["options"].get("split", VALIDATION))


async def _by_node(told: Fields, sent: Fields, works: Mapping[str, NodeWork]) -> Rows:
    n_rows = {name: int(told["n_held_out"][name]) for name in works}
    least = SUBJECTS[told["subject"]].least_rows
    asked = [name for name in works if n_rows[name] >= least]
    if not asked:
        raise NotReady(f"no node has {least} {_split(told)} rows of dataset {told['dataset']!r}")
    total = sum(n_rows[name] for name in asked)
    shares = [n_rows[name] / total for name in asked]
    own = [part_of(sent, share, place) for place, share in enumerate(shares)]
    found = await all_of(_rows(works[name], told, part) for name, part in zip(asked, own, strict=True))
    return mean_rows(told["subject"], found, shares)


def part_of(sent: Fields, share: float, place: int) -> Fields:
    """Return what one of several nodes is told: to draw by itself, as much of what was asked for as it has of all."""
    options = dict(sent["options"])
    drawn = SUBJECTS[sent["subject"]].drawn
    if options[drawn] is not None:
        options[drawn] = max(LEAST_DRAWN, round(options[drawn] * share))
    if options["seed"] is not None:
        options["seed"] ^= place  # which leaves a bad one bad
    return {**sent, "options": options}


async def _rows(work: NodeWork, told: Fields, sent: Fields) -> Rows:
    limit = told["limits"][work.node.segment_name]
    (found,) = await work.execute(EXPLAIN, json.dumps({**sent, "limit": limit}))
    rows: Rows = found["found"]["rows"]
    return rows


def mean_rows(subject: str, found: Sequence[Rows], shares: Sequence[float]) -> Rows:
    """Return means of what nodes have found, the most important input first. `shares` add up to 1.

    The nodes draw independently, so variances add up, each with the square of its share. Raises InvalidArgument where
    they have explained different classes.
    """
    labels = {row.get("explained_label") for rows in found for row in rows}
    if len(labels) > 1:
        raise InvalidArgument(
            f"label: the nodes predict different classes for this row: {', '.join(sorted(map(repr, labels)))}",
            hint="Say which one is to be explained.",
        )
    told = SUBJECTS[subject]
    by_input = [{row["input"]: row for row in rows} for rows in found]

    def mean(row: Mapping[str, Any]) -> Mapping[str, Any]:
        same = list(zip((rows[row["input"]] for rows in by_input), shares, strict=True))
        value = sum(share * each[told.mean] for each, share in same)
        is_exact = any(each[told.error] is None for each, _ in same)
        error = None if is_exact else math.sqrt(sum((share * each[told.error]) ** 2 for each, share in same))
        return {**row, told.mean: value, told.error: error}

    rows = [mean(row) for row in found[0]]
    # What is answered without an input comes first.
    return sorted(rows, key=lambda row: (row["input"] is not None, told.rank(row[told.mean])))
