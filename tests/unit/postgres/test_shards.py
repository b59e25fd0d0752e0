"""Which tables of which segments a table of a Citus cluster stands for: rows of Citus 12.1.12's catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from easeml_db.errors import EasemlError, InvalidArgument, InvalidData, NotAllowed, VersionMismatch
from easeml_db.postgres.nodes.citus.shards import OnNoSegment, Placed, Shard, ShardPlacement, Worker, gone, shards_of
from easeml_db.postgres.nodes.citus.tables import placements_of

COLUMNS = (
    "relation", "kind", "method", "partition_method", "replication_model", "colocation", "is_readable", "shard_id",
    "shard", "groupid", "nodename", "nodeport",
)  # fmt: skip
HERE, ONE, TWO = (0, "127.0.0.1", 9700), (1, "127.0.0.1", 9701), (2, "127.0.0.1", 9702)
W1 = Placed("w1", Worker(*ONE), "shop", "12.1-1")
W2 = Placed("w2", Worker(*TWO), "shop", "12.1-1")
HASHED, REPLICATED, REFERENCE, LOCAL = ("h", "s", 1), ("h", "c", 4), ("n", "t", 2), ("n", "s", 0)


def recorded(
    table: str, known_as: tuple[Any, ...], *places: tuple[int, tuple[Any, ...]], **other: Any
) -> list[ShardPlacement]:
    """The rows that a worker returns of a table, by number of the shard and node."""
    usual = {"kind": "r", "method": "heap", "is_readable": True} | other
    rows = []
    for shard_id, node in places:
        values = (table, usual["kind"], usual["method"], *known_as, usual["is_readable"])
        rows.append(dict(zip(COLUMNS, (*values, shard_id, f"{table}_{shard_id}", *node), strict=True)))
    return placements_of(rows)


DATA = recorded("public.data", HASHED, (102008, ONE), (102009, TWO), (102010, ONE), (102011, TWO))


def found(placements: list[ShardPlacement], *segments: Placed, asked: str = "w1") -> dict[str, list[str]] | None:
    shards = shards_of("public.data", "anna", asked, placements, segments or (W1, W2))
    return shards and {segment: [shard.table for shard in own] for segment, own in shards.items()}


def test_a_distributed_table_is_its_shards_by_the_segments_of_their_workers() -> None:
    expected = {"w1": ["public.data_102008", "public.data_102010"], "w2": ["public.data_102009", "public.data_102011"]}
    assert found(DATA) == expected
    assert found(DATA[::-1], W2, W1, asked="w2") == expected


def test_partitions_of_a_distributed_table_are_read_with_their_shards() -> None:
    first = recorded("public.pt1", HASHED, (102026, ONE), (102027, TWO))
    second = recorded("public.pt2", HASHED, (102030, ONE), (102031, TWO))
    assert found(first + second) == {
        "w1": ["public.pt1_102026", "public.pt2_102030"],
        "w2": ["public.pt1_102027", "public.pt2_102031"],
    }


def test_a_table_of_one_shard_is_on_one_segment() -> None:
    assert found(recorded("public.single", ("n", "s", 3), (102034, TWO))) == {"w2": ["public.single_102034"]}


def test_of_a_reference_table_the_copy_on_the_lowest_group_with_a_segment_is_read() -> None:
    rows = recorded("public.ref", REFERENCE, (102012, HERE), (102012, ONE), (102012, TWO))
    assert found(rows) == found(rows[::-1]) == {"w1": ["public.ref_102012"]}
    assert found(rows, W2, asked="w2") == {"w2": ["public.ref_102012"]}


def test_of_replicated_shards_each_is_read_once_and_in_turn() -> None:
    rows = recorded("public.repl", REPLICATED, *((102035 + k, node) for k in range(4) for node in (TWO, ONE)))
    expected = {"w1": ["public.repl_102035", "public.repl_102037"], "w2": ["public.repl_102036", "public.repl_102038"]}
    assert found(rows) == found(rows[::-1]) == expected
    assert found(rows, W1) == {"w1": [f"public.repl_{102035 + k}" for k in range(4)]}


def test_what_citus_does_not_know_stays_a_table_of_its_worker() -> None:
    unknown = dict.fromkeys(COLUMNS) | {"relation": "public.own", "kind": "r", "method": "heap", "is_readable": False}
    assert found(placements_of([unknown])) is None
    assert found([]) is None


def test_segments_of_another_cluster_with_the_same_addresses_are_left_alone() -> None:
    other = Placed("a1", W1.worker, "sales", "12.0-1")
    assert found(DATA, other, W1, W2) == found(DATA)


@pytest.mark.parametrize(
    ("placements", "segments", "error", "words"),
    [
        (
            DATA, (W1,), OnNoSegment,
            "shard public.data_102009 of public.data is on worker 127.0.0.1:9702, which is no segment",
        ),
        (recorded("public.loc", LOCAL, (102013, HERE)), (W1, W2), InvalidArgument, "public.loc is a local table"),
        (
            recorded("public.col", HASHED, (102014, ONE), method="columnar"), (W1, W2), InvalidArgument,
            "public.col is columnar: expected one with the access method heap",
        ),
        (
            recorded("public.data", HASHED, (102008, ONE), is_readable=False), (W1, W2), NotAllowed,
            "role anna may not read public.data",
        ),
        (
            DATA, (W1, replace(W2, version="12.0-1")), VersionMismatch,
            "segment w2: its Citus is 12.0-1, and that of segment w1 is 12.1-1",
        ),
        (
            DATA, (W1, W2, replace(W2, segment="w3")), InvalidArgument,
            "segments w2 and w3 are the same worker 127.0.0.1:9702",
        ),
        (
            [replace(DATA[0], worker=None)], (W1, W2), InvalidData,
            "shard public.data_102008 of public.data has no active placement",
        ),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_said_in_one_line(
    placements: list[ShardPlacement], segments: tuple[Placed, ...], error: type[EasemlError], words: str
) -> None:
    with pytest.raises(error) as refused:
        found(placements, *segments)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_shard_that_left_its_worker_is_known_by_its_number() -> None:
    shards = [Shard(102008, "public.data_102008"), Shard(102010, "public.data_102010")]
    assert gone(shards, {102008, 102010}) == []
    assert gone(shards, {102008}) == ["public.data_102010"]
