"""A training unit: one trial over one partition once."""

from __future__ import annotations

import json
import time
from typing import Any

from . import cache, units
from .cancellation import Pause
from .checkpoint import digest
from .session import entry_point, query
from .states import store_chunks

Json = dict[str, Any]


@entry_point
def train_unit(plpy: Any, GD: Json, unit: str, result: str | None) -> tuple[str]:
    """Train, then record the state, the unit and its loss in one fenced transaction.

    Returns JSON {"n_rows", "loss", "training_seconds", "state_bytes", "pruned_bytes"}.
    Raises TrialFailed, StaleLease, CorruptCheckpoint; a cancel passes through and records nothing.
    """
    order, context = units.open_unit(plpy, GD, unit)
    rows = cache.rows_of(plpy, GD, context["dataset_id"], "train", order.partition_number)
    live, read_bytes = units.blamed_on_trial(
        plpy, lambda: units.live_trial(plpy, GD, order, context, context["checkpoint_id"])
    )
    plpy.commit()

    pause = Pause(plpy)
    started = time.perf_counter()
    training = units.blamed_on_trial(plpy, lambda: live.train(rows.inputs, rows.targets, seed=order.seed, pause=pause))
    training_seconds = time.perf_counter() - started
    state = live.dump()

    facts = {
        "n_rows": training.n_rows,
        "loss": training.loss_mean if training.n_rows else None,
        "training_seconds": training_seconds,
        "read_bytes": read_bytes,
    }
    recorded = record_training(plpy, GD, unit, context, facts, state)
    plpy.commit()
    units.keep_live(GD, order, context, recorded.pop("checkpoint_id"), live)
    return (json.dumps({key: facts[key] for key in ("n_rows", "loss", "training_seconds")} | recorded),)


def record_training(plpy: Any, GD: Json, unit: str, context: Json, facts: Json, state: bytes) -> Json:
    """Record a state and what led to it, for the caller to commit.

    facts: n_rows, loss, training_seconds, read_bytes. Returns checkpoint_id, state_bytes, pruned_bytes.
    """
    sha256 = digest(state)
    # Chunks go first: what record_training locks is locked until the commit.
    chunked_id = store_chunks(plpy, GD, unit, state, sha256)
    inline = state if chunked_id is None else None
    measured = [facts[key] for key in ("training_seconds", "n_rows", "loss", "read_bytes")]
    recorded = query(
        plpy,
        GD,
        "SELECT * FROM easeml.record_training($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        ["jsonb", "timestamptz", "float8", "int8", "float8", "int8", "text", "bytea", "int8"],
        [unit, context["started_at"], *measured, sha256, inline, chunked_id],
    )[0]
    sizes = {"state_bytes": len(state), "pruned_bytes": recorded["pruned_bytes"] or 0}
    return {"checkpoint_id": recorded["new_checkpoint_id"], **sizes}
