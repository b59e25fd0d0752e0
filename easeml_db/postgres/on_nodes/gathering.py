"""Gathers the rows of splits on one node, for a job that needs all of them at once."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from easeml_db.errors import NotReady
from easeml_db.postgres.nodes.node_rows import RowCopy, note_copy
from easeml_db.postgres.nodes.node_store import Connection, Part
from easeml_db.postgres.nodes.node_works import Fields, NodeWork, segment_errors
from easeml_db.postgres.nodes.packed_parts import bring_part


def homes_of(job: Fields, works: Mapping[str, NodeWork]) -> dict[int, NodeWork]:
    """Return the node of each partition. Raises NotReady where one has none."""
    homes = {part: works[name] for name, parts in job["homes"].items() for part in parts}
    lacking = set(range(job["n_partitions"])) - set(homes)
    if lacking:
        raise NotReady(f"the rows of partition {min(lacking)} are on no node")
    return homes


async def gather(control: Connection, job: Fields, homes: Mapping[int, NodeWork], *splits: str) -> NodeWork:
    """Copy the rows of all partitions to the node that lacks fewest of them; return it."""
    parts = [Part(job["dataset_id"], split, number) for split in splits for number in sorted(homes)]
    lacking = {}
    for work in {work.node.segment_id: work for work in homes.values()}.values():
        async with segment_errors(work.node):
            lacking[work] = [part for part in parts if not await work.store.has_part(part)]
    chosen = min(lacking, key=lambda work: (len(lacking[work]), work.node.segment_id))
    for part in lacking[chosen]:
        await _copy(control, job, part, (homes[part.partition_number], chosen))
    return chosen


async def _copy(control: Connection, job: Fields, part: Part, way: tuple[NodeWork, NodeWork]) -> None:
    source, target = way
    began = time.monotonic()
    async with segment_errors(source.node):
        if not await source.store.has_part(part):
            raise NotReady(f"segment {source.node.segment_name} has lost the rows of partition {part.partition_number}")
    async with segment_errors(target.node):
        encoder = json.dumps(job["encoder"])
        n_bytes = await bring_part(source.store, target.store, part, encoder)
    places = source.node.segment_id, target.node.segment_id
    copy = RowCopy(part, *places, n_bytes, time.monotonic() - began)
    await note_copy(control, json.dumps({"trial_id": job["trial_id"]}), copy)
