"""Which inputs a trial needs, found where its held-out rows lie.

Rows that may travel come together on one node, so the numbers are those of one server. Others are permuted within their
nodes, and what comes here is a mean over the nodes. No input comes here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from easeml_db.errors import NotReady
from easeml_db.postgres.spread.gathering import gather, homes_of
from easeml_db.postgres.spread.node_sessions import NodeWork, Told, all_of
from easeml_db.postgres.transfers import Connection

EXPLAIN = "SELECT easeml_segment.explain_on_node(%s::jsonb) AS found"
LEAST_ROWS = 2
Rows = Sequence[Mapping[str, Any]]


async def explained(control: Connection, told: Told, sent: Told, works: Mapping[str, NodeWork]) -> Told:
    """Return {"rows", "checkpoint_id"}: what easeml.explain returns, and for which state. `sent` goes to the nodes."""
    homes = homes_of(told, works)
    if told["shuffle"] == "within" and len(works) > 1:
        rows = await _by_node(told, sent, works)
    else:
        chosen = await gather(control, told, homes, told["options"]["split"])
        rows = await _rows(chosen, told, sent)
    return {"rows": rows, "checkpoint_id": told["checkpoint_id"]}


async def _by_node(told: Told, sent: Told, works: Mapping[str, NodeWork]) -> Rows:
    n_rows = {name: int(told["n_held_out"][name]) for name in works}
    asked = [name for name in works if n_rows[name] >= LEAST_ROWS]
    if not asked:
        raise NotReady(f"no node has {LEAST_ROWS} {told['options']['split']} rows of dataset {told['dataset']!r}")
    total = sum(n_rows[name] for name in asked)
    shares = {name: n_rows[name] / total for name in asked}
    found = await all_of(_rows(works[name], told, _with_share(sent, shares[name])) for name in asked)
    return mean_rows(found, list(shares.values()))


def _with_share(sent: Told, share: float) -> Told:
    """Return what one of several nodes is told: so many rows of those that were asked for as it has of all."""
    n_rows = sent["options"]["n_rows"]
    if n_rows is None:
        return sent
    return {**sent, "options": {**sent["options"], "n_rows": max(LEAST_ROWS, round(n_rows * share))}}


async def _rows(work: NodeWork, told: Told, sent: Told) -> Rows:
    limit = told["limits"][work.node.segment_name]
    (found,) = await work.execute(EXPLAIN, json.dumps({**sent, "limit": limit}))
    rows: Rows = found["found"]["rows"]
    return rows


def mean_rows(found: Sequence[Rows], shares: Sequence[float]) -> Rows:
    """Return means of what nodes have found, the most important input first. `shares` add up to 1.

    The nodes draw independently, so variances add up, each with the square of its share.
    """
    importance: dict[str, float] = {}
    variance: dict[str, float] = {}
    for rows, share in zip(found, shares, strict=True):
        for row in rows:
            name = row["input"]
            importance[name] = importance.get(name, 0.0) + share * row["importance"]
            variance[name] = variance.get(name, 0.0) + (share * row["standard_deviation"]) ** 2
    return [
        {"input": name, "importance": importance[name], "standard_deviation": math.sqrt(variance[name])}
        for name in sorted(importance, key=lambda name: -importance[name])
    ]
