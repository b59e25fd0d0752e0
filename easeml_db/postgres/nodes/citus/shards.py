"""Resolves tables of a Citus cluster into their shards, by the segments on whose workers these lie.

Pure: catalog rows in, tables by segment out. A table that Citus does not know is a plain table of its worker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from easeml_db.errors import InvalidArgument, InvalidData, NotAllowed, NotFound, VersionMismatch

NO_KEY, LOCAL = "n", ("n", "s", 0)


@dataclass(frozen=True, order=True)
class Worker:
    """A node of a cluster as the cluster's catalog names it; `group` is unique within the cluster."""

    group: int
    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True)
class Placed:
    """A segment that is a worker: which one, in which database, and the version of Citus there, such as 12.1-1."""

    segment: str
    worker: Worker
    database: str
    version: str


@dataclass(frozen=True)
class ShardPlacement:
    """A row of a worker's catalog: a table, or a leaf of a partitioned one, and one place of one of its shards, if any.

    `relation`, `shard`: names as SQL writes them. `kind`, `method`: relkind and access method. `known_as`: partition
    method, replication model and colocation group; None if Citus does not know the table.
    """

    relation: str
    kind: str
    method: str | None
    known_as: tuple[str, str, int] | None
    is_readable: bool
    shard_id: int | None
    shard: str | None
    worker: Worker | None


@dataclass(frozen=True, order=True)
class Shard:
    """A shard, and its table on the worker from which it is read."""

    shard_id: int
    table: str


Shards: TypeAlias = dict[str, list[Shard]]
"""By segment, in the order of their numbers."""


class OnNoSegment(NotFound):
    """A shard lies on a worker that is no segment, or on one whose segment does not answer."""


def shards_of(
    table: str, role: str, asked: str, placements: Sequence[ShardPlacement], segments: Sequence[Placed]
) -> Shards | None:
    """Return the shards of a table that was named on the segment `asked`; None if Citus does not know the table.

    Of several placements one is read: of a reference table that on the worker with the lowest group, of replicated
    shards each in turn. Raises OnNoSegment, NotAllowed, InvalidArgument, InvalidData, VersionMismatch.
    """
    if all(placement.known_as is None for placement in placements):
        return None
    copies: dict[int, list[ShardPlacement]] = {}
    for placement in placements:
        _check(placement, role)
        if placement.shard_id is not None:
            copies.setdefault(placement.shard_id, []).append(placement)
    if not copies:
        raise InvalidData(f"source: {table} has no shards")
    places = _segments_by_worker(asked, segments)
    shards: Shards = {}
    for number, (shard_id, shard_copies) in enumerate(sorted(copies.items())):
        chosen = _chosen(number, shard_copies, places)
        shards.setdefault(places[chosen].segment, []).append(Shard(shard_id, str(shard_copies[0].shard)))
    _check_versions(asked, [placed for placed in places.values() if placed.segment in {*shards, asked}])
    return shards


def gone(shards: Sequence[Shard], still_there: Collection[int]) -> list[str]:
    """Return the tables of shards that have left their worker since they were resolved."""
    return [shard.table for shard in shards if shard.shard_id not in still_there]


def _check(placement: ShardPlacement, role: str) -> None:
    """Refuse tables that the role may not read, and tables that are not heaps on workers."""
    relation = placement.relation
    if not placement.is_readable:
        raise NotAllowed(
            f"role {role} may not read {relation}",
            hint="On the coordinator of the cluster: GRANT SELECT, and USAGE on its schema.",
        )
    if placement.known_as is None or placement.known_as == LOCAL:
        raise InvalidArgument(
            f"source: {relation} is a local table of the cluster's coordinator: its rows are on no worker",
            hint=f"On the coordinator: SELECT create_distributed_table('{relation}', ...).",
        )
    if placement.method != "heap":
        raise InvalidArgument(
            f"source: {relation} is {placement.method or 'no table'}: expected one with the access method heap",
            hint=f"On the coordinator: SELECT alter_table_set_access_method('{relation}', 'heap').",
        )


def _segments_by_worker(asked: str, segments: Sequence[Placed]) -> dict[Worker, Placed]:
    """Return the segments of the cluster of `asked`: a cluster has one name for its database on all nodes."""
    database = next(placed.database for placed in segments if placed.segment == asked)
    by_worker: dict[Worker, Placed] = {}
    for placed in sorted(segments, key=lambda placed: placed.segment):
        if placed.database != database:
            continue
        if placed.worker in by_worker:
            raise InvalidArgument(
                f"segments {by_worker[placed.worker].segment} and {placed.segment} are the same worker {placed.worker}",
                hint="Remove one of them: SELECT easeml.remove_segment(...).",
            )
        by_worker[placed.worker] = placed
    return by_worker


def _check_versions(asked: str, used: Sequence[Placed]) -> None:
    versions = {placed.segment: placed.version for placed in used}
    for segment, version in versions.items():
        if version != versions[asked]:
            raise VersionMismatch(
                f"segment {segment}: its Citus is {version}, and that of segment {asked} is {versions[asked]}",
                hint="On all nodes of the cluster: ALTER EXTENSION citus UPDATE.",
            )


def _chosen(number: int, copies: Sequence[ShardPlacement], places: Mapping[Worker, Placed]) -> Worker:
    """Return the worker from which a shard is read; `number`: its place among those of the table."""
    workers = sorted({copy.worker for copy in copies if copy.worker is not None})
    first = copies[0]
    if not workers:
        raise InvalidData(f"source: shard {first.shard} of {first.relation} has no active placement")
    able = [worker for worker in workers if worker in places]
    if not able:
        raise OnNoSegment(
            f"source: shard {first.shard} of {first.relation} is on worker {workers[0]}, which is no segment",
            hint="An administrator adds it: SELECT easeml.add_segment('name', service => '...', engine => 'citus').",
        )
    has_key = first.known_as is not None and first.known_as[0] != NO_KEY
    return able[number % len(able) if has_key else 0]
