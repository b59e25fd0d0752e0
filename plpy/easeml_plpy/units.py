"""What training and evaluation units share.

A unit opens in one short transaction, works without one, and records everything in a last one, which first checks
the coordinator's lease and the trial's progress. The statements of both are SQL functions (sql/functions/units.sql).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from . import cache
from .architectures import architecture, complete
from .devices import bind
from .errors import EasemlError, TrialFailed
from .session import query
from .states import read_state
from .task import Task
from .trainers import LiveTrial, trainer_for

T = TypeVar("T")
Json = dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """One unit as the coordinator orders it; `text` is the order itself, `gang` what it says of a gang, if anything."""

    text: str
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
    gang: Json | None = None
    measured_seconds: float = 0.0


def open_unit(plpy: Any, GD: Json, order: str) -> tuple[Unit, Json]:
    """Read the unit's context and bind the session to its slot. Raises StaleLease when the step is not due."""
    unit = Unit(text=order, **json.loads(order))
    context = dict(query(plpy, GD, "SELECT * FROM easeml.open_unit($1)", ["jsonb"], [order])[0])
    context["config"] = json.loads(context["config"])
    context["device"] = bind(context["device"] or "cpu", context["n_threads"] or 1, context["memory_limit_bytes"])
    return unit, context


def live_trial(plpy: Any, GD: Json, unit: Unit, context: Json, checkpoint_id: int | None) -> tuple[LiveTrial, int]:
    """Return the trial as of that checkpoint, and the bytes of state that were read from the tables for it.

    It comes from the session if it is still here, else from its state, else it is a fresh one. It is taken out of the
    session's store: only a recorded unit may put it back.
    """
    device = context["device"]
    kept = cache.bounded(GD, "live", cache.N_LIVE_TRIALS).pop(unit.trial_id)
    if kept is not None and checkpoint_id is not None and kept[0] == (checkpoint_id, device):
        return kept[1], 0
    task = cache.dataset(plpy, GD, context["dataset_id"]).task
    if checkpoint_id is None:
        return fresh_trial(context, task, unit.seed, device), 0
    state = read_state(plpy, GD, unit.trial_id, checkpoint_id)
    return resumed_trial(context, task, state, device), len(state)


def fresh_trial(context: Json, task: Task, seed: int, device: str) -> LiveTrial:
    """Return a trial before its first unit, whose seed draws the parameters.

    context: architecture, config, train_rows (one number a partition) and max_epochs.
    """
    chosen = architecture(context["architecture"])
    config = complete(chosen, context["config"])
    trainer = trainer_for(chosen.trainer)
    n_steps_total = trainer.count_steps(config, context["train_rows"], context["max_epochs"])
    return trainer.start(chosen, config, task, n_steps_total=n_steps_total, seed=seed, device=device)


def resumed_trial(context: Json, task: Task, state: bytes, device: str) -> LiveTrial:
    """Return a trial with a stored state; the optimiser's settings are those of the config."""
    chosen = architecture(context["architecture"])
    config = complete(chosen, context["config"])
    return trainer_for(chosen.trainer).resume(chosen, config, task, state, device=device)


def keep_live(GD: Json, unit: Unit, context: Json, checkpoint_id: int, live: LiveTrial) -> None:
    """Keep a live trial whose state is that of a recorded checkpoint."""
    key = (checkpoint_id, context["device"])
    cache.bounded(GD, "live", cache.N_LIVE_TRIALS).put(unit.trial_id, (key, live))


def blamed_on_trial(plpy: Any, work: Callable[[], T]) -> T:
    """Run the trial's own work; what it raises, other than a cancel or an error of ours, is the trial's failure."""
    try:
        return work()
    except (EasemlError, plpy.SPIError):
        raise
    except Exception as error:  # any class: the code that trains is a plug-in, and its fault must not end the run
        raise _failure(error) from error


def _failure(error: Exception) -> TrialFailed:
    """Say in one line why the trial failed; torch says on the CPU only by its words that memory ran out."""
    text = str(error).partition("\n")[0]
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "can't allocate memory" in text:
        hint = "Use a smaller batch or network, or raise the slot's memory limit."
        return TrialFailed("out of memory" + (f": {text.rpartition('] ')[2]}" if text else ""), hint=hint)
    return TrialFailed(f"{type(error).__name__}: {text}" if text else type(error).__name__)
