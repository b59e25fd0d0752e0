"""A training unit: one trial over one partition once.

1. The coordinator calls easeml.train_unit, whose body calls `train_unit` with the order.
2. `open_unit` reads the context in one query, shows the unit in its slot's row and binds the session to the slot.
3. `partition_rows` gives the rows as tensors: kept by the session, else decoded from the blocks.
4. `live_trial` gives the trial: kept by the session, else resumed from its state, else fresh. Commit.
5. The trainer visits every row once, without a transaction, and dumps the new state.
6. `record_training` stores state, unit and loss in one call, fenced by the lease. Commit.
7. `keep_live` keeps the trial for its next unit, and the metrics go back to the coordinator.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from easeml_plpy.row_forms.datasets import PartitionRows, partition_rows
from easeml_plpy.server.cancellation import SessionPause
from easeml_plpy.server.entry_points import entry_point
from easeml_plpy.server.errors import NotAllowed
from easeml_plpy.server.session import Session
from easeml_plpy.trainers import trainer_of
from easeml_plpy.trainers.contract import LiveTrial, Training
from easeml_plpy.units.folds import train_on
from easeml_plpy.units.live_trials import keep_live, live_trial
from easeml_plpy.units.recording import RecordedTraining, TrainingFacts, record_training
from easeml_plpy.units.units import Unit, UnitContext, open_unit, trial_to_blame


@entry_point(is_pinned=True)
def train_unit(session: Session, unit: str, result: str | None) -> tuple[str]:
    """Train, then record the state, the unit and its loss in one fenced transaction.

    Returns JSON {"n_rows", "loss", "training_seconds", "state_bytes", "pruned_bytes"}.
    Raises TrialFailed, StaleLease, CorruptCheckpoint; a cancel passes through and records nothing.
    """
    order = Unit.from_text(unit)
    context = open_unit(session, order)

    def record(facts: TrainingFacts, state: bytes) -> RecordedTraining:
        return record_training(session, order.text, context, facts, state)

    facts, recorded = train_opened(session, order, context, record)
    return (training_report(facts, recorded),)


def train_opened(
    session: Session, order: Unit, context: UnitContext, record: Callable[[TrainingFacts, bytes], RecordedTraining]
) -> tuple[TrainingFacts, RecordedTraining]:
    """Train a unit that was opened, and have its state recorded in the transaction that is committed then."""
    refuse_part(context)
    rows = partition_rows(
        session, context.trial.dataset_id, context.trial.training_split, order.partition_number, context.trial.view
    )
    live, read_bytes = live_trial(session, order, context, context.checkpoint_id, order.seed)
    session.commit()

    facts, state = trained(session, live, rows, order.seed, read_bytes)
    recorded = record(facts, state)
    session.let_go()
    keep_live(session, order, context, recorded["checkpoint_id"], live)
    return facts, recorded


def trained(
    session: Session, live: LiveTrial, rows: PartitionRows, seed: int, read_bytes: int
) -> tuple[TrainingFacts, bytes]:
    """Train on rows; return what is to be recorded of it, and the new state. Raises TrialFailed."""
    started = time.perf_counter()
    with trial_to_blame(session):
        training = train_on(live, rows, seed, SessionPause(session))
    return training_facts(training, time.perf_counter() - started, read_bytes), live.dump()


def training_report(facts: TrainingFacts, recorded: RecordedTraining) -> str:
    """Return the report of a trained unit for the coordinator, as JSON."""
    sizes = {key: recorded[key] for key in ("state_bytes", "pruned_bytes")}
    return json.dumps({key: facts[key] for key in ("n_rows", "loss", "training_seconds")} | sizes)


def refuse_part(context: UnitContext) -> None:
    """Raise NotAllowed for a trial that takes all partitions at once, and would be trained on one of several."""
    name, n_partitions = context.trial.architecture, len(context.trial.train_rows)
    if n_partitions > 1 and trainer_of(name).takes_all_partitions:
        raise NotAllowed(f"{name} takes all {n_partitions} partitions at once, and was ordered over one")


def training_facts(training: Training, seconds: float, read_bytes: int) -> TrainingFacts:
    """Return what a unit records of its training; without rows there is no loss."""
    loss = training.loss_mean if training.n_rows else None
    return {
        "n_rows": training.n_rows,
        "loss": loss,
        "training_seconds": seconds,
        "read_bytes": read_bytes,
        "members": training.members,
    }
