"""Which node gets which partitions. A pure decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from easeml_plpy.server.errors import InvalidArgument, InvalidData


def parts_of(
    shuffle: str, n_partitions: int, n_rows: Mapping[str, int], holders: Sequence[str]
) -> dict[str, list[int]]:
    """Return the partitions of each segment: in turn over the holders, or to each that has rows as many as its share.

    Raises InvalidArgument, InvalidData.
    """
    if shuffle == "across":
        return {name: list(range(k, n_partitions, len(holders))) for k, name in enumerate(holders)}
    empty = [name for name, n in n_rows.items() if not n]
    if empty:
        raise InvalidData(f"segment {empty[0]} has no rows with a target", hint="Leave it out of the source.")
    if n_partitions < len(n_rows):
        raise InvalidArgument(
            f"n_partitions: rows stay on {len(n_rows)} segments, which have a partition each, got {n_partitions}",
            hint=f"Ask for n_partitions => {len(n_rows)} or more, or for shuffle => 'across'.",
        )
    counts = shares(n_partitions, list(n_rows.values()))
    firsts = [sum(counts[:k]) for k in range(len(counts))]
    return {name: list(range(firsts[k], firsts[k] + counts[k])) for k, name in enumerate(n_rows)}


def shares(n: int, weights: Sequence[int]) -> list[int]:
    """Divide n into a share of at least one for each weight; each further one goes where partitions are largest."""
    counts = [1] * len(weights)
    for _ in range(n - len(weights)):
        best = max(range(len(weights)), key=lambda k: (weights[k] / counts[k], -k))
        counts[best] += 1
    return counts
