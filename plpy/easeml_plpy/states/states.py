"""Where payloads of states are kept: a small one in its checkpoint's row, a large one in rows of 1 MB chunks.

Readers get the same bytes either way, checked against the recorded hash. Chunks are written in the transaction that
records the unit, so a state is never half stored, and each is a statement that lets a cancel through.
"""

from __future__ import annotations

import io
from typing import NamedTuple

from easeml_plpy.server.chunks import INLINE_BYTES, state_chunks
from easeml_plpy.server.errors import CorruptCheckpoint
from easeml_plpy.server.session import Command, Session, Statement, only_column
from easeml_plpy.states.checkpoint import verify


class _Stored(NamedTuple):
    state: bytes | None
    sha256: str
    n_bytes: int


STATE = Statement(
    "SELECT state, sha256, n_bytes FROM {schema}.checkpoints WHERE trial_id = $1 AND checkpoint_id = $2",
    ("int8", "int8"),
    _Stored,
)
# Row and chunks in one statement: its snapshot sees all of them, though they may be pruned meanwhile.
CHUNKS: Statement[bytes] = Statement(
    """
SELECT k.bytes FROM {schema}.checkpoints c JOIN {schema}.checkpoint_chunks k USING (checkpoint_id)
WHERE c.trial_id = $1 AND c.checkpoint_id = $2 ORDER BY k.chunk_number
""",
    ("int8", "int8"),
    only_column,
)
BEGIN_CHUNKED: Statement[int | None] = Statement(
    "SELECT easeml.store_chunked($1, $2, $3) AS checkpoint_id", ("jsonb", "int8", "text"), only_column
)
STORE_CHUNK = Command("SELECT easeml.store_chunk($1, $2, $3)", ("int8", "int4", "bytea"))


def store_chunks(session: Session, order: str, payload: bytes, sha256: str) -> int | None:
    """Write a state of more than INLINE_BYTES and return its checkpoint, for record_training; else None."""
    if len(payload) <= INLINE_BYTES:
        return None
    checkpoint_id = session.row(BEGIN_CHUNKED, order, len(payload), sha256)
    for number, chunk in state_chunks(payload):
        session.run(STORE_CHUNK, checkpoint_id, number, chunk)
    return checkpoint_id


def read_state(session: Session, trial_id: int, checkpoint_id: int) -> bytes:
    """Return a stored state of that trial after checking its hash. Raises CorruptCheckpoint."""
    rows = session.rows(STATE, trial_id, checkpoint_id)
    if not rows:
        raise CorruptCheckpoint(f"checkpoint {checkpoint_id} is gone")
    stored = rows[0]
    state = stored.state if stored.state is not None else _joined(session, trial_id, checkpoint_id)
    if len(state) != stored.n_bytes:
        raise CorruptCheckpoint(f"checkpoint {checkpoint_id} has {len(state)} of its {stored.n_bytes} bytes")
    verify(state, stored.sha256)
    return state


def _joined(session: Session, trial_id: int, checkpoint_id: int) -> bytes:
    """Return the chunks of a state as one, copied once."""
    whole = io.BytesIO()
    for chunk in session.each(CHUNKS, trial_id, checkpoint_id):
        whole.write(chunk)
    return whole.getvalue()
