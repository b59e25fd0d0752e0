"""What training and evaluation units share: opening, the live trial, and the fence of the final transaction.

A unit reads and commits, works without a transaction, and records everything in one short final transaction that
first checks the coordinator's lease and then flips the trial's progress, refused when somebody else was faster.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from . import cache
from .architectures import architecture, complete
from .checkpoint import verify
from .devices import bind
from .errors import CorruptCheckpoint, EasemlError, NotFound, StaleLease, TrialFailed
from .session import query
from .trainers import LiveTrial, trainer_for

T = TypeVar("T")
Json = dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """One unit as the coordinator orders it."""

    trial_id: int
    step: int
    kind: str
    epoch: int
    position: int
    partition_number: int
    seed: int
    slot_id: int
    lease_number: int
    attempt: int


def open_unit(plpy: Any, GD: Json, order: str) -> tuple[Unit, Json]:  # noqa: N803
    """Read the unit's context, show it in the slot's row, and commit. Refused when the step is not the next one."""
    unit = Unit(**json.loads(order))
    rows = query(
        plpy, GD, "SELECT c.*, clock_timestamp() AS started_at FROM easeml.unit_context($1, $2) c WHERE c.run_id IS NOT NULL",
        ["int8", "int4"], [unit.trial_id, unit.slot_id],
    )  # fmt: skip
    if not rows:
        raise NotFound(f"trial {unit.trial_id} is gone")
    context = dict(rows[0])
    context["config"] = json.loads(context["config"])
    if context["n_steps_done"] != unit.step or context["trial_state"] not in ("waiting", "running"):
        raise StaleLease(
            f"trial {unit.trial_id} is {context['trial_state']} with {context['n_steps_done']} steps done: step {unit.step} is not due"
        )
    bind(context["device"] or "cpu", context["n_threads"] or 1, context["memory_limit_bytes"])
    if context["trial_state"] == "waiting":
        query(
            plpy, GD, "UPDATE easeml.trials SET state = 'running', started_at = coalesce(started_at, $2::timestamptz) WHERE trial_id = $1 AND state = 'waiting'",
            ["int8", "text"], [unit.trial_id, context["started_at"]],
        )  # fmt: skip
    query(
        plpy, GD,
        "UPDATE easeml.slots SET trial_id = $2, kind = $3, epoch = $4, partition_number = $5, unit_started_at = $6::timestamptz, backend_pid = pg_backend_pid()"
        " WHERE slot_id = $1",
        ["int4", "int8", "text", "int4", "int4", "text"],
        [unit.slot_id, unit.trial_id, unit.kind, unit.epoch, unit.partition_number, context["started_at"]],
    )  # fmt: skip
    return unit, context


def live_trial(plpy: Any, GD: Json, unit: Unit, context: Json, checkpoint_id: int | None) -> LiveTrial:  # noqa: N803
    """Return the trial as of that checkpoint: from the session when it is still here, else restored, else a fresh one.

    It is taken out of the session's store: only a recorded unit may put it back.
    """
    kept = cache.bounded(GD, "live", cache.N_LIVE_TRIALS).pop(unit.trial_id)
    if kept is not None and kept[0] == checkpoint_id and checkpoint_id is not None:
        live: LiveTrial = kept[1]
        return live
    chosen = architecture(context["architecture"])
    config = complete(chosen, context["config"])
    task = cache.dataset(plpy, GD, context["dataset_id"]).task
    trainer = trainer_for(chosen.trainer)
    device = context["device"] or "cpu"
    if checkpoint_id is None:
        n_steps_total = trainer.count_steps(config, context["train_rows"], context["max_epochs"])
        return trainer.start(chosen, config, task, n_steps_total=n_steps_total, seed=unit.seed, device=device)
    return trainer.resume(chosen, config, task, read_state(plpy, GD, checkpoint_id), device=device)


def read_state(plpy: Any, GD: Json, checkpoint_id: int) -> bytes:  # noqa: N803
    """Return a stored state after checking its hash."""
    rows = query(
        plpy,
        GD,
        "SELECT state, sha256 FROM easeml.checkpoints WHERE checkpoint_id = $1",
        ["int8"],
        [checkpoint_id],
    )
    if not rows:
        raise CorruptCheckpoint(f"checkpoint {checkpoint_id} is gone")
    verify(rows[0]["state"], rows[0]["sha256"])
    state: bytes = rows[0]["state"]
    return state


def keep_live(GD: Json, unit: Unit, checkpoint_id: int, live: LiveTrial) -> None:  # noqa: N803
    """Keep a live trial whose state is that of a recorded checkpoint."""
    cache.bounded(GD, "live", cache.N_LIVE_TRIALS).put(unit.trial_id, (checkpoint_id, live))


def blamed_on_trial(plpy: Any, work: Callable[[], T]) -> T:
    """Run the trial's own work; what it raises, other than a cancel or an error of ours, is the trial's failure."""
    try:
        return work()
    except (EasemlError, plpy.SPIError):
        raise
    except MemoryError as error:
        raise TrialFailed(
            "out of memory", hint="Use a smaller batch or network, or raise the slot's memory limit."
        ) from error
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else ""
        raise TrialFailed(f"{type(error).__name__}: {text}" if text else type(error).__name__) from error


def fence(plpy: Any, GD: Json, unit: Unit) -> None:  # noqa: N803
    """Refuse to record for a coordinator that has been replaced; hold off a takeover until this transaction ends."""
    current = query(plpy, GD, "SELECT lease_number FROM easeml.coordinator_lease FOR SHARE", [], [])[0][
        "lease_number"
    ]
    if current != unit.lease_number:
        raise StaleLease(f"lease {unit.lease_number} is over, {current} holds: the unit is not recorded")


def advance(
    plpy: Any, GD: Json, unit: Unit, context: Json, changes: str, types: list[str], values: list[Any]
) -> None:  # noqa: N803
    """Flip the trial's progress by one step, with further changes; free the slot's row. Refused if it moved meanwhile."""
    is_last = unit.step + 1 == (2 * context["max_epochs"] + 1) * context["n_partitions"]
    done = ", state = 'finished', finished_at = clock_timestamp()" if is_last else ""
    updated = query(
        plpy, GD, f"UPDATE easeml.trials SET n_steps_done = n_steps_done + 1{changes}{done} WHERE trial_id = $1 AND n_steps_done = $2 AND state = 'running'",
        ["int8", "int4", *types], [unit.trial_id, unit.step, *values],
    )  # fmt: skip
    if updated.nrows() != 1:
        raise StaleLease(
            f"trial {unit.trial_id} was stopped or moved on meanwhile: step {unit.step} is not recorded"
        )
    query(
        plpy, GD, "UPDATE easeml.slots SET unit_started_at = NULL, n_units_done = n_units_done + 1 WHERE slot_id = $1", ["int4"], [unit.slot_id]
    )  # fmt: skip
