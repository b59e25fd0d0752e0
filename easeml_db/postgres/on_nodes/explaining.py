"""Importance of a trial's inputs, or the contributions of a row's inputs to its answer, on the nodes of held-out rows.

Rows that may travel are gathered on one node, so the numbers are those of one server. Other rows are permuted, or mixed
with the row, within their nodes, and the result is a mean over the nodes. No input leaves the nodes.
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
    """The option that says how much to draw, the least rows of a node, the columns to average, and their rank."""

    drawn: str
    least_rows: int
    mean: str
    error: str
    rank: Callable[[float], float]


# Shapley values are linear in what is answered: those against the rows of all nodes are means of those against the rows
# of each.
SUBJECTS = {
    "explain": _Subject("n_rows", 2, "importance", "standard_deviation", operator.neg),
    "explain_row": _Subject("n_orders", 1, "contribution", "standard_error", lambda value: -abs(value)),
}
VALIDATION = "validation"  # the rows that a row is mixed with
LEAST_DRAWN = 2


async def explained(control: Connection, job: Fields, sent: Fields, works: Mapping[str, NodeWork]) -> Fields:
    """Return {"rows", "checkpoint_id"}: what easeml.explain or easeml.explain_row returns, and for which state.

    `sent` goes to the nodes.
    """
    homes = homes_of(job, works)
    if job["shuffle"] == "within" and len(works) > 1:
        rows = await _by_node(job, sent, works)
    else:
        chosen = await gather(control, job, homes, _split(job))
        rows = await _rows(chosen, job, sent)
    return {"rows": rows, "checkpoint_id": job["checkpoint_id"]}


def _split(job: Fields) -> str:
    return str(job["options"].get("split", VALIDATION))


async def _by_node(job: Fields, sent: Fields, works: Mapping[str, NodeWork]) -> Rows:
    n_rows = {name: int(job["n_held_out"][name]) for name in works}
    least = SUBJECTS[job["subject"]].least_rows
    asked = [name for name in works if n_rows[name] >= least]
    if not asked:
        raise NotReady(f"no node has {least} {_split(job)} rows of dataset {job['dataset']!r}")
    total = sum(n_rows[name] for name in asked)
    shares = [n_rows[name] / total for name in asked]
    parts = [part_of(sent, share, place) for place, share in enumerate(shares)]
    by_node = await all_of(_rows(works[name], job, part) for name, part in zip(asked, parts, strict=True))
    return mean_rows(job["subject"], by_node, shares)


def part_of(sent: Fields, share: float, place: int) -> Fields:
    """Return the request to one of several nodes: it draws its share of what was asked for, with a seed of its own."""
    options = dict(sent["options"])
    drawn = SUBJECTS[sent["subject"]].drawn
    if options[drawn] is not None:
        options[drawn] = max(LEAST_DRAWN, round(options[drawn] * share))
    if options["seed"] is not None:
        options["seed"] ^= place  # which leaves a bad one bad
    return {**sent, "options": options}


async def _rows(work: NodeWork, job: Fields, sent: Fields) -> Rows:
    limit = job["limits"][work.node.segment_name]
    (answer,) = await work.execute(EXPLAIN, json.dumps({**sent, "limit": limit}))
    rows: Rows = answer["found"]["rows"]
    return rows


def mean_rows(subject: str, by_node: Sequence[Rows], shares: Sequence[float]) -> Rows:
    """Return means of the rows of all nodes, the most important input first. `shares` add up to 1.

    The nodes draw independently, so variances add up, each with the square of its share. Raises InvalidArgument where
    they have explained different classes.
    """
    labels = {row.get("explained_label") for rows in by_node for row in rows}
    if len(labels) > 1:
        raise InvalidArgument(
            f"label: the nodes predict different classes for this row: {', '.join(sorted(map(repr, labels)))}",
            hint="Say which one is to be explained.",
        )
    names = SUBJECTS[subject]
    by_input = [{row["input"]: row for row in rows} for rows in by_node]

    def mean(row: Mapping[str, Any]) -> Mapping[str, Any]:
        same = list(zip((rows[row["input"]] for rows in by_input), shares, strict=True))
        value = sum(share * answer[names.mean] for answer, share in same)
        is_exact = any(answer[names.error] is None for answer, _ in same)
        error = None if is_exact else math.sqrt(sum((share * answer[names.error]) ** 2 for answer, share in same))
        return {**row, names.mean: value, names.error: error}

    rows = [mean(row) for row in by_node[0]]
    # The row of the answer without any input comes first.
    return sorted(rows, key=lambda row: (row["input"] is not None, names.rank(row[names.mean])))
