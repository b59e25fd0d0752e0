"""Where payloads of states are kept: a small one in its checkpoint's row, a large one in rows of 1 MB chunks.

Readers get the same bytes either way, checked against the recorded hash. Chunks are written in the transaction that
records the unit, so a state is never half stored, and each is a statement that lets a cancel through.
"""

from __future__ import annotations

import io
from typing import Any

from .checkpoint import verify
from .errors import CorruptCheckpoint
from .session import prepared, query

INLINE_BYTES = 4 << 20  # a large value takes its size in memory several times, and ends at 1 GB
CHUNK_BYTES = 1 << 20

STATE = "SELECT state, sha256, n_bytes FROM easeml.checkpoints WHERE trial_id = $1 AND checkpoint_id = $2"
# Row and chunks in one statement: its snapshot sees all of them, though they may be pruned meanwhile.
CHUNKS = """
SELECT k.bytes FROM easeml.checkpoints c JOIN easeml.checkpoint_chunks k USING (checkpoint_id)
WHERE c.trial_id = $1 AND c.checkpoint_id = $2 ORDER BY k.chunk_number
"""

Json = dict[str, Any]


def store_chunks(plpy: Any, GD: Json, unit: str, payload: bytes, sha256: str) -> int | None:
    """Write a state of more than INLINE_BYTES and return its checkpoint, for record_training; else None."""
    if len(payload) <= INLINE_BYTES:
        return None
    sql = "SELECT easeml.store_chunked($1, $2, $3) AS checkpoint_id"
    row = query(plpy, GD, sql, ["jsonb", "int8", "text"], [unit, len(payload), sha256])[0]
    checkpoint_id: int | None = row["checkpoint_id"]
    view = memoryview(payload)
    for number, start in enumerate(range(0, len(payload), CHUNK_BYTES)):
        chunk = [checkpoint_id, number, view[start : start + CHUNK_BYTES]]
        query(plpy, GD, "SELECT easeml.store_chunk($1, $2, $3)", ["int8", "int4", "bytea"], chunk)
    return checkpoint_id


def read_state(plpy: Any, GD: Json, trial_id: int, checkpoint_id: int) -> bytes:
    """Return a stored state of that trial after checking its hash. Raises CorruptCheckpoint."""
    rows = query(plpy, GD, STATE, ["int8", "int8"], [trial_id, checkpoint_id])
    if not rows:
        raise CorruptCheckpoint(f"checkpoint {checkpoint_id} is gone")
    row = rows[0]
    state: bytes = row["state"] if row["state"] is not None else _joined(plpy, GD, trial_id, checkpoint_id)
    if len(state) != row["n_bytes"]:
        raise CorruptCheckpoint(f"checkpoint {checkpoint_id} has {len(state)} of its {row['n_bytes']} bytes")
    verify(state, row["sha256"])
    return state


def _joined(plpy: Any, GD: Json, trial_id: int, checkpoint_id: int) -> bytes:
    """The chunks of a state as one, copied once."""
    whole = io.BytesIO()
    chunks = plpy.cursor(prepared(plpy, GD, CHUNKS, ["int8", "int8"]), [trial_id, checkpoint_id])
    while rows := chunks.fetch(1):
        whole.write(rows[0]["bytes"])
    chunks.close()
    return whole.getvalue()
