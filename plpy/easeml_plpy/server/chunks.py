"""How much is stored, sent or computed at once: enough to be fast, so little that a cancel comes through soon."""

from __future__ import annotations

from collections.abc import Iterator

INLINE_BYTES = 4 << 20
"""A larger state lies in chunks: a large value takes its size in memory several times, and ends at 1 GB."""
STATE_CHUNK_BYTES = 1 << 20
BLOCK_BYTES, BLOCK_ROWS = 2 << 20, (64, 8192)
"""What a block of packed rows aims at, and the bounds of its rows."""
STATEMENT_ROWS = 4096
"""Rows of a table that a statement hands over as arrays."""
ANSWER_ROWS = 1024
"""Rows that a network answers at once."""
PASS_STEPS, PASS_BYTES = 64, 4 << 20
"""Steps of training whose rows are gathered at once. Measured: what stays in the cache is up to a tenth faster."""


def state_chunks(state: bytes) -> Iterator[tuple[int, memoryview]]:
    """Yield the chunks of a state with their numbers, without a copy."""
    whole = memoryview(state)
    for number, start in enumerate(range(0, len(state), STATE_CHUNK_BYTES)):
        yield number, whole[start : start + STATE_CHUNK_BYTES]


def block_rows(row_bytes: int) -> int:
    """Return how many rows of that size make a block."""
    least, most = BLOCK_ROWS
    return min(max(BLOCK_BYTES // max(row_bytes, 1), least), most)


def pass_steps(step_bytes: int) -> int:
    """Return for how many steps to gather rows at once, from the bytes of a step's rows."""
    return max(1, min(PASS_STEPS, PASS_BYTES // step_bytes))
