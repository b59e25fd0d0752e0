"""A training unit: one trial over one partition once."""

from __future__ import annotations

import json
import time
from typing import Any

from . import cache, units
from .cancellation import Pause
from .checkpoint import digest
from .session import entry_point, query

Json = dict[str, Any]


@entry_point
def train_unit(plpy: Any, GD: Json, unit: str, result: str | None) -> tuple[str]:  # noqa: N803
    """Train, then record the state, the unit and its loss in one fenced transaction.

    Returns JSON {"n_rows", "loss", "training_seconds", "state_bytes"}.
    Raises TrialFailed, StaleLease, CorruptCheckpoint; a cancel passes through and records nothing.
    """
    order, context = units.open_unit(plpy, GD, unit)
    rows = cache.rows_of(plpy, GD, context["dataset_id"], "train", order.partition_number)
    live = units.blamed_on_trial(
        plpy, lambda: units.live_trial(plpy, GD, order, context, context["checkpoint_id"])
    )
    plpy.commit()
    started = time.perf_counter()
    pause = Pause(plpy)
    training = units.blamed_on_trial(
        plpy, lambda: live.train(rows.inputs, rows.targets, seed=order.seed, pause=pause)
    )
    training_seconds = time.perf_counter() - started
    state = live.dump()
    checkpoint_id = _record(plpy, GD, order, context, training, training_seconds, state)
    plpy.commit()
    units.keep_live(GD, order, checkpoint_id, live)
    summary = {
        "n_rows": training.n_rows,
        "loss": training.loss_mean if training.n_rows else None,
        "training_seconds": training_seconds,
        "state_bytes": len(state),
    }
    return (json.dumps(summary),)


def _record(
    plpy: Any,
    GD: Json,
    order: units.Unit,
    context: Json,
    training: Any,
    training_seconds: float,
    state: bytes,  # noqa: N803
) -> int:
    """Insert checkpoint and unit, flip the trial's pointer, prune the state it started from; return the checkpoint."""
    units.fence(plpy, GD, order)
    sha256 = digest(state)
    inserted = query(
        plpy, GD, "INSERT INTO easeml.checkpoints (trial_id, owner, epoch, n_bytes, sha256, state) VALUES ($1, $2, $3, $4, $5, $6) RETURNING checkpoint_id",
        ["int8", "name", "int4", "int8", "text", "bytea"], [order.trial_id, context["owner"], order.epoch, len(state), sha256, state],
    )  # fmt: skip
    checkpoint_id = int(inserted[0]["checkpoint_id"])
    query(
        plpy, GD,
        "INSERT INTO easeml.training_units (trial_id, run_id, owner, epoch, position, partition_number, slot_id, attempt, seed, lease_number,"
        " started_at, finished_at, training_seconds, n_rows, loss, from_checkpoint_id, checkpoint_id, state_bytes, state_sha256)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::timestamptz, clock_timestamp(), $12, $13, $14, $15, $16, $17, $18)",
        ["int8", "int8", "name", "int4", "int4", "int4", "int4", "int4", "int8", "int8", "text", "float8", "int8", "float8", "int8", "int8", "int8", "text"],
        [order.trial_id, context["run_id"], context["owner"], order.epoch, order.position, order.partition_number, order.slot_id, order.attempt, order.seed,
         order.lease_number, context["started_at"], training_seconds, training.n_rows, training.loss_mean if training.n_rows else None,
         context["checkpoint_id"], checkpoint_id, len(state), sha256],
    )  # fmt: skip
    units.advance(plpy, GD, order, context, ", checkpoint_id = $3", ["int8"], [checkpoint_id])
    query(
        plpy, GD,
        "DELETE FROM easeml.checkpoints WHERE checkpoint_id = $1 AND checkpoint_id IS DISTINCT FROM $2",
        ["int8", "int8"], [context["checkpoint_id"], context["best_checkpoint_id"]],
    )  # fmt: skip
    return checkpoint_id
